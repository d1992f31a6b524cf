"""What the sensor knows of one job, from look to look and from one life of the sensor to the next."""

from datetime import datetime, timedelta

from pydantic import BaseModel, Field

from relight.contracts import Attempt, JobInfo, Progress, UtcDatetime
from relight.diagnosis.findings import Finding
from relight.diagnosis.rhythm import Rhythm

MAX_PENDING = 200
"""Findings of one attempt that are kept until they are reported; more are only counted."""


class PendingFinding(BaseModel):
    """A finding that is not yet part of a report."""

    finding: Finding
    at: UtcDatetime
    """When it was read."""
    written_by: UtcDatetime
    """It happened no later than this."""
    historic: bool = False
    """It was in the log when the watch began: context, and no reason for a report by itself."""
    outlived: int = 0
    """How often training made progress after it: then it ended nothing."""


class Memory(BaseModel):
    """Saved as JSON after each look that changed it."""

    attempt: Attempt | None = None
    """The attempt that the scheduler told of last."""
    info: JobInfo | None = None
    """What the scheduler said last."""
    nodes: tuple[str, ...] = ()
    """The last allocation of the attempt, also after its end."""
    running_since: UtcDatetime | None = None
    """Since when the scheduler, whenever it was asked, said that the attempt runs; None: it does not."""
    began_at: UtcDatetime | None = None
    """When the attempt was first seen to run."""
    rhythm: Rhythm = Rhythm()
    loss: float | None = None
    step_file: str = ""
    pending: list[PendingFinding] = Field(default_factory=list)
    overflow: int = 0
    """Findings that were only counted."""
    started_told: bool = False
    end_told: bool = False
    progress_told_at: UtcDatetime | None = None
    silence_told: bool = False
    """The present silence was reported, or what explains it; progress takes it back."""
    hang_told: int = 0
    """How often the present silence was reported as a hang."""
    crashes_told: int = 0
    nodes_lost_told: tuple[str, ...] = ()
    requeue: "Requeue | None" = None

    @property
    def progress(self) -> Progress | None:
        """The furthest step of the attempt; None before the first one."""
        if self.rhythm.last is None:
            return None
        step, at = self.rhythm.last
        return Progress(step=step, at=at, interval=self.rhythm.interval, loss=self.loss)

    def begin_attempt(self, attempt: Attempt) -> None:
        """Forgets what belongs to the earlier attempt."""
        fresh = Memory(attempt=attempt, requeue=self.requeue)
        for name in type(self).model_fields:
            setattr(self, name, getattr(fresh, name))

    def keep(self, found: PendingFinding) -> None:
        """Keeps a finding until it is reported, up to a bound."""
        if len(self.pending) >= MAX_PENDING:
            self.overflow += 1
            # The first that end a rank tell most; of the others, the latest.
            lesser = next((i for i, p in enumerate(self.pending) if not p.finding.ends_rank), None)
            if lesser is None:
                return
            del self.pending[lesser]
        self.pending.append(found)

    def take_pending(self) -> list[PendingFinding]:
        """Takes all findings out, to report or to drop them."""
        taken, self.pending = self.pending, []
        return taken


class Requeue(BaseModel):
    """The job was requeued: perhaps by the scheduler, because a node was lost. The nodes will tell."""

    attempt: Attempt
    """The attempt that ended by it."""
    nodes: tuple[str, ...]
    """Its allocation."""
    progress: Progress | None
    seen_at: UtcDatetime

    def is_old(self, now: datetime, after: timedelta) -> bool:
        """The nodes had their time to be seen as lost."""
        return now - self.seen_at > after


Memory.model_rebuild()
