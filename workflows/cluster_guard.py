"""`ClusterGuard`: one long-lived workflow for each cluster that bounds what relight does there at once."""

import asyncio
from collections import deque
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import SearchAttributePair
from temporalio.workflow import ContinueAsNewVersioningBehavior

with workflow.unsafe.imports_passed_through():
    from relight.contracts import Model
    from relight.contracts.guard import (
        BreakerReset,
        FaultReport,
        GuardInput,
        GuardLimits,
        GuardStatus,
        NodeClear,
        NodeReport,
        NodeView,
        PermitDecision,
        PermitRelease,
        PermitRequest,
    )
    from relight.contracts.ids import CLUSTER, GUARD_WORKFLOW, STATE
    from relight.contracts.messages import ModeChange, Note
    from relight.policy.guard import Guard
    from workflows.attributes import show
    from workflows.current_details import CurrentDetails
    from workflows.guard_details import guard_details, state_word
    from workflows.notices import Notices
    from workflows.signals import read, tell

AT_ONCE = 100
"""Answers under way at the same time; Temporal allows 2,000."""

_MESSAGES: dict[str, type[Model]] = {
    "request_permit": PermitRequest,
    "release_permit": PermitRelease,
    "report_node": NodeReport,
    "report_fault": FaultReport,
    "pause": Note,
    "unpause": Note,
    "set_mode": ModeChange,
    "reset_breaker": BreakerReset,
    "clear_node": NodeClear,
    "set_limits": GuardLimits,
}


