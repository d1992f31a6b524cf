"""A holder's side of the cluster's guard: asks for a permit, takes the answer in, gives the permit back."""

from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from relight.contracts import Diagnosis, Model, TrainingJob
    from relight.contracts.guard import (
        MAX_DRAIN_NODES,
        NodeReport,
        PermitDecision,
        PermitKind,
        PermitRelease,
        PermitRequest,
    )
    from relight.contracts.steps import ConfirmResult
    from relight.policy.guard import PAUSED
    from workflows.details import code
    from workflows.signals import tell

ASK_AGAIN = timedelta(minutes=1)
"""After which time a recovery that waits asks again: a guard that was started anew knows nothing of it."""
LONGEST = timedelta(minutes=15)
"""The time doubles up to this: a pause may last for days, and each question makes the history longer."""
NO_GUARD = timedelta(seconds=5)
"""The same for a guard that does not run, up to `ASK_AGAIN`: most likely a worker is about to start it."""
OBSERVES = "the whole cluster observes now: a person must approve what is to be changed"
MISSING = "guard"
"""The gate of a guard that does not run."""
SLACK = timedelta(hours=8)
"""Part of the lease beyond the windows of the policy: a scheduler that is away for hours uses up neither."""


class GuardPermit:
    """The permit of one recovery, or of one drain. Without a guard to ask, it counts as granted."""

    def __init__(self, guard_id: str, kind: PermitKind = PermitKind.RECOVERY) -> None:
        self.guard_id = guard_id
        self.kind = kind
        self.granted = not guard_id
        self.refused = False
        self.paused = False
        """The cluster is paused, permit or not."""
        self.observes = False
        """The cluster observes: every plan needs a person's approval."""
        self.gate = ""
        self.reason = ""
        self.version = 0
        """Counts the answers that changed something."""
        self._asked: datetime | None = None
        self._asks = 0
        """Questions since the last answer that changed something."""
        self._first_asked: datetime | None = None
        self._was_granted = False

    @property
    def is_clear(self) -> bool:
        """The next change may be made, as far as the guard is concerned."""
        return self.granted and not self.paused

    @property
    def waits(self) -> bool:
        """Something keeps it waiting, and people should see what."""
        return not self.is_clear and bool(self.reason)

    @property
    def ask_again(self) -> timedelta:
        """The time between two questions."""
        first, longest = (NO_GUARD, ASK_AGAIN) if self.gate == MISSING else (ASK_AGAIN, LONGEST)
        doubled: int = 2 ** min(max(self._asks - 1, 0), 10)
        return min(first * doubled, longest)

    def is_overdue(self, patience: timedelta) -> bool:
        """It has waited for longer than this. A pause does not count: a person wants it, and ends it."""
        if self._was_granted or self._first_asked is None or self.gate == PAUSED:
            return False
        return workflow.now() - self._first_asked >= patience

    def status(self) -> dict[str, Any]:
        """The fields of a `RecoveryStatus` that are about the permit."""
        word = "granted" if self.granted else "refused" if self.refused else "waiting"
        asked = self.guard_id and (self._asked is not None or self._was_granted)
        return {
            "guard_id": self.guard_id,
            "permit": word if asked else "",
            "permit_gate": self.gate,
            "permit_reason": self.reason,
            "cluster_paused": self.paused,
            "cluster_observes": self.observes,
        }

    def headline(self) -> str:
        """What it waits for, in Markdown, and where to look."""
        return f"waits for a permit: {code(f'{self.gate}, {self.reason}')} (`relight guard`)"

    def hear(self, decision: PermitDecision) -> str:
        """Takes an answer in. Returns a line for the log; empty if it says nothing new."""
        if decision.kind is not self.kind or not self.guard_id:
            return ""
        paused = decision.granted and decision.paused
        refused = not (decision.granted or decision.waits)
        news = (decision.granted, refused, paused, decision.gate, decision.reason)
        known = (self.granted, self.refused, self.paused, self.gate, self.reason)
        if news == known and decision.observe is self.observes:
            return ""
        was_paused, observed = self.paused, self.observes
        self.granted, self.refused, self.paused, self.gate, self.reason = news
        self.observes = decision.observe
        self._was_granted = self._was_granted or self.granted
        self.version += 1
        self._asks = 1
        if self.observes is not observed:
            return OBSERVES if self.observes else "the cluster does not observe any more"
        if paused:
            return f"nothing may be changed now: {self.gate}, {self.reason}"
        if self.granted:
            return "changes may be made again" if was_paused else "the guard gave a permit"
        if refused:
            return f"the guard refuses a permit: {self.gate}, {self.reason}"
        return f"waits for a permit: {self.gate}, {self.reason}"

    async def ask(self, request: PermitRequest) -> str:
        """Asks, if it was not asked lately. Returns a line for the log, or an empty one."""
        now = workflow.now()
        if self._asked is not None and now - self._asked < self.ask_again:
            return ""
        self._asked = now
        self._asks += 1
        self._first_asked = self._first_asked or now
        if await self._signal("request_permit", request) or self.waits:
            return ""
        self.gate = MISSING
        self.reason = f"{self.guard_id} does not run; a worker starts it"
        self.version += 1
        return f"waits for a permit: {self.reason}"

    async def report(
        self, job: TrainingJob, diagnosis: Diagnosis, nodes: tuple[str, ...], confirmation: ConfirmResult
    ) -> None:
        """Tells the guard which nodes are implicated, and apart those that only the job's log speaks of."""
        if not self.guard_id:
            return
        sure = {e.node for e in diagnosis.evidence if e.trust} | set(confirmation.nodes_lost)
        for trusted in (True, False):
            named = tuple(node for node in nodes if (node in sure) is trusted)[:MAX_DRAIN_NODES]
            if not named:
                continue
            report = NodeReport(
                nodes=named,
                cause=diagnosis.cause,
                at=diagnosis.occurred_at,
                partition=job.partition,
                partition_nodes=confirmation.partition_nodes,
                job=job.attempt.job_id,
                evidence=next((e.text for e in diagnosis.evidence if e.trust is trusted), ""),
                trusted=trusted,
            )
            await self._signal("report_node", report)

    async def give_back(self) -> None:
        """Gives the permit back, or the place in the queue. Nothing happens where none was asked for."""
        if self._asked is not None:
            release = PermitRelease(holder=workflow.info().workflow_id, kind=self.kind)
            await self._signal("release_permit", release)

    async def renew(self, request: PermitRequest) -> None:
        """Tells the guard that the permit is still needed."""
        if self.guard_id:
            await self._signal("request_permit", request)

    async def _signal(self, name: str, message: Model) -> bool:
        return await tell(self.guard_id, name, message)


def for_recovery(job: TrainingJob, diagnosis: Diagnosis) -> PermitRequest:
    """What the recovery that runs here asks for."""
    policy = job.policy
    return PermitRequest(
        holder=workflow.info().workflow_id,
        partition=job.partition,
        user=job.user,
        job=job.attempt.label,
        cause=diagnosis.cause,
        evidence_at=diagnosis.occurred_at,
        lease=policy.drain_window + policy.queue_window + policy.verify_window + SLACK,
    )
