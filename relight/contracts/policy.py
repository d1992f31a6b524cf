"""What relight may do for a job, and how patient it is."""

import re
from datetime import timedelta
from enum import StrEnum

from pydantic import Field, field_validator, model_validator

from relight.contracts.base import CleanText, Model
from relight.contracts.cause import Cause


class CheckpointLayout(Model):
    """How a run arranges its checkpoints, where it is none of the layouts that are recognised."""

    name: str = "described"
    """What `relight checkpoints` calls it."""
    glob: str = Field(min_length=1, max_length=500)
    """Which directories or files are checkpoints, relative to the checkpoint directory: `run-*/save_*`."""
    step: str = r"(\d+)(?!.*\d)"
    """Regular expression searched in the name; its first group is the step. Default: the last number."""
    marker: str = ""
    """The file that is written last: a path within a checkpoint directory, or, for a checkpoint that is one
    file, what is appended to its name. Empty: there is none."""
    needs: tuple[str, ...] = ()
    """Globs within a checkpoint directory (`*` also matches `/`); something must match each of them."""

    @field_validator("step")
    @classmethod
    def _has_group(cls, value: str) -> str:
        try:
            groups = re.compile(value).groups
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        if groups < 1:
            raise ValueError("the regular expression needs a group for the step, such as (\\d+)")
        return value


class Steer(StrEnum):
    """How a job is led to the checkpoint that can be used, when it would load another one by itself."""

    LEAVE = "leave"
    """Not at all: a person is asked when the job's own choice cannot be used."""
    POINTER = "pointer"
    """By the framework's pointer file; its old content stays beside it."""
    MOVE_ASIDE = "move_aside"
    """By renaming the newer checkpoints that cannot be used; nothing is deleted."""
    ENVIRONMENT = "environment"
    """By `resume_variable`, with the checkpoint's path, in every restart: the job is submitted anew for it,
    since a scheduler does not change the environment of a job that it knows already."""


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_TAKEN = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "IFS", "ENV", "PWD", "TMPDIR", "CDPATH"}
)
_TAKEN_BEGINNINGS = (
    "LD_",
    "DYLD_",
    "LC_",
    "BASH",
    "PYTHON",
    "PERL",
    "SLURM",
    "SBATCH_",
    "SRUN_",
    "PMI",
    "OMPI_",
)
"""Names that decide what runs: those of the loader, the shell, interpreters, the scheduler and launchers."""


def variable_name(text: str) -> str:
    """The text, if it may name the variable in which a job is told its checkpoint.

    Raises:
        ValueError: it is no name of an environment variable, or one that already means something else.
    """
    if not _VARIABLE.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no name of an environment variable")
    if text.upper() in _TAKEN or text.upper().startswith(_TAKEN_BEGINNINGS):
        raise ValueError(f"{text} already decides what a job runs; choose a name such as RESUME_FROM")
    return text


class Then(StrEnum):
    """What to do when the new attempt did not resume as it should."""

    ACCEPT = "accept"
    """The recovery counts as resumed, and training goes on."""
    REPORT = "report"
    """The recovery counts as failed; the attempt is left alone, and another recovery may follow."""
    HOLD = "hold"
    """The attempt is ended, and the job held until a person looked at it."""


class MayAct(StrEnum):
    """Whether relight may act by itself, in act mode."""

    AUTOMATIC = "automatic"
    """Yes, when the evidence is good enough."""
    APPROVAL = "approval"
    """Only when a person approved the plan."""
    NEVER = "never"
    """Not at all, not even with an approval: it only tells."""


class OnExpiry(StrEnum):
    """What to do when nobody decided on a plan in time."""

    EXPIRE = "expire"
    """The recovery ends as `expired`, and the job is left alone."""
    PROCEED = "proceed"
    """In act mode silence counts as an approval. In observe mode it never does."""


class Isolation(StrEnum):
    """How far relight may go to keep jobs off a faulty node."""

    NONE = "none"
    """Not at all: the job may start on the same nodes again."""
    EXCLUDE = "exclude"
    """This job is kept off the node."""
    DRAIN = "drain"
    """The node is drained for everyone, where trusted evidence, enough signs and the guard allow it; else
    this job is kept off it."""


class CauseRule(Model):
    """What a policy says of one cause; None: what it says of all."""

    act: MayAct | None = None
    isolation: Isolation | None = None
    signs: int | None = Field(default=None, ge=0, le=5)
    signs_to_drain: int | None = Field(default=None, ge=1, le=5)
    retries_general: int | None = Field(default=None, ge=0)
    cool_down: timedelta | None = Field(default=None, ge=timedelta(0))


