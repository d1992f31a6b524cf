"""What all steps share: their context, their failures, heartbeats, and the check of the attempt."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from relight.config import Settings
from relight.contracts import Attempt, JobInfo, JobState, Model
from relight.contracts.steps import ATTEMPT_CHANGED, NOT_YET, REFUSED, UNREACHABLE
from relight.policy.attempts import Relation, relation
from relight.policy.holds import REQUEUED_HELD
from relight.scheduler.port import NoSuchJob, Scheduler, SchedulerError
from relight.scheduler.together import Together

Remember = Callable[[Model], None]
"""Keeps a model for the next try of the step, in the activity's heartbeat."""
HEARTBEAT_SECONDS = 1.0
"""How often a step says that it lives; its heartbeat timeout must be several times as long."""


@dataclass(frozen=True)
class Context:
    """What a step works with."""

    scheduler: Scheduler
    settings: Settings
    together: Together = field(init=False)
    """Reads single jobs where that may wait for a moment, so that many monitors ask together."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "together", Together(self.scheduler))


def now() -> datetime:
    """The time, UTC."""
    return datetime.now(UTC)


# ---- failures --------------------------------------------------------------------
def not_yet(text: str, *details: Model, look_again: timedelta | None = None) -> ApplicationError:
    """A poll whose time has not come: tried again until the step's deadline, and no failure in metrics.

    Args:
        text: what it waits for.
        details: for the workflow, should this be the last try.
        look_again: after so long, where that is known; else as the step's retry policy says.
    """
    return ApplicationError(
        text, *details, type=NOT_YET, category=ApplicationErrorCategory.BENIGN, next_retry_delay=look_again
    )


def attempt_changed(text: str) -> ApplicationError:
    """The job is not in the attempt that the step expects: nothing was touched, the recovery steps back."""
    return ApplicationError(text, type=ATTEMPT_CHANGED, non_retryable=True)


def refused(text: str, *details: Model) -> ApplicationError:
    """The scheduler refused for good."""
    return ApplicationError(text, *details, type=REFUSED, non_retryable=True)


@contextmanager
def scheduler_errors() -> Iterator[None]:
    """Turns what a scheduler raises into what workflows understand (`relight.contracts.steps`).

    Raises:
        ApplicationError: `SchedulerUnreachable` (may be tried again), `AttemptChanged` for a job that the
            scheduler no longer knows, or `Refused`.
    """
    try:
        yield
    except NoSuchJob as error:
        raise attempt_changed(f"the scheduler no longer knows the job: {error}") from error
    except SchedulerError as error:
        if error.retryable:
            raise ApplicationError(str(error), type=UNREACHABLE) from error
        raise refused(str(error)) from error


# ---- heartbeats ------------------------------------------------------------------
@asynccontextmanager
async def heartbeats(every: float = HEARTBEAT_SECONDS) -> AsyncIterator[Remember]:
    """Tells Temporal each second that the step still runs, so that a dead worker is noticed soon.

    Yields what takes a model that the next try shall find in `activity.info().heartbeat_details`; what
    earlier tries left there is kept until then.
    """
    details: list[Any] = list(activity.info().heartbeat_details)

    def remember(state: Model) -> None:
        details[:] = [state]
        activity.heartbeat(state)

    async def beat() -> None:
        while True:
            await asyncio.sleep(every)
            activity.heartbeat(*details)

    task = asyncio.create_task(beat())
    try:
        yield remember
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


# ---- the attempt -----------------------------------------------------------------
ENDED_BY_OTHERS = {
    JobState.COMPLETED: "completed",
    JobState.CANCELLED: "was cancelled",
    JobState.TIMEOUT: "reached its time limit",
    JobState.DEADLINE: "reached its deadline",
    JobState.PREEMPTED: "was preempted",
}
"""Ends that are no fault of the attempt, in words."""


def relate(info: JobInfo, expected: Attempt) -> Relation:
    """How the attempt that the job is in relates to the expected one.

    One allowance beside `relation`: while the nodes of a requeued attempt still complete, Slurm counts the
    restart already but shows the old submit time until they are done (seen on 22.05). So the same positive
    restart count is the same attempt, whenever it was read: a new job under a reused id starts at 0.
    """
    found = relation(expected, info.attempt(expected.cluster))
    if found is Relation.OTHER and info.restart_count == expected.restart_count > 0:
        return Relation.SAME
    return found


_ENDS_AS = {
    "NonZeroExitCode": JobState.FAILED,
    "OutOfMemory": JobState.OUT_OF_MEMORY,
    "TimeLimit": JobState.TIMEOUT,
}
"""What a completing job will end as, by its reason. A cancelled one has none (seen on 22.05)."""

HELD_REASONS = {REQUEUED_HELD, "JobHeldUser", "JobHeldAdmin"}
"""Reasons of a job that was requeued and held."""


async def read_job(scheduler: Scheduler | Together, job_id: str) -> JobInfo:
    """Reads a job, with what is known of its future while its nodes still complete.

    Slurm may say only COMPLETING until the last process is gone, which can take minutes: how the attempt
    ends, or that it was requeued and is held, is then told by the reason alone.

    Raises:
        SchedulerError: as the port's `job`.
    """
    info = await scheduler.job(job_id)
    if info.state is not JobState.COMPLETING:
        return info
    if info.reason in _ENDS_AS:
        flags = tuple(dict.fromkeys((*info.flags, "COMPLETING")))
        return info.model_copy(update={"state": _ENDS_AS[info.reason], "flags": flags})
    return info.model_copy(update={"held": info.held or info.reason in HELD_REASONS})


def in_words(info: JobInfo) -> str:
    """A job's state, for a sentence."""
    held = ", held" if info.held else ""
    reason = f", reason {info.reason}" if info.reason and info.reason != "None" else ""
    return f"{info.state.value}{held}{reason}, restart count {info.restart_count}"
