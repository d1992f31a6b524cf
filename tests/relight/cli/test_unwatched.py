"""What is advised about a job that is not watched."""

from datetime import UTC, datetime

import pytest

from relight.cli.unwatched import advice, can_be_watched
from relight.contracts import JobInfo, JobState
from tests.relight.cli.conftest import Relight


def info(state: JobState) -> JobInfo:
    return JobInfo(job_id="7", state=state, submit_time=datetime(2026, 12, 2, tzinfo=UTC))


@pytest.mark.parametrize(
    ("state", "can"),
    [
        (JobState.PENDING, True),
        (JobState.RUNNING, True),
        (JobState.FAILED, True),
        (JobState.NODE_FAIL, True),
        (JobState.COMPLETED, False),
        (JobState.CANCELLED, False),
        (JobState.TIMEOUT, False),
    ],
)
def test_watch_is_advised_where_it_works(state: JobState, can: bool) -> None:
    assert can_be_watched(info(state)) is can
    assert ("`relight watch 7` begins" in advice("7", info(state))) is can
    assert (f"it has ended ({state.value})" in advice("7", info(state))) is not can


def test_a_job_that_nobody_knows() -> None:
    assert "knows no job 7 either" in advice("7", None)


@pytest.mark.temporal
@pytest.mark.parametrize("command", ["show", "why"])
def test_the_commands_ask_the_scheduler(relight: Relight, command: str) -> None:
    unknown = relight(command, "424242")
    assert unknown.exit_code == 5
    assert "job 424242 is not watched: the scheduler knows no job 424242 either" in unknown.stderr
    nonsense = relight(command, "abc")
    assert nonsense.exit_code == 2
    assert "'abc' is no job id" in nonsense.stderr


@pytest.mark.temporal
def test_audit_verify_of_what_there_is_not(relight: Relight) -> None:
    done = relight("audit", "verify", "recover:nowhere:1:0:x")
    assert done.exit_code == 5
    assert "Temporal knows no recovery recover:nowhere:1:0:x: `relight audit JOB`" in done.stderr
