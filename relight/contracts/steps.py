"""Inputs and results of the runbook's activities: one pair for each step.

Every input names the attempt that the step expects to find. A mutating step that finds another one touches
nothing and says so with the error type `AttemptChanged`.
"""

from collections.abc import Mapping

from pydantic import model_validator

from relight.contracts.anomaly import Anomaly, Diagnosis, Evidence, Progress
from relight.contracts.base import CleanText, Model, UtcDatetime
from relight.contracts.commands import CommandGiven
from relight.contracts.job import Attempt, JobInfo, TrainingJob
from relight.contracts.outcome import CheckpointRef, RecoveryOutcome

# Error types of `ApplicationError`s that activities raise. Matched as strings by Temporal's retry policies.
NOT_YET = "NotYet"
"""A poll whose time has not come; benign, retried until the step's deadline."""
ATTEMPT_CHANGED = "AttemptChanged"
"""The job is no longer in the attempt that the step expects: the recovery steps back (`abandoned`)."""
REFUSED = "Refused"
"""The scheduler refused for good (permission, invalid request): retrying cannot help."""
UNREACHABLE = "SchedulerUnreachable"
"""The scheduler did not answer; retried."""
RESUME_FAILED = "ResumeFailed"
"""The new attempt ended before it passed the step; details carry a `VerifyResult`."""
TOO_FEW_NODES = "TooFewNodes"
"""The exclusion would leave the job too few nodes to start."""
NO_CHECKPOINT = "NoUsableCheckpoint"


class Observation(Model):
    """One independent source's answer while confirming a fault."""

    source: str
    verdict: str
    """`confirms`, `refutes`, `unknown`, `not available`, or `told`: it is part of the diagnosis already."""
    text: str
    evidence: tuple[Evidence, ...] = ()


class ConfirmInput(Model):
    """Input of `confirm_fault`."""

    job: TrainingJob
    diagnosis: Diagnosis


class ConfirmResult(Model):
    """Result of `confirm_fault`."""

    verdict: str
    """`confirmed`, `refuted` or `inconclusive`."""
    summary: str
    observations: tuple[Observation, ...] = ()
    job_info: JobInfo | None = None
    """What the scheduler said of the job, when it could be asked."""
    progress: Progress | None = None
    nodes_lost: tuple[str, ...] = ()
    partition_nodes: int | None = None
    """How many nodes the job's partition has, of a confirmed fault; None: nobody said."""


class IsolateInput(Model):
    """Input of `isolate_nodes`: which nodes the job shall not run on again."""

    job: TrainingJob
    attempt: Attempt
    nodes: tuple[str, ...]
    readmitted: tuple[str, ...] = ()
    """Nodes that relight excluded so long ago that the job may run there again, unless `nodes` names them."""
    recovery_id: str


class IsolateResult(Model):
    """Result of `isolate_nodes`."""

    excluded_nodes: tuple[str, ...]
    """The whole exclusion list of the next attempt, what the job's owner excluded included."""
    added: tuple[str, ...] = ()
    """Those of them that were not on the job's list before: relight's own, which it will let in again."""
    dropped: tuple[str, ...] = ()
    """Names that the scheduler does not know."""
    summary: str = ""


class DrainInput(Model):
    """Input of `drain_job`: takes the old attempt off its nodes."""

    job: TrainingJob
    attempt: Attempt
    recovery_id: str
    reason: str
    tries: int = 0
    """How often this recovery tried before: only then can a requeued job be its own doing."""
    adopt: bool = False
    """The scheduler may have requeued the job by itself (node failure): take that attempt over, if it is
    still pending, instead of stepping back."""


class DrainResult(Model):
    """Result of `drain_job`."""

    how: str
    """`requeue-held`, `already requeue-held`, `already held` (by the scheduler, which could not start it),
    `adopted` (the scheduler had requeued it; now held), `running` (adopted too late: it already runs again),
    or `resubmit` where the scheduler cannot requeue this job."""
    accepted_at: UtcDatetime | None = None
    """When the scheduler accepted the command."""
    attempt: Attempt
    """The attempt the job is in now (held), or still the old one for `resubmit`."""
    summary: str = ""
    commands: tuple[CommandGiven, ...] = ()
    """The changing commands that this try gave to the scheduler, in order."""


class NodesFreeInput(Model):
    """Input of `wait_nodes_free`, the polling half of `drain_job`."""

    job: TrainingJob
    attempt: Attempt
    nodes: tuple[str, ...]


class LocateInput(Model):
    """Input of `locate_checkpoint`."""

    job: TrainingJob
    diverged_from: CheckpointRef | None = None
    """Training diverged after it resumed from this one: only earlier ones can be used."""


class RejectedCheckpoint(Model):
    """A checkpoint that must not be used, and why."""

    name: str
    step: int | None = None
    state: str
    reason: str


class LocateResult(Model):
    """Result of `locate_checkpoint`."""

    name: str | None
    """Newest usable checkpoint, relative to the directory; None when there is none."""
    step: int | None = None
    layout: str = ""
    rejected: tuple[RejectedCheckpoint, ...] = ()
    pointer: str | None = None
    empty: bool = False
    """No checkpoint at all, good or bad: the job starts from scratch."""
    summary: str = ""
    own: str | None = None
    """What the job would load by itself, where that is another checkpoint than `name`."""
    own_problem: str = ""
    """Why `own` cannot be used; empty when it can (it is only older)."""
    cannot_steer: str = ""
    """Why the job cannot be led to `name` by the policy's way; empty when it can, or need not."""


