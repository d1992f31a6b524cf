"""How a recovery ended, and when each thing happened."""

from datetime import timedelta
from enum import StrEnum

from relight.contracts.anomaly import Symptom
from relight.contracts.base import Model, UtcDatetime
from relight.contracts.cause import Cause
from relight.contracts.job import Attempt
from relight.contracts.plan import Action


class Outcome(StrEnum):
    """How a recovery ended."""

    RESUMED = "resumed"
    """Training passed the step it failed at."""
    FAILED_AGAIN = "failed_again"
    """Restarted, but the new attempt ended or did not pass the step; a next recovery may follow."""
    HELD = "held"
    """The job is held, with a reason a person can read."""
    STOPPED = "stopped"
    """Policy says that another restart would not help."""
    ABANDONED = "abandoned"
    """Somebody or something else changed the job meanwhile; relight stepped back."""
    REFUTED = "refuted"
    """The fault was not confirmed."""
    REJECTED = "rejected"
    """A person said no."""
    EXPIRED = "expired"
    """Nobody decided in time."""


class Timeline(Model):
    """When each thing happened; None where it did not."""

    occurred: UtcDatetime | None = None
    detected: UtcDatetime | None = None
    confirmed: UtcDatetime | None = None
    approved: UtcDatetime | None = None
    acted: UtcDatetime | None = None
    """The scheduler accepted the first mutating command."""
    running: UtcDatetime | None = None
    productive: UtcDatetime | None = None
    """Training passed the step it failed at."""


class CheckpointRef(Model):
    """Names a checkpoint of a run."""

    name: str = ""
    """Relative to the checkpoint directory; empty where only the step is known."""
    step: int | None = None


class RecoveryOutcome(Model):
    """The result of a `RecoveryWorkflow`."""

    recovery_id: str
    outcome: Outcome
    reason: str = ""
    symptom: Symptom = Symptom.NONE
    cause: Cause = Cause.UNKNOWN
    action: Action = Action.NONE
    attempt: Attempt
    """The attempt that failed."""
    new_attempt: Attempt | None = None
    excluded_nodes: tuple[str, ...] = ()
    newly_excluded: tuple[str, ...] = ()
    """Nodes that this recovery put on the job's exclusion list; its owner had not."""
    readmitted_nodes: tuple[str, ...] = ()
    """Nodes that it took off that list: relight had excluded them long enough ago."""
    drained_nodes: tuple[str, ...] = ()
    """Nodes that had been drained for everyone, on this recovery's plan, by its end."""
    times: Timeline = Timeline()
    lost_from_step: int | None = None
    resumed_at_step: int | None = None
    gpu_hours_lost: float | None = None
    """GPU hours in which the job gained no step: from the fault until it was past the failed step, or what
    that comes to if the recovery ended before. None where the GPUs or the times are not known."""
    approved_by: str = ""
    root_key: str = ""
    steps_replayed: int | None = None
    """Steps that had to be trained again; None where it is not known where training resumed."""
    verdict: str = ""
    """What the proof of resume said (`VerifyResult.verdict`); empty where it did not come to that."""
    diverged_from: CheckpointRef | None = None
    """Training diverged after it resumed here: the next recovery takes an earlier checkpoint."""
    where: tuple[str, ...] = ()
    """The nodes on which it went wrong, suspected or not."""

    @property
    def steps_lost(self) -> int | None:
        """Steps that had to be trained again."""
        if self.lost_from_step is None or self.resumed_at_step is None:
            return None
        return max(0, self.lost_from_step - self.resumed_at_step)

    @property
    def downtime(self) -> timedelta | None:
        """From the fault until training was past it."""
        if self.times.occurred is None or self.times.productive is None:
            return None
        return self.times.productive - self.times.occurred
