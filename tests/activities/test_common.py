import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.common import heartbeats, read_job, relate, scheduler_errors
from relight.contracts import Attempt, JobState
from relight.contracts.steps import ATTEMPT_CHANGED, REFUSED, UNREACHABLE, PollInput
from relight.policy.attempts import Relation
from relight.scheduler import port
from tests.activities.conftest import training
from tests.activities.double import T0, Double, running


async def test_beats_keep_what_an_earlier_try_left_until_there_is_more() -> None:
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(environment.info, heartbeat_details=["earlier"])
    beats: list[tuple[Any, ...]] = []
    environment.on_heartbeat = lambda *details: beats.append(details)
    state = PollInput(job=training())

    async def step() -> None:
        async with heartbeats(every=0.01) as remember:
            await asyncio.sleep(0.1)
            remember(state)
            await asyncio.sleep(0.1)

    await environment.run(step)
    assert beats[0] == ("earlier",)
    assert beats[-1] == (state,)
    assert len(beats) > 4
    count = len(beats)
    await asyncio.sleep(0.05)
    assert len(beats) == count


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (port.SchedulerUnreachable("x"), UNREACHABLE),
        (port.NoSuchJob("x"), ATTEMPT_CHANGED),
        (port.NoSuchNode("x"), REFUSED),
        (port.NotPermitted("x"), REFUSED),
        (port.InvalidRequest("x"), REFUSED),
        (port.NotSupported("x"), REFUSED),
        (port.SchedulerError("x"), REFUSED),
    ],
)
def test_what_the_scheduler_raises_and_what_workflows_see(error: port.SchedulerError, kind: str) -> None:
    with pytest.raises(ApplicationError) as caught, scheduler_errors():
        raise error
    assert caught.value.type == kind
    assert caught.value.non_retryable is (kind != UNREACHABLE)


LATER = T0 + timedelta(days=9)


@pytest.mark.parametrize(
    ("expected", "seen", "relation"),
    [
        ((0, T0), (0, T0), Relation.SAME),
        ((0, T0), (1, T0), Relation.NEWER),
        ((0, T0), (0, LATER), Relation.OTHER),
        ((1, T0), (1, LATER), Relation.SAME),  # read while the old attempt completed, and after
        ((1, LATER), (1, T0), Relation.SAME),
        ((1, T0), (0, LATER), Relation.OLDER),
    ],
)
def test_relate(expected: tuple[int, Any], seen: tuple[int, Any], relation: Relation) -> None:
    attempt = Attempt(cluster="lab", job_id="42", restart_count=expected[0], submit_time=expected[1])
    info = running(restart_count=seen[0], submit_time=seen[1])
    assert relate(info, attempt) is relation


@pytest.mark.parametrize(
    ("reason", "state", "held"),
    [
        ("NonZeroExitCode", JobState.FAILED, False),
        ("TimeLimit", JobState.TIMEOUT, False),
        ("None", JobState.COMPLETING, False),
        ("job_requeued_in_held_state", JobState.COMPLETING, True),
    ],
)
async def test_what_is_known_while_a_job_completes(reason: str, state: JobState, held: bool) -> None:
    info = await read_job(Double(running(state=JobState.COMPLETING, reason=reason)), "42")
    assert (info.state, info.held, info.completing) == (state, held, True)
