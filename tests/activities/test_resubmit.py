from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from activities.resubmit import resubmit
from activities.snapshot_job import snapshot_job
from relight.contracts import JobInfo, JobState
from relight.contracts.steps import ATTEMPT_CHANGED, REFUSED, UNREACHABLE, PollInput, ResubmitInput
from relight.scheduler.port import NotPermitted
from tests.activities.conftest import FIRST, RECOVERY, Runner, training
from tests.activities.double import SCRIPT, T0, Double, running

HELD_AT = T0 + timedelta(days=2)
HELD = FIRST.model_copy(update={"restart_count": 1, "submit_time": HELD_AT})


def given(**fields: Any) -> ResubmitInput:
    defaults: dict[str, Any] = {
        "job": training(),
        "attempt": HELD,
        "failed_attempt": FIRST,
        "how": "requeue-held",
        "recovery_id": RECOVERY,
    }
    return ResubmitInput(**(defaults | fields))


def held(**fields: Any) -> JobInfo:
    defaults: dict[str, Any] = {
        "state": JobState.PENDING,
        "held": True,
        "restart_count": 1,
        "submit_time": HELD_AT,
        "nodes": (),
    }
    return running(**(defaults | fields))


@pytest.fixture
def double() -> Double:
    return Double(held())


async def test_exclusion_comes_before_release(run: Runner, double: Double) -> None:
    double.set(excluded_nodes=("n4",))
    result = await run(resubmit, given(excluded_nodes=("n2", "n4")))
    assert double.commands == ["exclude_nodes 42 n2,n4", "release 42"]
    assert result.attempt == HELD
    assert result.accepted_at is not None
    assert "n2" in result.summary


async def test_nodes_lost_since_the_plan_are_excluded_too(run: Runner, double: Double) -> None:
    double.lost_nodes = {"n1", "n3"}  # n3 was not the job's
    result = await run(resubmit, given(excluded_nodes=("n2",)))
    assert double.commands == ["exclude_nodes 42 n1,n2", "release 42"]
    assert "lost since the plan was made: n1" in result.summary


async def test_what_relight_excluded_long_ago_comes_off_the_list(run: Runner, double: Double) -> None:
    double.set(excluded_nodes=("n1", "n3", "n4"))
    result = await run(resubmit, given(excluded_nodes=("n2", "n3"), readmitted=("n1", "n3")))
    assert double.commands == ["exclude_nodes 42 n2,n3,n4", "release 42"]
    assert result.added == ("n2",)


async def test_the_whole_list_may_expire(run: Runner, double: Double) -> None:
    double.set(excluded_nodes=("n1",))
    await run(resubmit, given(readmitted=("n1",)))
    assert double.commands == ["exclude_nodes 42 ", "release 42"]


async def test_without_exclusion_only_release(run: Runner, double: Double) -> None:
    await run(resubmit, given())
    assert double.commands == ["release 42"]


@pytest.mark.parametrize(
    "seen_while_completing", [HELD, FIRST.model_copy(update={"restart_count": 1})], ids=["after", "while"]
)
async def test_the_submit_time_may_change_while_the_nodes_complete(
    run: Runner, double: Double, seen_while_completing: Any
) -> None:
    result = await run(resubmit, given(attempt=seen_while_completing))
    assert result.attempt == HELD


@pytest.mark.parametrize(
    "fields",
    [
        {"held": False},
        {"held": False, "state": JobState.RUNNING},
        {"held": False, "state": JobState.CANCELLED},
        {"restart_count": 2},
        {"restart_count": 0},
    ],
)
async def test_somebody_moved_the_job(run: Runner, double: Double, fields: dict[str, Any]) -> None:
    double.set(**fields)
    await run.fails(resubmit, given(), ATTEMPT_CHANGED)
    assert double.commands == []


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING, JobState.FAILED])
async def test_a_later_try_finds_the_job_released(run: Runner, double: Double, state: JobState) -> None:
    await run(resubmit, given())
    double.set(state=state)
    double.commands.clear()
    result = await run(resubmit, given(tries=1))
    assert result.attempt == HELD
    assert double.commands == []


