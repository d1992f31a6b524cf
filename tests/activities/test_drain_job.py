from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.drain_job import drain_job
from activities.snapshot_job import snapshot_job
from activities.tag import read_tag
from relight.contracts import JobState
from relight.contracts.steps import ATTEMPT_CHANGED, REFUSED, UNREACHABLE, DrainInput, PollInput
from relight.policy.holds import LAUNCH_FAILED
from relight.scheduler.port import InvalidRequest, NotPermitted, NotSupported
from tests.activities.conftest import FIRST, RECOVERY, Runner, training
from tests.activities.double import T0, Double

REQUEUED: dict[str, Any] = {
    "state": JobState.PENDING,
    "restart_count": 1,
    "submit_time": T0 + timedelta(minutes=10),
    "nodes": (),
}


def given(**fields: Any) -> DrainInput:
    defaults: dict[str, Any] = {
        "job": training(),
        "attempt": FIRST,
        "recovery_id": RECOVERY,
        "reason": "relight: crash",
    }
    return DrainInput(**(defaults | fields))


@pytest.mark.parametrize(
    "state", [JobState.RUNNING, JobState.FAILED, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY]
)
async def test_running_and_failed_jobs_are_requeued_and_held(
    run: Runner, double: Double, state: JobState
) -> None:
    double.set(state=state, comment="mine")
    result = await run(drain_job, given())
    assert result.how == "requeue-held"
    assert result.attempt.restart_count == 1
    assert result.accepted_at is not None
    assert double.commands == ["requeue_hold 42", "set_comment 42"]
    comment = double.known["42"].comment
    assert comment.startswith(f'mine relight-recovery={RECOVERY} relight-held="relight: crash" ')
    tag = read_tag(comment)
    assert tag is not None
    assert tag.until is not None
    assert tag.until > datetime.now(UTC) + given().job.policy.approval_deadline
    assert not tag.person


@pytest.mark.parametrize(
    "state", [JobState.COMPLETED, JobState.CANCELLED, JobState.TIMEOUT, JobState.PREEMPTED, JobState.PENDING]
)
async def test_a_job_that_ended_by_itself_is_left_alone(run: Runner, double: Double, state: JobState) -> None:
    double.set(state=state)
    assert state.value in await run.fails(drain_job, given(), ATTEMPT_CHANGED)
    assert double.commands == []


async def test_a_job_that_completes_after_its_time_limit_is_left_alone(run: Runner, double: Double) -> None:
    double.set(state=JobState.COMPLETING, reason="TimeLimit")
    await run.fails(drain_job, given(), ATTEMPT_CHANGED)
    double.set(reason="NonZeroExitCode")
    assert (await run(drain_job, given())).how == "requeue-held"


async def test_what_the_scheduler_could_not_start_is_held_already(run: Runner, double: Double) -> None:
    double.set(state=JobState.PENDING, nodes=(), held=True, reason=LAUNCH_FAILED)
    result = await run(drain_job, given())
    assert (result.how, result.attempt.restart_count) == ("already held", 0)
    assert double.commands == ["set_comment 42"]
    again = await run(drain_job, given(tries=1))
    assert again.attempt == result.attempt


@pytest.mark.parametrize("adopt", [False, True])
async def test_held_by_somebody_else(run: Runner, double: Double, adopt: bool) -> None:
    double.set(**REQUEUED, held=True)
    await run.fails(drain_job, given(adopt=adopt), ATTEMPT_CHANGED)
    assert double.commands == []


async def test_a_later_try_finds_what_an_earlier_one_did(run: Runner, double: Double) -> None:
    await run(drain_job, given())
    double.commands.clear()
    result = await run(drain_job, given(tries=1))
    assert result.how == "already requeue-held"
    assert result.attempt.restart_count == 1
    assert double.commands == []


async def test_our_mark_tells_our_doing_even_at_the_first_try(run: Runner, double: Double) -> None:
    double.set(**REQUEUED, held=True, comment=f"relight-recovery={RECOVERY}")
    assert (await run(drain_job, given())).how == "already requeue-held"


