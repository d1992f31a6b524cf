"""What relight may do for a job, and how patient it is."""

from datetime import timedelta

from pydantic import Field

from relight.contracts.base import Model


class Policy(Model):
    """A named policy. Times are durations; the defaults suit a large training job."""

    name: str = "default"
    settle: timedelta = timedelta(seconds=3)
    """How long anomalies of one cascade are collected before they become one diagnosis."""
    hang_floor: timedelta = timedelta(seconds=60)
    """No silence shorter than this is ever a hang."""
    hang_factor: float = Field(default=3.0, gt=1)
    """A hang is suspected after this many learned step intervals, or `hang_floor` if that is longer."""
    approval_deadline: timedelta = timedelta(hours=12)
    """How long a plan waits for a person; then the recovery ends as `expired`."""
    confirm_window: timedelta = timedelta(seconds=60)
    """How long `confirm_fault` keeps asking before it says `inconclusive`."""
    drain_window: timedelta = timedelta(minutes=10)
    """How long the old attempt may take to leave its nodes."""
    queue_window: timedelta = timedelta(hours=6)
    """How long the resubmitted job may wait in the queue."""
    verify_window: timedelta = timedelta(minutes=30)
    """How long training may take, from running, to pass the step it failed at."""
    poll: timedelta = timedelta(minutes=5)
    """The monitor's own look at the scheduler, in case a sensor missed something."""
    retries_general: int = Field(default=3, ge=0)
    """Restarts for the same cause with no step gained, before relight stops."""
    retries_confirmation: int = Field(default=1, ge=0)
    """Restarts when the cause names the same replay-stable thing again (a code line, a data position)."""