async def test_a_later_try_keeps_the_marks_of_the_first(run: Runner, double: Double, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("old attempt\n")
    job = training(log_paths=(str(tmp_path / "*.log"),))
    double.lose["release"] = "before"
    await run.fails(resubmit, given(job=job), UNREACHABLE)
    with log.open("a") as file:
        file.write("new attempt\n")
    double.lose.clear()
    (mark,) = (await run(resubmit, given(job=job, tries=1))).log_marks
    assert mark.size == len("old attempt\n")


async def test_a_lost_answer_of_a_release_that_acted(run: Runner, double: Double) -> None:
    double.lose["release"] = "after"
    assert (await run(resubmit, given())).accepted_at is not None


async def test_released_between_the_question_and_the_exclusion(run: Runner, double: Double) -> None:
    double.lost_nodes = {"n1"}
    answer = double.nodes

    async def nodes(names: Any = ()) -> Any:
        double.set(state=JobState.RUNNING, held=False)
        return await answer(names)

    double.nodes = nodes  # type: ignore[method-assign]
    await run.fails(resubmit, given(), ATTEMPT_CHANGED)


async def test_refused(run: Runner, double: Double) -> None:
    double.refuse["release"] = NotPermitted("Access/permission denied")
    await run.fails(resubmit, given(), REFUSED)


# ---- submitted anew


@pytest.fixture
def forgotten(double: Double) -> Double:
    """The scheduler has forgotten the job."""
    double.known.clear()
    return double


async def save(run: Runner, double: Double) -> None:
    double.known["42"] = running(comment="mine")
    await run(snapshot_job, PollInput(job=training()))
    double.known.clear()


async def test_submitted_anew_from_the_snapshot(run: Runner, forgotten: Double) -> None:
    await save(run, forgotten)
    result = await run(resubmit, given(how="resubmit", attempt=FIRST, excluded_nodes=("n2",)))
    assert result.attempt.job_id == "43"
    request = forgotten.submitted["43"]
    assert request.script == SCRIPT
    assert request.excluded_nodes == ("n2",)
    assert request.comment == f"mine relight-recovery={RECOVERY}"


@pytest.mark.parametrize("tries", [0, 1])
async def test_it_is_never_submitted_twice(run: Runner, forgotten: Double, tries: int) -> None:
    await save(run, forgotten)
    await run(resubmit, given(how="resubmit", attempt=FIRST))
    again = await run(resubmit, given(how="resubmit", attempt=FIRST, tries=tries))
    assert again.attempt.job_id == "43"
    assert list(forgotten.submitted) == ["43"]


async def test_a_lost_answer_of_a_submission_that_acted(run: Runner, forgotten: Double) -> None:
    await save(run, forgotten)
    forgotten.lose["submit"] = "after"
    result = await run(resubmit, given(how="resubmit", attempt=FIRST))
    assert result.attempt.job_id == "43"
    assert list(forgotten.submitted) == ["43"]


async def test_a_cancelled_job_with_our_mark_is_not_the_new_one(run: Runner, forgotten: Double) -> None:
    forgotten.known["42"] = running(state=JobState.CANCELLED, comment=f"relight-recovery={RECOVERY}")
    result = await run(resubmit, given(how="resubmit", attempt=FIRST))
    assert result.attempt.job_id == "43"
    assert forgotten.submitted["43"].script == SCRIPT


async def test_a_job_that_still_runs_is_not_submitted_anew(run: Runner, forgotten: Double) -> None:
    forgotten.known["42"] = running()
    await run.fails(resubmit, given(how="resubmit", attempt=FIRST), ATTEMPT_CHANGED)


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.COMPLETED])
async def test_a_job_that_its_user_ended_is_not_submitted_anew(
    run: Runner, forgotten: Double, state: JobState
) -> None:
    forgotten.known["42"] = running(state=state)
    await run.fails(resubmit, given(how="resubmit", attempt=FIRST), ATTEMPT_CHANGED)


