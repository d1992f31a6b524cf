"""Jobs, attempts and nodes, as the scheduler knows them and as relight watches them."""

from datetime import timedelta
from enum import StrEnum

from pydantic import Field

from relight.contracts.base import CleanText, Model, UtcDatetime
from relight.contracts.policy import Policy


class Mode(StrEnum):
    """What relight may do by itself. `observe` mutates nothing unless a person approves that plan."""

    OBSERVE = "observe"
    ACT = "act"


class JobState(StrEnum):
    """A job's base state, by Slurm's names (squeue(1), "JOB STATE CODES")."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    COMPLETING = "COMPLETING"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    UNKNOWN = "UNKNOWN"

    @property
    def is_over(self) -> bool:
        """The attempt has ended (its nodes may still be completing)."""
        return self in _OVER

    @property
    def is_failure(self) -> bool:
        """The attempt ended by a fault, not because somebody or a limit ended it."""
        return self in _FAILURES


_FAILURES = {JobState.FAILED, JobState.NODE_FAIL, JobState.BOOT_FAIL, JobState.OUT_OF_MEMORY}
_OVER = _FAILURES | {
    JobState.COMPLETED,
    JobState.CANCELLED,
    JobState.TIMEOUT,
    JobState.PREEMPTED,
    JobState.DEADLINE,
}


class Attempt(Model):
    """One execution of a job.

    Slurm reuses job ids, and a requeue changes a job's submit time (seen on 22.05 and 25.11), so an attempt
    is the job id, the restart count and the submit time together.
    """

    cluster: str
    job_id: str
    submit_time: UtcDatetime
    restart_count: int = Field(ge=0)

    def same_execution(self, other: "Attempt") -> bool:
        """Both name the same execution of the same job."""
        return self == other

    @property
    def label(self) -> str:
        """Short and readable: `4243.1` is the second attempt of job 4243."""
        return f"{self.job_id}.{self.restart_count}"


class JobInfo(Model):
    """What the scheduler says of one job, at one moment. Field names follow Slurm's."""

    job_id: str
    name: str = ""
    user: str = ""
    partition: str = ""
    account: str = ""
    """The account that is charged; empty where the scheduler has none."""
    state: JobState
    flags: tuple[str, ...] = ()
    """State flags beside the base state: COMPLETING, REQUEUED, CONFIGURING and so on."""
    reason: CleanText = ""
    restart_count: int = 0
    submit_time: UtcDatetime
    start_time: UtcDatetime | None = None
    end_time: UtcDatetime | None = None
    eligible_time: UtcDatetime | None = None
    time_limit: timedelta | None = None
    """None: no limit."""
    nodes: tuple[str, ...] = ()
    """The allocation, expanded; after the end, the nodes it ran on."""
    excluded_nodes: tuple[str, ...] = ()
    num_nodes: int = 0
    num_tasks: int = 0
    tasks_per_node: int | None = None
    gpus: int | None = None
    """GPUs of the allocation; None where the scheduler does not say."""
    held: bool = False
    """It will not start until released (priority 0)."""
    requeueable: bool = True
    is_batch: bool = True
    exit_code: int | None = None
    exit_signal: int | None = None
    std_out: str = ""
    """Expanded: no filename patterns left."""
    std_err: str = ""
    work_dir: str = ""
    comment: str = ""

    @property
    def completing(self) -> bool:
        """Processes of the last attempt may still be on its nodes."""
        return self.state is JobState.COMPLETING or "COMPLETING" in self.flags

    def attempt(self, cluster: str) -> Attempt:
        """The attempt this job is in now."""
        return Attempt(
            cluster=cluster,
            job_id=self.job_id,
            submit_time=self.submit_time,
            restart_count=self.restart_count,
        )


class NodeInfo(Model):
    """What the scheduler says of one node."""

    name: str
    state: str
    """Base state by Slurm's names: IDLE, ALLOCATED, MIXED, DOWN, ..."""
    flags: tuple[str, ...] = ()
    """DRAIN, NOT_RESPONDING, COMPLETING, FAIL, ..."""
    reason: CleanText = ""
    reason_user: str = ""

    @property
    def is_lost(self) -> bool:
        """Down, failed or not responding: no process on it can be counted on."""
        return self.state in {"DOWN", "FAIL", "FAILING", "ERROR"} or "NOT_RESPONDING" in self.flags

    @property
    def is_drained(self) -> bool:
        """It takes no new job (draining or drained)."""
        return "DRAIN" in self.flags


class TrainingJob(Model):
    """A training job that relight watches: who, what, where, and what relight may do about it."""

    cluster: str
    run: str
    """Logical name of the training run; it outlives attempts and job ids."""
    attempt: Attempt
    user: str = ""
    partition: str = ""
    account: str = ""
    nodes: tuple[str, ...] = ()
    tasks_per_node: int | None = None
    log_paths: tuple[str, ...] = ()
    """Absolute file names or globs."""
    checkpoint_dir: str | None = None
    policy: Policy = Policy()
    mode: Mode = Mode.OBSERVE
    patience: float = Field(default=1.0, ge=1)
    """Factor on the silence that is allowed: it grows when a suspected hang turns out to be none."""
    opted_in: bool = False
    """Its own user named the files, in the job's comment: only files of that user are read."""
    simulated: bool = False
    """`relight simulate` made it to break it: figures about real jobs leave it out."""
