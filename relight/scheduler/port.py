"""The port `Scheduler`: all that relight reads from and writes to a scheduler, and how that can fail.

Adapters: `slurm_cli` (Slurm's own commands), `slurm_pyslurm` (pyslurm, where it matches the cluster) and
`local` (an embedded scheduler for the demo and laptops). All pass the contract tests in
`tests/relight/scheduler/`.

An empty or failed answer means *unknown*, never "the job is gone": only `NoSuchJob`, the scheduler's own
explicit word, means that.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

from relight.contracts import JobInfo, Model, NodeInfo
from relight.errors import WrongRequestError


class SchedulerError(Exception):
    """A scheduler operation failed. The message says what was asked, what came back, and what to do.

    `retryable` tells a passing trouble from a refusal.
    """

    retryable = False


class SchedulerUnreachable(SchedulerError):
    """No answer, a timeout, or an answer that cannot be read. Nothing may be concluded from it."""

    retryable = True


class NoSuchJob(SchedulerError):
    """The scheduler says that it knows no such job (it may have been purged after its end)."""


class NoSuchNode(SchedulerError):
    """The scheduler says that it knows no such node."""


class NotPermitted(SchedulerError):
    """The scheduler refuses this user."""


class InvalidRequest(SchedulerError):
    """The scheduler refuses the request as such, or in the job's present state."""


class NoSuchName(InvalidRequest, WrongRequestError):
    """What should name a job or a node can be no name of one; the scheduler is not asked."""


class NotSupported(SchedulerError):
    """This scheduler, version or configuration cannot do it."""


class SchedulerVersion(Model):
    """Who answers."""

    name: str
    """`slurm` or `local`."""
    version: str
    cluster: str


class SubmitRequest(Model):
    """A job to submit. Each field goes to the scheduler as one argument, never through a shell."""

    script: str
    name: str = "train"
    user: str = ""
    """Submit as this user; empty: as oneself. Another user needs the right to do so."""
    partition: str = ""
    nodes: int = 1
    tasks_per_node: int = 1
    work_dir: str = ""
    std_out: str = ""
    std_err: str = ""
    comment: str = ""
    excluded_nodes: tuple[str, ...] = ()
    time_limit_minutes: int | None = None
    append_output: bool = True
    requeue: bool = True
    hold: bool = False
    environment: Mapping[str, str] = {}
    """Variables for the job, beside what the scheduler itself sets."""
    extra_args: tuple[str, ...] = ()
    """Further options in the scheduler's own syntax (local: ignored)."""


@runtime_checkable
class Scheduler(Protocol):
    """What relight needs of a scheduler. Every method may raise `SchedulerUnreachable`."""

    async def version(self) -> SchedulerVersion:
        """Asks who answers; the cheapest proof that the scheduler is reachable."""

    async def running_since(self) -> datetime | None:
        """When the scheduler was started last; None: it does not tell.

        A scheduler that crashed may have forgotten what it accepted in its last seconds.
        """

    async def partition_size(self, partition: str) -> int | None:
        """So many nodes belong to the partition, broken ones too; None: it knows no such partition."""

    async def jobs(self, job_ids: Sequence[str]) -> Mapping[str, JobInfo]:
        """Reads these jobs in one request, whatever their number.

        A job missing from the answer is *unknown*: it may have been purged. `job` gives an explicit word.
        """

    async def job(self, job_id: str) -> JobInfo:
        """Reads one job.

        Raises:
            NoSuchJob: the scheduler says that it knows no such job.
        """

    async def finished_job(self, job_id: str) -> JobInfo:
        """Reads the last attempt of a job from accounting, also after the scheduler forgot it.

        Raises:
            NoSuchJob: accounting has no such job.
            NotSupported: there is no accounting.
        """

    async def nodes(self, names: Sequence[str] = ()) -> Mapping[str, NodeInfo]:
        """Reads nodes (none named: all) in one request. Unknown names are missing from the answer."""

    async def jobs_on(self, node: str) -> Sequence[JobInfo]:
        """Reads the jobs that run on a node, and those that ran on it and that the scheduler still lists.

        Raises:
            InvalidRequest, NoSuchNode: this names no node.
        """

    async def batch_script(self, job_id: str) -> str:
        """Reads the script of a batch job.

        Raises:
            NoSuchJob, NotPermitted, NotSupported: as the names say.
        """

    async def submit_template(self, job_id: str) -> SubmitRequest:
        """What it takes to submit this job again: script, shape, output files, comment."""

    async def submit(self, request: SubmitRequest) -> str:
        """Submits a batch job and returns its id."""

    async def requeue_hold(self, job_id: str) -> None:
        """Ends the attempt if it runs, and puts the job back in the queue, held.

        Raises:
            InvalidRequest: not requeueable, or already pending.
        """

    async def exclude_nodes(self, job_id: str, nodes: Sequence[str]) -> None:
        """Sets the whole exclusion list of a *pending* job (Slurm refuses it for a running one)."""

    async def set_comment(self, job_id: str, comment: str) -> None:
        """Replaces the comment of a job that has not ended."""

    async def hold(self, job_id: str) -> None:
        """Keeps a pending job from starting. Holding a held job is fine."""

    async def release(self, job_id: str) -> None:
        """Lets a held job start as soon as it can; a delay that follows a requeue is lifted."""

    async def cancel(self, job_id: str) -> None:
        """Ends a job for good. Cancelling an ended job is fine."""

    async def find_by_comment(self, text: str) -> Sequence[JobInfo]:
        """Reads all jobs that the scheduler still lists whose comment contains `text`."""

    async def open_jobs_of(self, user: str) -> Sequence[JobInfo]:
        """Reads the user's jobs that have not ended."""

    async def drain_node(self, node: str, reason: str) -> None:
        """Keeps new jobs off a node.

        Raises:
            NoSuchNode: no such node.
        """

    async def resume_node(self, node: str) -> None:
        """Takes a drain back."""


def log_files(info: JobInfo) -> tuple[Path, ...]:
    """The output files of a job, each once."""
    return tuple(dict.fromkeys(Path(p) for p in (info.std_out, info.std_err) if p and p != "/dev/null"))
