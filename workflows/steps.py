"""Runs the steps of the runbook, each an activity called by its name.

A step that only looks is retried by Temporal until its deadline: few events, and the web UI shows the last
answer. A step that changes something is one try each, so that every try is in history; the caller loops.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any, NoReturn, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    RetryState,
    TimeoutError,
    is_cancelled_exception,
)

with workflow.unsafe.imports_passed_through():
    from relight.contracts import Model
    from relight.contracts.steps import (
        ATTEMPT_CHANGED,
        NO_CHECKPOINT,
        REFUSED,
        RESUME_FAILED,
        TOO_FEW_NODES,
        UNREACHABLE,
    )
    from workflows.details import clip

R = TypeVar("R", bound=Model | str)

ONE_TRY = timedelta(seconds=60)
"""The longest one try of a mutating step may run."""
ONE_LOOK = timedelta(seconds=30)
"""The longest one try of a step that only looks may run."""
HEARTBEAT = timedelta(seconds=5)
"""A step that is silent for this long has lost its worker."""
PATIENCE = timedelta(hours=6)
"""How long a scheduler that does not answer is asked again, before the step fails for good."""
MAX_TRIES = 10
"""Tries of a mutating step after errors of unknown kind; an unreachable scheduler has `PATIENCE`."""
FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(seconds=15)

_FINAL = [ATTEMPT_CHANGED, REFUSED, RESUME_FAILED, TOO_FEW_NODES, NO_CHECKPOINT]

_POLL = RetryPolicy(
    initial_interval=timedelta(milliseconds=300),
    backoff_coefficient=1.15,  # what is seen late is at most a seventh of the wait
    maximum_interval=timedelta(seconds=15),
    non_retryable_error_types=_FINAL,
)


class StepFailed(Exception):
    """A step failed. `kind` is the activity's error type (`relight.contracts.steps`), or `""`."""

    def __init__(
        self, step: str, kind: str, text: str, *, deadline: bool = False, details: Sequence[Any] = ()
    ) -> None:
        super().__init__(f"{step}: {text}")
        self.step = step
        self.kind = kind
        self.text = text
        self.deadline = deadline
        """It only ran out of time; `text` is its last answer."""
        self.details = details

    @property
    def may_pass(self) -> bool:
        """Trying again later may help: no answer, a lost worker, or an error of unknown kind."""
        return self.kind not in _FINAL


async def poll(
    name: str,
    message: Model,
    result: type[R],
    *,
    within: timedelta,
    summary: str,
    one_look: timedelta = ONE_LOOK,
) -> R:
    """Runs a step that only looks, again and again until it answers.

    A scheduler that does not answer, or a worker that is away, uses up `PATIENCE` and not the step's own
    deadline: nothing was learned in that time.

    Raises:
        StepFailed: it failed for good, or gave no answer `within` its deadline.
    """
    began = workflow.now()
    for tries in count(1):
        try:
            return await _call(
                name,
                message,
                result,
                summary,
                schedule_to_close_timeout=within,
                start_to_close_timeout=one_look,
                heartbeat_timeout=HEARTBEAT,
                retry_policy=_POLL,
            )
        except StepFailed as failed:
            nothing_learned = failed.kind == UNREACHABLE or (failed.deadline and not failed.kind)
            if not nothing_learned or workflow.now() - began >= PATIENCE:
                raise
            await workflow.sleep(pause_after(tries), summary=clip(f"{name} got no answer: {failed.text}"))
    raise AssertionError("count() does not end")


async def attempt(
    name: str, message: Model, result: type[R], *, summary: str, one_try: timedelta = ONE_TRY
) -> R:
    """Tries a step that changes something, once.

    Raises:
        StepFailed: it failed; what it did until then is unknown unless `kind` says so.
    """
    return await _call(
        name,
        message,
        result,
        summary,
        start_to_close_timeout=one_try,
        heartbeat_timeout=HEARTBEAT,
        retry_policy=RetryPolicy(maximum_attempts=1),
    )


def pause_after(tries: int) -> timedelta:
    """The pause after this many failed tries."""
    doubled: int = 2 ** min(tries - 1, 10)
    return min(FIRST_PAUSE * doubled, LONGEST_PAUSE)


def may_try_again(failed: StepFailed, tries: int, began: datetime) -> bool:
    """A step that changes something may be tried once more: it may pass, and patience is not used up."""
    if failed.kind == UNREACHABLE:
        return workflow.now() - began < PATIENCE
    return failed.may_pass and tries < MAX_TRIES


async def _call(
    name: str,
    message: Model,
    result: type[R],
    summary: str,
    *,
    start_to_close_timeout: timedelta,
    schedule_to_close_timeout: timedelta | None = None,
    heartbeat_timeout: timedelta | None = None,
    retry_policy: RetryPolicy,
) -> R:
    try:
        answer: R = await workflow.execute_activity(
            name,
            message,
            result_type=result,
            summary=clip(summary),
            start_to_close_timeout=start_to_close_timeout,
            schedule_to_close_timeout=schedule_to_close_timeout,
            heartbeat_timeout=heartbeat_timeout,
            retry_policy=retry_policy,
        )
    except ActivityError as error:
        _translate(name, error)
    return answer


def _translate(name: str, error: ActivityError) -> NoReturn:
    if is_cancelled_exception(error):
        raise asyncio.CancelledError from error
    cause: BaseException | None = error.cause
    deadline = error.retry_state == RetryState.TIMEOUT or isinstance(cause, TimeoutError)
    # Out of time, Temporal wraps the last answer in a timeout; the answer is what people need to read.
    while isinstance(cause, TimeoutError) and cause.cause is not None:
        cause = cause.cause
    if isinstance(cause, ApplicationError):
        raise StepFailed(
            name, cause.type or "", cause.message, deadline=deadline, details=cause.details
        ) from error
    text = f"{cause}" if cause is not None else "no answer"
    raise StepFailed(name, "", text, deadline=deadline) from error
