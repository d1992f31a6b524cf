"""A step's changing commands are noted in order, with their answers, also when it fails."""

import pytest
from temporalio.exceptions import ApplicationError

from activities.common import Context, scheduler_errors
from activities.drain_job import drain_job
from activities.recording import recorded
from relight.config import Settings
from relight.contracts.commands import CommandGiven, CommandsGiven
from relight.contracts.steps import DrainInput, DrainResult
from relight.scheduler.port import InvalidRequest, SchedulerUnreachable
from tests.activities.conftest import FIRST, RECOVERY, Runner, training
from tests.activities.double import Double


async def test_a_drain_notes_the_requeue_and_the_comment(run: Runner) -> None:
    given = DrainInput(job=training(), attempt=FIRST, recovery_id=RECOVERY, reason="why")

    async def step(context: Context, given: DrainInput) -> tuple[DrainResult, tuple[CommandGiven, ...]]:
        return await recorded(context, lambda recording: drain_job(recording, given))

    result, commands = await run(step, given)
    assert result.how == "requeue-held"
    assert [(c.operation, c.arguments[0], c.accepted) for c in commands] == [
        ("requeue_hold", "42", True),
        ("set_comment", "42", True),
    ]
    assert RECOVERY in commands[1].arguments[1]


@pytest.mark.parametrize(
    ("error", "accepted"), [(InvalidRequest("no"), False), (SchedulerUnreachable("silence"), None)]
)
async def test_the_error_of_a_failed_step_tells_what_it_did(
    double: Double, error: Exception, accepted: bool | None
) -> None:
    async def refuse(job_id: str) -> None:
        raise error

    double.hold = refuse  # type: ignore[method-assign]

    async def step(context: Context) -> None:
        with scheduler_errors():
            await context.scheduler.job("42")
            await context.scheduler.hold("42")

    with pytest.raises(ApplicationError) as caught:
        await recorded(Context(double, Settings()), step)
    [told] = caught.value.details
    assert isinstance(told, CommandsGiven)
    [command] = told.commands
    assert (command.operation, command.accepted, command.answer) == ("hold", accepted, str(error))
    assert caught.value.non_retryable is (accepted is False)


async def test_an_error_before_any_command_stays_as_it_is(double: Double) -> None:
    async def step(context: Context) -> None:
        raise ApplicationError("early", type="Refused", non_retryable=True)

    with pytest.raises(ApplicationError) as caught:
        await recorded(Context(double, Settings()), step)
    assert caught.value.details == ()