async def test_nothing_is_known_of_its_script(run: Runner, forgotten: Double) -> None:
    message = await run.fails(resubmit, given(how="resubmit", attempt=FIRST), REFUSED)
    assert "submit it by hand" in message


# ---- with variables for the next attempt, which a held job cannot get any more ----------------------------

PASSED = {"RESUME_FROM": "/ckpt/step-100"}


async def test_a_held_job_is_replaced_to_pass_a_variable(run: Runner, double: Double) -> None:
    result = await run(resubmit, given(environment=PASSED, excluded_nodes=("n2",)))
    (new,) = double.submitted
    assert [command.split()[0] for command in double.commands] == [
        "submit",
        "cancel",
        "set_comment",
        "release",
    ]
    assert double.commands[1] == "cancel 42"
    assert double.commands[-1] == f"release {new}"
    assert double.submitted[new].environment == PASSED
    assert double.submitted[new].hold
    assert double.submitted[new].excluded_nodes == ("n2",)
    assert RECOVERY in double.known[new].comment
    assert "held" not in double.known[new].comment
    assert (result.attempt.job_id, result.attempt.restart_count) == (new, 0)
    assert "RESUME_FROM=/ckpt/step-100" in result.summary
    assert "n2" in result.summary


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("command", ["submit", "cancel", "release"])
async def test_after_a_lost_answer_there_is_one_job_in_its_place(
    run: Runner, double: Double, command: str, when: str
) -> None:
    double.lose[command] = when
    if (command, when) == ("submit", "after"):  # it was found in the queue
        await run(resubmit, given(environment=PASSED))
    else:
        await run.fails(resubmit, given(environment=PASSED), UNREACHABLE)
    assert sum(not info.held and not info.state.is_over for info in double.known.values()) <= 1
    double.lose.clear()
    result = await run(resubmit, given(environment=PASSED, tries=1))
    (new,) = double.submitted
    assert result.attempt.job_id == new
    assert not double.known[new].held
    assert double.known["42"].state is JobState.CANCELLED
    again = await run(resubmit, given(environment=PASSED, tries=2))
    assert again.attempt == result.attempt
    assert len(double.submitted) == 1


@pytest.mark.parametrize(
    "fields",
    [{"held": False}, {"held": False, "state": JobState.RUNNING}, {"state": JobState.CANCELLED},
     {"restart_count": 2}],
)  # fmt: skip
async def test_a_job_that_somebody_moved_is_not_replaced(
    run: Runner, double: Double, fields: dict[str, Any]
) -> None:
    double.set(**fields)
    await run.fails(resubmit, given(environment=PASSED), ATTEMPT_CHANGED)
    assert double.commands == []


async def test_released_by_somebody_meanwhile_the_new_one_goes(run: Runner, double: Double) -> None:
    double.lose["cancel"] = "before"
    await run.fails(resubmit, given(environment=PASSED), UNREACHABLE)
    double.lose.clear()
    double.set(held=False, state=JobState.RUNNING)
    await run.fails(resubmit, given(environment=PASSED, tries=1), ATTEMPT_CHANGED)
    (new,) = double.submitted
    assert double.known[new].state is JobState.CANCELLED
    assert double.known["42"].state is JobState.RUNNING


async def test_a_job_that_cannot_be_requeued_gets_the_variable_too(run: Runner, double: Double) -> None:
    double.set(state=JobState.FAILED, held=False, restart_count=0, submit_time=T0)
    fields = given(environment=PASSED, how="resubmit", attempt=FIRST)
    result = await run(resubmit, fields)
    assert double.submitted[result.attempt.job_id].environment == PASSED
