"""What the sensor knows of one job, from look to look and from one life of the sensor to the next."""

from datetime import datetime, timedelta

from pydantic import BaseModel, Field

from relight.contracts import Attempt, JobInfo, Progress, UtcDatetime
from relight.diagnosis.trail import Trail


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
    trail: Trail = Field(default_factory=lambda: Trail(live=True))
    """What the logs of the attempt said."""
    step_written: UtcDatetime | None = None
    """By when the last step was written, if nobody looked then; None: `trail` has when it came."""
    ended_at: UtcDatetime | None = None
    """When the scheduler was first heard to say that the attempt is over."""
    started_told: bool = False
    end_told: bool = False
    launch_told: bool = False
    """That the scheduler could not start the attempt was reported."""
    progress_told_at: UtcDatetime | None = None
    silence_told: bool = False
    """The present silence was reported, or what explains it; progress takes it back."""
    hang_told: int = 0
    """How often the present silence was reported as a hang."""
    crashes_told: int = 0
    course_told: bool = False
    """That training goes wrong or slowly was reported."""
    nodes_lost_told: tuple[str, ...] = ()
    requeue: "Requeue | None" = None

    @property
    def progress(self) -> Progress | None:
        """The furthest step of the attempt, with the time by which it was made; None before the first one.

        Silence is counted from when the step was *read* (`trail`): what was written while nobody looked, by
        the clock of a file server, is too weak a reason to call it a hang. But it tells when one began.
        """
        progress = self.trail.progress()
        if progress is None or self.step_written is None:
            return progress
        return progress.model_copy(update={"at": min(progress.at, self.step_written)})

    def begin_attempt(self, attempt: Attempt) -> None:
        """Forgets what belongs to the earlier attempt."""
        fresh = Memory(attempt=attempt, requeue=self.requeue)
        for name in type(self).model_fields:
            setattr(self, name, getattr(fresh, name))


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
