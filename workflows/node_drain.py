"""`NodeDrain`: one node that relight takes away from everyone, from the plan until it is given back."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributePair
from temporalio.workflow import ContinueAsNewVersioningBehavior

with workflow.unsafe.imports_passed_through():
    from relight.contracts import clean_text
    from relight.contracts.guard import PermitDecision, PermitKind, PermitRequest
    from relight.contracts.ids import CAUSE, CLUSTER, JOB_ID, NODE_DRAIN_WORKFLOW, NODES, STATE, USER
    from relight.contracts.messages import Note
    from relight.contracts.node_drain import (
        DrainEnd,
        DrainNews,
        NodeCheck,
        NodeDrainInput,
        NodeDrainResult,
        NodeDrainStatus,
        NodeHow,
        NodeLook,
        NodeStep,
    )
    from relight.policy.node_drain import was_forgotten
    from workflows.attributes import show
    from workflows.current_details import CurrentDetails
    from workflows.details import clip
    from workflows.drain_details import drain_details
    from workflows.permit import GuardPermit
    from workflows.signals import read, tell
    from workflows.steps import StepFailed, attempt, may_try_again, pause_after, poll

FRESH = timedelta(hours=1)
"""How long a drain may wait for its permit; later, the node would be drained for an old fault."""
LEASE = timedelta(days=2)
"""The guard counts the node as drained so long without a word."""
LOOK_AT_ONCE = timedelta(seconds=15)
LONGEST_LOOK = timedelta(hours=6)
"""The time between two looks at the node doubles up to this."""
CHECK = timedelta(hours=1)
"""The longest that the site's commands may take; the settings' own time is shorter."""
LOOK_WINDOW = timedelta(minutes=5)
MAX_LOG = 50
MAX_FORGOTTEN = 2
"""So often a drain that the scheduler has forgotten is given again."""


class _Over(Exception):
    def __init__(self, end: DrainEnd, text: str) -> None:
        super().__init__(text)
        self.end, self.text = end, text


@workflow.defn(name=NODE_DRAIN_WORKFLOW)
class NodeDrain:
    """Drains a node under the guard's permit, has it checked, and gives it back when it may.

    It holds the permit as long as the node is drained: so the guard knows how much of a partition is gone. A
    node that a person or another tool has drained, or takes back, is theirs.
    """

    @workflow.init
    def __init__(self, start: NodeDrainInput) -> None:
        self._start = start
        self._details = CurrentDetails()
        self._permit = GuardPermit(start.guard_id, PermitKind.DRAIN)
        self._state = "awaiting-permit"
        self._drained_at: datetime | None = start.drained_at
        self._log = list(start.log)
        self._said: Note | None = None
        """A person's word: give it back, or do not drain it."""
        self._end: DrainEnd | None = None
        self._seen_at = workflow.now() if start.drained_at is not None else None
        """When the node was last seen drained by this drain."""
        self._forgotten = 0
        self._failed_checks = 0
        self._needs_person = False

    # Messages

    @workflow.signal(description="Give the node back, or do not drain it (Note: by, reason)")
    def release(self, payload: object = None, *_: object) -> None:
        """Records a person's word."""
        self._said = read(Note, payload) or Note()

    @workflow.signal(description="internal, sent by the guard: its answer (PermitDecision)")
    def permit_decided(self, payload: object = None, *_: object) -> None:
        """Records what the guard decided."""
        decision = read(PermitDecision, payload)
        if decision is not None and (line := self._permit.hear(decision)):
            self._note(line)

    @workflow.query(description="How the drain stands")
    def status(self) -> NodeDrainStatus:
        """How the drain stands."""
        start = self._start
        return NodeDrainStatus(
            drain_id=workflow.info().workflow_id,
            node=start.node,
            state=self._state,
            cause=start.cause,
            job=start.job,
            recovery_id=start.recovery_id,
            drained_at=self._drained_at,
            gate="" if self._permit.is_clear else self._permit.gate,
            reason=self._permit.reason,
            log=tuple(self._log),
            end=self._end,
        )

    # The life of a drain

    @workflow.run
    async def run(self, start: NodeDrainInput) -> NodeDrainResult:
        """Drains the node, and ends when it is relight's no more.

        Args:
            start: the node, on whose plan, and on which evidence.
        """
        self._enter(self._state)
        try:
            if self._drained_at is None:
                await self._drain()
            await self._keep()
        except _Over as over:
            end, text = over.end, over.text
        except asyncio.CancelledError:
            end, text = DrainEnd.WITHDRAWN, "the drain was cancelled in Temporal; the node stays as it is"
        self._end = end
        self._note(f"{end.value}: {text}")
        self._enter("ended")
        if self._drained_at is None:
            await self._tell(drained=False, text=f"{end.value}: {text}")
        await self._permit.give_back()
        return NodeDrainResult(
            node=start.node,
            end=end,
            text=text,
            drained_at=self._drained_at,
            released_at=workflow.now() if end is DrainEnd.RELEASED else None,
        )

    async def _drain(self) -> None:
        began = workflow.now()

        async def permitted() -> None:
            await self._await_permit(began)
            self._enter("draining")

        try:
            look = await self._change("drain_node", f"Drain {self._start.node} for everyone", permitted)
        except StepFailed as failed:
            raise _Over(DrainEnd.FAILED, failed.text) from failed
        if look.how is not NodeHow.OURS:
            raise _Over(DrainEnd.NOT_DRAINED, look.summary)
        self._drained_at, self._seen_at = look.at or workflow.now(), None
        await self._tell(drained=True, text=look.summary)

    async def _change(
        self, step: str, summary: str, before: Callable[[], Awaitable[None]] | None = None
    ) -> NodeLook:
        """Carries out a step that changes the node, and tries again as long as that may help.

        Args:
            step: its name.
            summary: what it does, for people.
            before: awaited before each try.

        Raises:
            StepFailed: it failed for good.
        """
        began = workflow.now()
        for tries in count(1):
            if before is not None:
                await before()
            try:
                look = await attempt(step, self._step(), NodeLook, summary=summary)
            except StepFailed as failed:
                self._note(f"{step}, try {tries}: {failed.text}")
                if not may_try_again(failed, tries, began):
                    raise
                await workflow.sleep(pause_after(tries), summary=clip(f"{step}: {failed.text}"))
                continue
            self._note(f"{step}: {look.summary}")
            return look
        raise AssertionError("count() does not end")

    async def _await_permit(self, began: datetime) -> None:
        """Until the guard lets it, nothing is paused, and no person said no."""
        permit = self._permit
        while not permit.is_clear or self._said is not None:
            if self._said is not None:
                raise _Over(DrainEnd.WITHDRAWN, f"by {_who(self._said)}")
            if permit.refused:
                raise _Over(DrainEnd.REFUSED, f"{permit.gate}: {permit.reason}")
            if workflow.now() - began >= FRESH:
                raise _Over(DrainEnd.EXPIRED, f"no permit within {FRESH}: {permit.gate}, {permit.reason}")
            known = permit.version
            if line := await permit.ask(self._request()):
                self._note(line)
            try:
                await workflow.wait_condition(
                    lambda known=known: permit.version != known or self._said is not None,  # type: ignore[misc]
                    timeout=min(permit.ask_again, FRESH - (workflow.now() - began)),
                    timeout_summary=clip(f"ask {permit.guard_id} for a permit again"),
                )
            except TimeoutError:
                continue

    async def _keep(self) -> None:
        """The node is drained: looks after it until it is given back. Ends by `_Over` only."""
        pause, next_check = LOOK_AT_ONCE, workflow.now()
        self._enter("draining")
        while True:
            if self._said is not None:
                await self._release(f"by {_who(self._said)}")
            look = await self._look()
            if look is not None and self._was_forgotten(look):
                await self._drain()
                pause = LOOK_AT_ONCE
                continue
            if look is not None:
                self._stands(look)
                if look.idle and self._state == "draining":
                    self._enter("drained")
                    self._note(look.summary)
                if look.idle and not self._needs_person and workflow.now() >= next_check:
                    next_check = workflow.now() + await self._check()
            await self._permit.renew(self._request())
            if workflow.info().is_continue_as_new_suggested() or (
                workflow.info().is_target_worker_deployment_version_changed()
            ):
                self._renew()
            wait = pause if self._needs_person or self._state == "draining" else next_check - workflow.now()
            try:
                await workflow.wait_condition(
                    lambda: self._said is not None,
                    timeout=max(timedelta(seconds=1), min(wait, LONGEST_LOOK)),
                    timeout_summary="next look at the node",
                )
            except TimeoutError:
                pause = min(pause * 2, LONGEST_LOOK)

    def _was_forgotten(self, look: NodeLook) -> bool:
        """The scheduler has lost the drain in a crash, and has to be told again."""
        if self._drained_at is None or self._forgotten >= MAX_FORGOTTEN:
            return False
        if not was_forgotten(look, self._drained_at, self._seen_at):
            return False
        self._forgotten += 1
        self._note("the scheduler was started again, and has forgotten the drain: it is told again")
        return True

    def _stands(self, look: NodeLook) -> None:
        """Ends where the node is relight's no more."""
        if look.how is NodeHow.FREE:
            raise _Over(DrainEnd.TAKEN_BACK, f"somebody gave it back: {look.summary}")
        if look.how is not NodeHow.OURS:
            raise _Over(DrainEnd.TAKEN_BACK, look.summary)
        self._seen_at = workflow.now()

    async def _look(self) -> NodeLook | None:
        """None: the scheduler does not tell."""
        try:
            return await poll(
                "look_at_node",
                self._step(),
                NodeLook,
                within=LOOK_WINDOW,
                summary=f"Look at {self._start.node}",
            )
        except StepFailed as failed:
            self._note(f"look_at_node: {failed.text}")
            return None

    async def _check(self) -> timedelta:
        """Has the site's commands run. Returns the time until they may run again."""
        self._enter("checking")
        try:
            check = await attempt(
                "check_node",
                self._step(),
                NodeCheck,
                summary=f"Mend and check {self._start.node} by the site's commands",
                one_try=CHECK,
            )
        except StepFailed as failed:
            check = NodeCheck(configured=True, summary=f"check_node failed: {failed.text}")
        self._note(f"check_node: {check.summary}")
        self._enter("drained")
        if check.passed and check.may_release:
            await self._release("its check passed")
        self._failed_checks += check.configured and not check.passed
        self._needs_person = check.passed or not check.configured or self._failed_checks >= check.most
        return timedelta(seconds=check.again_in_seconds)

    async def _release(self, why: str) -> None:
        self._enter("releasing")
        try:
            look = await self._change("release_node", f"Give {self._start.node} back")
        except StepFailed as failed:
            text = f"it could not be given back, and stays drained: {failed.text}"
            raise _Over(DrainEnd.FAILED, text) from failed
        # Just after a resume Slurm may show the node as not responding, until it has asked it again.
        if look.how in {NodeHow.FREE, NodeHow.LOST}:
            raise _Over(DrainEnd.RELEASED, why)
        raise _Over(DrainEnd.TAKEN_BACK, look.summary)

    def _renew(self) -> None:
        workflow.continue_as_new(
            self._start.model_copy(update={"drained_at": self._drained_at, "log": tuple(self._log)}),
            initial_versioning_behavior=ContinueAsNewVersioningBehavior.AUTO_UPGRADE
            if workflow.info().is_target_worker_deployment_version_changed()
            else None,
        )

    # Messages out

    def _step(self) -> NodeStep:
        start = self._start
        return NodeStep(
            node=start.node, recovery_id=start.recovery_id, cause=start.cause, because=start.because
        )

    def _request(self) -> PermitRequest:
        start = self._start
        return PermitRequest(
            holder=workflow.info().workflow_id,
            kind=PermitKind.DRAIN,
            nodes=(start.node,),
            partition=start.partition,
            user=start.user,
            job=start.job,
            cause=start.cause,
            evidence_at=start.evidence_at,
            lease=LEASE,
        )

    async def _tell(self, *, drained: bool, text: str) -> None:
        """Tells the recovery, which may have ended: then the word is here to read."""
        news = DrainNews(node=self._start.node, drained=drained, text=text)
        await tell(self._start.recovery_id, "drain_news", news)

    # What others see

    def _note(self, line: str) -> None:
        self._log = [*self._log, clean_text(line)][-MAX_LOG:]
        self._show()

    def _enter(self, state: str) -> None:
        self._state = state
        start = self._start
        pairs: list[SearchAttributePair[Any]] = [
            SearchAttributePair(CLUSTER, start.cluster),
            SearchAttributePair(JOB_ID, start.job.partition(".")[0]),
            SearchAttributePair(USER, start.user),
            SearchAttributePair(STATE, self._end.value if self._end else state),
            SearchAttributePair(CAUSE, start.cause.value),
            SearchAttributePair(NODES, [start.node]),
        ]
        show([pair for pair in pairs if pair.value])
        self._show()

    def _show(self) -> None:
        page = drain_details(self._start, self.status(), workflow.info().namespace)
        self._details.show(page)


def _who(note: Note) -> str:
    who = note.by or "somebody"
    return f"{who}: {note.reason}" if note.reason else who