@pytest.mark.parametrize(
    "fields", [{"held": False}, {"state": JobState.RUNNING}, {"restart_count": 2, "held": True}]
)
async def test_a_later_try_steps_back_where_somebody_went_on(
    run: Runner, double: Double, fields: dict[str, Any]
) -> None:
    double.set(**(REQUEUED | fields))
    await run.fails(drain_job, given(tries=1), ATTEMPT_CHANGED)
    assert double.commands == []


@pytest.mark.parametrize("fields", [{}, {"state": JobState.COMPLETING, "submit_time": T0, "nodes": ("n1",)}])
async def test_the_schedulers_own_requeue_is_adopted(
    run: Runner, double: Double, fields: dict[str, Any]
) -> None:
    double.set(**(REQUEUED | fields))
    await run.fails(drain_job, given(), ATTEMPT_CHANGED)
    result = await run(drain_job, given(adopt=True))
    assert result.how == "adopted"
    assert result.attempt.restart_count == 1
    assert double.commands == ["hold 42", "set_comment 42"]
    assert (await run(drain_job, given(adopt=True, tries=1))).how == "already requeue-held"


async def test_adopted_too_late(run: Runner, double: Double) -> None:
    double.set(**(REQUEUED | {"state": JobState.RUNNING, "nodes": ("n3", "n4")}))
    result = await run(drain_job, given(adopt=True))
    assert result.how == "running"
    assert "n3, n4" in result.summary
    assert double.commands == []