@workflow.defn(name=GUARD_WORKFLOW)
class ClusterGuard:
    """Gives permits for recoveries and drains, trips breakers, keeps the ledger of nodes, pauses the cluster.

    Signal handlers only put the message into the mail; the run method alone decides, one message at a time,
    and answers by the signal `permit_decided` to whoever holds or wants the permit.
    """

    @workflow.init
    def __init__(self, start: GuardInput) -> None:
        self._guard = Guard(start.cluster, start.limits, start.state)
        self._details = CurrentDetails()
        self._mail: deque[tuple[str, Model | None]] = deque()
        self._notices = Notices(start.notify)
        self._notify = start.notify
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at: datetime | None = None

    # Signals

    @workflow.signal(
        description="internal, sent by a recovery or drain: it asks for a permit (PermitRequest)"
    )
    def request_permit(self, payload: object = None, *_: object) -> None:
        """Records a `PermitRequest`."""
        self._post("request_permit", payload)

    @workflow.signal(
        description="internal, sent by a recovery or drain: it gives its permit back (PermitRelease)"
    )
    def release_permit(self, payload: object = None, *_: object) -> None:
        """Records a `PermitRelease`."""
        self._post("release_permit", payload)

    @workflow.signal(description="internal, sent by recoveries and node sensors: nodes at fault (NodeReport)")
    def report_node(self, payload: object = None, *_: object) -> None:
        """Records a `NodeReport`."""
        self._post("report_node", payload)

    @workflow.signal(
        description="internal, sent by a recovery: a fault that other jobs may share (FaultReport)"
    )
    def report_fault(self, payload: object = None, *_: object) -> None:
        """Records a `FaultReport`."""
        self._post("report_fault", payload)

    @workflow.signal(description="Change nothing in the whole cluster any more (Note: by, reason)")
    def pause(self, payload: object = None, *_: object) -> None:
        """Records a `Note`."""
        self._post("pause", payload)

    @workflow.signal(description="Go on after a pause (Note: by, reason)")
    def unpause(self, payload: object = None, *_: object) -> None:
        """Records a `Note`."""
        self._post("unpause", payload)

    @workflow.signal(
        description="observe: all jobs observe; act: each does as its own mode says (ModeChange)"
    )
    def set_mode(self, payload: object = None, *_: object) -> None:
        """Records a `ModeChange`."""
        self._post("set_mode", payload)

    @workflow.signal(description="Close a circuit breaker (BreakerReset: partition, by, reason)")
    def reset_breaker(self, payload: object = None, *_: object) -> None:
        """Records a `BreakerReset`."""
        self._post("reset_breaker", payload)

    @workflow.signal(description="A node is mended: nothing is held against it any more (NodeClear)")
    def clear_node(self, payload: object = None, *_: object) -> None:
        """Records a `NodeClear`."""
        self._post("clear_node", payload)

    @workflow.signal(
        description="internal, sent by a worker at its start: the limits of the settings (GuardLimits)"
    )
    def set_limits(self, payload: object = None, *_: object) -> None:
        """Records `GuardLimits`."""
        self._post("set_limits", payload)

    def _post(self, name: str, payload: object) -> None:
        self._mail.append((name, read(_MESSAGES[name], payload)))

    # Queries

    @workflow.query(description="Permits, budgets, breakers, the queue")
    def status(self) -> GuardStatus:
        """How the guard stands."""
        return self._guard.status(workflow.now())

    @workflow.query(description="The ledger of nodes, the worst first")
    def nodes(self) -> tuple[NodeView, ...]:
        """All nodes with strikes."""
        return self._guard.nodes(workflow.now())

    # The life of a guard

    @workflow.run
    async def run(self, start: GuardInput) -> None:
        """Guards the cluster, for ever.

        Args:
            start: the cluster, its limits, and what an earlier run of this guard knew.
        """
        while True:
            self._read_mail()
            self._guard.tick(workflow.now())
            self._tell_people()
            await self._send_answers()
            self._show()
            if self._woken():
                continue
            if self._may_renew():
                self._renew()
            await self._wait()

    def _read_mail(self) -> None:
        while self._mail:
            self._hear(*self._mail.popleft())

    def _hear(self, name: str, message: Model | None) -> None:
        guard, now = self._guard, workflow.now()
        match name, message:
            case _, None:
                guard.state.counts.malformed += 1
            case _, PermitRequest() if message.holder == workflow.info().workflow_id:
                guard.state.counts.malformed += 1  # an answer to itself would never end
            case _, PermitRequest():
                guard.request(message, now)
            case _, PermitRelease():
                guard.release(message, now)
            case _, NodeReport():
                guard.report(message, now)
            case _, FaultReport():
                guard.report_fault(message, now)
            case "pause", Note():
                guard.pause(message, now)
            case "unpause", Note():
                guard.unpause()
            case _, ModeChange():
                guard.set_mode(message, now)
            case _, BreakerReset():
                guard.reset(message, now)
            case _, NodeClear():
                guard.clear_node(message.node)
            case _, GuardLimits():
                guard.configure(message)

    def _tell_people(self) -> None:
        news = self._guard.news
        while news:
            self._notices.send(news.popleft().model_copy(update={"workflow_id": workflow.info().workflow_id}))

    async def _send_answers(self) -> None:
        """Sends what was decided: to one holder in order, to different holders at the same time."""
        outbox = self._guard.outbox
        while outbox:
            batch: dict[str, list[PermitDecision]] = {}
            while outbox and len(batch) < AT_ONCE:
                decision = outbox.popleft()
                batch.setdefault(decision.holder, []).append(decision)
            await asyncio.gather(*(self._send(holder, told) for holder, told in batch.items()))

    async def _send(self, holder: str, decisions: list[PermitDecision]) -> None:
        for decision in decisions:
            if not await tell(holder, "permit_decided", decision):
                self._guard.forget(holder, workflow.now())
                return

    async def _wait(self) -> None:
        """Until there is mail, or time alone changes something. The alarm outlives a wake-up."""
        due = self._guard.due()
        if due != self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = None if due is None else asyncio.create_task(self._ring(due))
            self._alarm_at = due
        await workflow.wait_condition(
            lambda: self._woken() or self._alarm_at != due or self._may_renew(),
        )

    async def _ring(self, due: datetime) -> None:
        await workflow.sleep(
            max(due - workflow.now(), timedelta(0)), summary="a lease, a budget or a breaker is due"
        )
        self._alarm = self._alarm_at = None

    def _woken(self) -> bool:
        return bool(self._mail or self._guard.outbox)

    def _show(self) -> None:
        """Search attributes and details; events are written only for what changed."""
        now = workflow.now()
        status = self._guard.status(now)
        pairs = [
            SearchAttributePair(CLUSTER, status.cluster),
            SearchAttributePair(STATE, state_word(status)),
        ]
        show([pair for pair in pairs if pair.value])
        self._details.show(guard_details(status, self._guard.lemons(now)))

    # Renewal

    def _may_renew(self) -> bool:
        info = workflow.info()
        if not self._notices.is_quiet:
            return False  # a renewal would drop them; they end within minutes
        return info.is_continue_as_new_suggested() or info.is_target_worker_deployment_version_changed()

    def _renew(self) -> None:
        guard = self._guard
        guard.state.counts.renewals += 1
        workflow.continue_as_new(
            GuardInput(cluster=guard.cluster, limits=guard.limits, state=guard.state, notify=self._notify),
            initial_versioning_behavior=ContinueAsNewVersioningBehavior.AUTO_UPGRADE
            if workflow.info().is_target_worker_deployment_version_changed()
            else None,
        )