class SteerInput(Model):
    """Input of `steer_checkpoint`: leads the job to a checkpoint, as `job.policy.steer` says."""

    job: TrainingJob
    attempt: Attempt
    """The held attempt, or the ended one that will be submitted anew."""
    recovery_id: str
    checkpoint: CheckpointRef
    """The newest usable one."""
    diverged_from: CheckpointRef | None = None
    tries: int = 0


class SteerResult(Model):
    """Result of `steer_checkpoint`."""

    changed: tuple[str, ...] = ()
    """What was changed under the checkpoint directory, by this try or an earlier one: `old -> new`."""
    summary: str = ""


class LogMark(Model):
    """How far a log had been written when the job was resubmitted."""

    path: str
    inode: int
    size: int
    tail_hash: str = ""
    """Hash of the bytes just before `size`: tells a truncated and rewritten file from an appended one."""


class ResubmitInput(Model):
    """Input of `resubmit`."""

    job: TrainingJob
    attempt: Attempt
    """The held attempt."""
    failed_attempt: Attempt
    how: str
    excluded_nodes: tuple[str, ...] = ()
    readmitted: tuple[str, ...] = ()
    """Nodes to take off the job's own list, unless `excluded_nodes` names them."""
    environment: Mapping[str, str] = {}
    """Variables that the next attempt needs: the job is submitted anew with them, also where it is held."""
    recovery_id: str
    tries: int = 0


class ResubmitResult(Model):
    """Result of `resubmit`."""

    attempt: Attempt
    accepted_at: UtcDatetime | None = None
    log_marks: tuple[LogMark, ...] = ()
    added: tuple[str, ...] = ()
    """Nodes that were not on the job's exclusion list before this try, and are now."""
    summary: str = ""
    commands: tuple[CommandGiven, ...] = ()
    """The changing commands that this try gave to the scheduler, in order."""


class VerifyInput(Model):
    """Input of `verify_running` and `verify_resume`."""

    job: TrainingJob
    attempt: Attempt
    excluded_nodes: tuple[str, ...] = ()
    log_marks: tuple[LogMark, ...] = ()
    failed_at: int | None = None
    """The last step of the failed attempt; None if it never printed one (then any step proves progress)."""
    resumable_from: int | None = None
    """The step of the newest usable checkpoint."""
    checkpoint: str | None = None
    """Its name."""
    failed_loss: float | None = None
    """The last loss before the fault that a sensor saw."""


class RunningResult(Model):
    """Result of `verify_running`: the new attempt runs."""

    attempt: Attempt
    nodes: tuple[str, ...]
    started_at: UtcDatetime
    summary: str = ""


class VerifyResult(Model):
    """Result of `verify_resume`."""

    verdict: str
    """`resumed`, `from_scratch`, `older_checkpoint`, `diverged`, `ended` or `too_slow`."""
    first_step: int | None = None
    passed_step: int | None = None
    """The furthest step seen; of one that diverged, the last one before that."""
    loaded: str = ""
    """The checkpoint that the new attempt says it loaded."""
    loaded_step: int | None = None
    at: UtcDatetime | None = None
    """When the step that proves it was seen."""
    summary: str = ""


class HoldInput(Model):
    """Input of `hold_job`: leaves the job held, with a reason a person can read."""

    job: TrainingJob
    attempt: Attempt
    recovery_id: str
    reason: str


class HoldResult(Model):
    """Result of `hold_job`."""

    summary: str = ""
    commands: tuple[CommandGiven, ...] = ()
    """The changing commands that this try gave to the scheduler, in order."""

    @model_validator(mode="before")
    @classmethod
    def _was_a_text(cls, value: object) -> object:
        """Earlier versions returned the summary alone; histories hold such results."""
        return {"summary": value} if isinstance(value, str) else value


class ArchiveInput(Model):
    """Input of `archive_recovery`: a recovery whose outcome is known, while its workflow still runs."""

    recovery_id: str
    run_id: str
    outcome: RecoveryOutcome
    ended: UtcDatetime


class PollInput(Model):
    """Input of `look_at_job`, the monitor's own look at the scheduler."""

    job: TrainingJob


class BadCheckpoint(Model):
    """A checkpoint that cannot be used, and is not being written now."""

    name: str
    state: str
    """incomplete or corrupt."""
    reason: CleanText = ""
    modified_at: UtcDatetime | None = None


class CheckpointLook(Model):
    """What a look into the checkpoint directory of a running job found."""

    directory: CleanText = ""
    saved_at: UtcDatetime | None = None
    """When the newest usable one was last written to; None: there is none."""
    bad: tuple[BadCheckpoint, ...] = ()
    """Those newer than the newest usable one that cannot be used, newest first."""


class PollResult(Model):
    """Result of `look_at_job`."""

    known: bool | None
    """None: the scheduler did not answer. False: it says that it knows no such job."""
    info: JobInfo | None = None
    anomaly: Anomaly | None = None
    """A fault that the look itself found."""
    checkpoints: CheckpointLook | None = None
    """None: the job does not run, has no directory that is known, or it could not be looked at."""
    text: str = ""
