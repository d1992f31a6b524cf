"""Notes every changing command that a step gives to the scheduler, so that the step's result can tell them.

Reads are not noted: history is to say what relight did, and what it saw is in the results already.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from temporalio.exceptions import ApplicationError

from activities.common import Context, now
from relight.contracts.commands import CommandGiven, CommandsGiven
from relight.scheduler.port import Scheduler, SchedulerError, SubmitRequest

R = TypeVar("R")

CHANGES = frozenset(
    {
        "submit",
        "requeue_hold",
        "exclude_nodes",
        "set_comment",
        "hold",
        "release",
        "cancel",
        "drain_node",
        "resume_node",
    }
)
"""The operations of the port that change something."""


class _Recorder:
    """A scheduler that behaves as the one that it wraps."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.commands: list[CommandGiven] = []

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._scheduler, name)
        return self._noting(name, operation) if name in CHANGES else operation

    def _noting(self, name: str, operation: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def run(*args: Any, **named: Any) -> Any:
            at, accepted, answer = now(), None, ""
            try:
                result = await operation(*args, **named)
                accepted, answer = True, result if isinstance(result, str) else ""
                return result
            except SchedulerError as error:
                accepted, answer = None if error.retryable else False, str(error)
                raise
            finally:
                told = tuple(word for value in (*args, *named.values()) for word in _words(value))
                self.commands.append(
                    CommandGiven(operation=name, arguments=told, at=at, accepted=accepted, answer=answer)
                )

        return run


async def recorded(
    context: Context, step: Callable[[Context], Awaitable[R]]
) -> tuple[R, tuple[CommandGiven, ...]]:
    """Runs a step; returns its result and the changing commands that it gave.

    Raises:
        ApplicationError: the step's own; if commands were given before it, they are its last detail.
    """
    recorder = _Recorder(context.scheduler)
    try:
        result = await step(Context(cast(Scheduler, recorder), context.settings))
    except ApplicationError as error:
        if not recorder.commands:
            raise
        raise ApplicationError(
            error.message,
            *error.details,
            CommandsGiven(commands=tuple(recorder.commands)),
            type=error.type,
            non_retryable=error.non_retryable,
            next_retry_delay=error.next_retry_delay,
            category=error.category,
        ) from error
    return result, tuple(recorder.commands)


def _words(value: Any) -> tuple[str, ...]:
    """An argument, as it can be shown; of a submission its name, not its script."""
    if isinstance(value, SubmitRequest):
        return (value.name, f"user={value.user}", f"exclude={','.join(value.excluded_nodes)}")
    if isinstance(value, list | tuple):
        return (",".join(map(str, value)),)
    return (str(value),)