@pytest.mark.parametrize("refused", [False, True])
async def test_it_starts_while_it_is_being_held(
    run: Runner, double: Double, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    double.set(**REQUEUED)

    async def hold(job_id: str) -> None:
        double.set(job_id, state=JobState.RUNNING, reason="JobHeldAdmin")
        if refused:
            raise InvalidRequest("not pending")

    monkeypatch.setattr(double, "hold", hold)
    result = await run(drain_job, given(adopt=True))
    assert result.how == "running"
    assert double.commands == ["release 42"]
    double.refuse["release"] = InvalidRequest("Job is no longer pending execution")
    double.set(**REQUEUED)
    assert "scontrol release 42" in (await run(drain_job, given(adopt=True))).summary


async def test_a_hold_that_is_refused(run: Runner, double: Double) -> None:
    double.set(**REQUEUED)
    double.refuse["hold"] = InvalidRequest("no")
    await run.fails(drain_job, given(adopt=True), REFUSED)


async def test_a_lost_answer_of_a_command_that_acted(run: Runner, double: Double) -> None:
    double.lose["requeue_hold"] = "after"
    result = await run(drain_job, given())
    assert result.how == "requeue-held"
    assert double.known["42"].restart_count == 1


async def test_a_lost_command(run: Runner, double: Double) -> None:
    double.lose["requeue_hold"] = "before"
    await run.fails(drain_job, given(), UNREACHABLE)
    assert double.known["42"].restart_count == 0
    double.lose.clear()
    assert (await run(drain_job, given(tries=1))).how == "requeue-held"
    assert double.known["42"].restart_count == 1


async def test_no_answer_to_the_first_question(run: Runner, double: Double) -> None:
    double.lose["job"] = "before"
    await run.fails(drain_job, given(), UNREACHABLE)


async def test_refused(run: Runner, double: Double) -> None:
    double.refuse["requeue_hold"] = NotPermitted("Access/permission denied: run the worker as SlurmUser")
    assert "SlurmUser" in await run.fails(drain_job, given(), REFUSED)


async def test_a_comment_that_cannot_be_set_does_not_stop_the_recovery(run: Runner, double: Double) -> None:
    double.refuse["set_comment"] = NotSupported("comments are off")
    assert (await run(drain_job, given())).how == "requeue-held"


@pytest.mark.parametrize("refusal", [None, NotSupported("JobRequeue=0")])
async def test_a_job_that_cannot_be_requeued_is_cancelled_and_submitted_anew(
    run: Runner, double: Double, refusal: NotSupported | None
) -> None:
    if refusal is None:
        double.set(requeueable=False)
    else:
        double.refuse["requeue_hold"] = refusal
    result = await run(drain_job, given())
    assert (result.how, result.attempt) == ("resubmit", FIRST)
    assert double.commands == ["set_comment 42", "cancel 42"]
    again = await run(drain_job, given(tries=1))
    assert (again.how, again.attempt) == ("resubmit", FIRST)
    assert double.commands == ["set_comment 42", "cancel 42"]


async def test_our_cancelled_job_may_still_complete(run: Runner, double: Double) -> None:
    double.set(requeueable=False)
    await run(drain_job, given())
    double.set(state=JobState.COMPLETING)
    double.commands.clear()
    assert (await run(drain_job, given(tries=1))).how == "resubmit"
    assert double.commands == []


async def test_our_requeued_job_may_still_complete(run: Runner, double: Double) -> None:
    double.set(state=JobState.COMPLETING, restart_count=1, reason="job_requeued_in_held_state")
    await run.fails(drain_job, given(), ATTEMPT_CHANGED)
    assert (await run(drain_job, given(tries=1))).how == "already requeue-held"


async def test_a_failed_job_that_cannot_be_requeued_needs_no_cancel(run: Runner, double: Double) -> None:
    double.set(requeueable=False, state=JobState.FAILED)
    assert (await run(drain_job, given())).how == "resubmit"
    assert double.commands == []


async def test_a_forgotten_job_is_submitted_anew(run: Runner, double: Double) -> None:
    await run(snapshot_job, PollInput(job=training()))
    double.known.clear()
    assert (await run(drain_job, given())).how == "resubmit"


async def test_a_forgotten_job_that_was_not_saved_is_left_to_people(run: Runner, double: Double) -> None:
    double.known.clear()
    assert "by hand" in await run.fails(drain_job, given(), REFUSED)


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.FAILED])
async def test_nothing_is_cancelled_that_could_not_be_submitted_again(
    run: Runner, double: Double, state: JobState
) -> None:
    double.set(requeueable=False, state=state)
    double.refuse["submit_template"] = NotSupported("the script is not UTF-8")
    assert "not UTF-8" in await run.fails(drain_job, given(), REFUSED)
    assert double.commands == []


@pytest.mark.parametrize("job_id", ["42_1", "42+1"])
async def test_a_part_of_a_larger_job_is_not_submitted_anew(run: Runner, double: Double, job_id: str) -> None:
    part = FIRST.model_copy(update={"job_id": job_id})
    double.known[job_id] = double.known.pop("42").model_copy(update={"job_id": job_id, "requeueable": False})
    assert "larger job" in await run.fails(drain_job, given(attempt=part), REFUSED)
    assert double.commands == []


@pytest.mark.parametrize("reason", ["JobHeldUser", "JobHeldAdmin"])
async def test_a_running_job_that_somebody_holds_is_left_alone(
    run: Runner, double: Double, reason: str
) -> None:
    double.set(reason=reason)
    assert "somebody holds" in await run.fails(drain_job, given(), ATTEMPT_CHANGED)
    assert double.commands == []


async def test_somebody_requeues_between_the_question_and_the_command(run: Runner, double: Double) -> None:
    answer = double.job

    async def job(job_id: str) -> Any:
        info = await answer(job_id)
        double.set(**REQUEUED)
        return info

    double.job = job  # type: ignore[method-assign]
    await run.fails(drain_job, given(), ATTEMPT_CHANGED)
    assert double.known["42"].restart_count == 1


async def test_another_job_with_the_same_id(run: Runner, double: Double) -> None:
    double.set(submit_time=T0 + timedelta(days=3))
    await run.fails(drain_job, given(), ATTEMPT_CHANGED)
    assert double.commands == []