class Policy(Model):
    """A named policy. Times are durations; the defaults suit a large training job."""

    name: str = "default"
    settle: timedelta = timedelta(seconds=1.5)
    """How long anomalies of one cascade are collected before they become one diagnosis; shorter (1 s, 0.3 s)
    where a trusted source tells of the end or a node's fault, or where the job has been silent for long."""
    hang_floor: timedelta = timedelta(seconds=60)
    """No silence shorter than this is ever a hang."""
    hang_factor: float = Field(default=3.0, gt=1, allow_inf_nan=False)
    """A hang is suspected after this many learned step intervals, or `hang_floor` if that is longer."""
    start_floor: timedelta = timedelta(minutes=30)
    """How long the log of an attempt may be silent before its first step. An attempt whose start is known to
    take long (`hang_factor` times the longest earlier one) may be silent for longer; one whose start is known
    to be short is given ten times `hang_floor`. It is never less than `hang_floor`."""
    approval_deadline: timedelta = timedelta(hours=12)
    """How long a plan waits for people; then `on_expiry` says what happens."""
    on_expiry: OnExpiry = OnExpiry.EXPIRE
    """What happens when nobody decided in time."""
    approvals: int = Field(default=1, ge=1, le=2)
    """How many different people must approve a plan that needs an approval."""
    approvers: tuple[CleanText, ...] = Field(default=(), max_length=100)
    """Who may approve or reject, by name (`anna`; what follows an @ does not matter); empty: anybody."""
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
    act: MayAct = MayAct.AUTOMATIC
    """Whether relight may act by itself, in act mode."""
    isolation: Isolation = Isolation.DRAIN
    """How far it may go to keep jobs off a faulty node."""
    exclude_for: timedelta = Field(default=timedelta(days=7), gt=timedelta(0))
    """How long relight keeps this job off a node. The first restart after that lets it run there again."""
    signs: int = Field(default=1, ge=0, le=5)
    """So many independent sources must confirm a fault before relight restarts the job by itself."""
    signs_to_drain: int = Field(default=2, ge=1, le=5)
    """So many independent sources, the job's own log not counted, must confirm a node's fault before relight
    takes it away from everyone."""
    cool_down: timedelta = Field(default=timedelta(0), ge=timedelta(0))
    """After a recovery of the run, so much time must pass before relight acts by itself again."""
    causes: dict[Cause, CauseRule] = Field(default={})
    """Where it differs for a cause."""
    observe_only: tuple[str, ...] = Field(default=(), max_length=2000)
    """Detectors, signatures and Xids (`xid-79`) that only count: what they alone saw needs an approval."""
    retries_general: int = Field(default=3, ge=0)
    """Restarts for the same cause with no step gained, before relight stops."""
    retries_confirmation: int = Field(default=1, ge=0)
    """Restarts when the cause names the same replay-stable thing again (a code line, a data position)."""
    do_not_requeue: tuple[int, ...] = (93,)
    """Exit codes by which the job's own program asks not to be started again."""
    restart_elsewhere: tuple[int, ...] = (16,)
    """Exit codes by which the job's own program asks to be started on other nodes."""
    step_patterns: tuple[str, ...] = Field(default=(), max_length=10)
    """How the run prints its steps, where no built-in format does: regular expressions with a group `step`,
    and where they are there `loss`, `seconds`, `total`, `throughput`."""
    checkpoint_layout: CheckpointLayout | None = None
    """How the run arranges its checkpoints; None: recognised from the directory."""
    steer: Steer = Steer.LEAVE
    """How the job is led to the newest usable checkpoint, when it would load another one by itself."""
    resume_variable: str = ""
    """The environment variable in which the job expects the path of the checkpoint to load; for
    `steer = "environment"`. Empty: the job declared none."""
    on_from_scratch: Then = Then.REPORT
    """When the new attempt starts from scratch, although there was a checkpoint."""
    on_older_checkpoint: Then = Then.ACCEPT
    """When it resumes from an older checkpoint than the newest usable one."""
    on_divergence: Then = Then.REPORT
    """When its loss is no number, or far above what it was. The next recovery takes an earlier checkpoint."""
    on_unproductive: Then = Then.REPORT
    """When it does not pass the step that the failed attempt reached within `verify_window`."""
    loss_jump: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    """A loss this many times as high as before the fault, for several steps, is divergence; 0: none is."""
    grad_norm_jump: float = Field(default=10.0, ge=0, allow_inf_nan=False)
    """The same for the gradient norm."""

    @field_validator("step_patterns")
    @classmethod
    def _name_the_step(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            try:
                groups = re.compile(pattern).groupindex
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
            if "step" not in groups or len(pattern) > 500:
                raise ValueError(f"{pattern[:80]!r} needs a group (?P<step>\\d+) and at most 500 characters")
        return value

    @field_validator("resume_variable")
    @classmethod
    def _is_free(cls, value: str) -> str:
        return variable_name(value) if value else value

    @model_validator(mode="after")
    def _two_people_are_not_silence(self) -> "Policy":
        if self.approvals > len(self.approvers) > 0:
            raise ValueError(
                f"approvers names {len(self.approvers)}, but approvals = {self.approvals} must agree"
            )
        if self.approvals > 1 and self.on_expiry is OnExpiry.PROCEED:
            raise ValueError(
                "approvals = 2 and on_expiry = proceed contradict each other: nobody would have agreed"
            )
        return self

    def for_cause(self, cause: Cause) -> "Policy":
        """This policy as it is for one cause."""
        rule = self.causes.get(cause)
        if rule is None:
            return self
        return self.model_copy(update=rule.model_dump(exclude_none=True))
