"""What the sensor knows of one job, from look to look and from one life of the sensor to the next."""

from datetime import datetime, timedelta
from statistics import median

from pydantic import BaseModel, Field

from relight.contracts import Attempt, JobInfo, Progress, UtcDatetime
from relight.diagnosis.trail import Trail

MAX_STARTUPS = 8
"""Earlier starts that are remembered: a run that changes should not be judged by what it was."""


class Startup(BaseModel):
    """How an earlier attempt of the run came to its first step."""

    took: timedelta
    """From when it began to run."""
    resumed: bool
    """It went on from a checkpoint: its steps did not begin at the beginning."""


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
    """When the attempt began to run, as the scheduler says."""
    written_at: UtcDatetime | None = None
    """When something new was last seen in a log of the attempt, as long as it has made no step."""
    first_step: int | None = None
    first_step_at: UtcDatetime | None = None
    """The first step of the attempt, if it was seen when it was made."""
    startups: tuple[Startup, ...] = ()
    """How long the starts of earlier attempts took, as far as that was seen; the last one last."""
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

    def startup(self) -> Startup | None:
        """How long the attempt took to its first step; None: it made none, or nobody saw it begin.

        Training that starts from scratch prints its first step within one printing interval of 0; with one
        step alone that cannot be told, and counts as from scratch.
        """
        if self.first_step is None or self.first_step_at is None or self.began_at is None:
            return None
        strides = self.trail.rhythm.strides
        return Startup(
            took=max(timedelta(0), self.first_step_at - self.began_at),
            resumed=bool(strides) and self.first_step > median(strides),
        )

    def begin_attempt(self, attempt: Attempt) -> None:
        """Forgets what belongs to the earlier attempt."""
        startup = self.startup()
        startups = (*self.startups, *([startup] if startup is not None else []))[-MAX_STARTUPS:]
        fresh = Memory(attempt=attempt, requeue=self.requeue, startups=startups)
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
