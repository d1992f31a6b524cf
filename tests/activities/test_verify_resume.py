from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities import logs
from activities.verify_resume import verify_resume
from activities.verify_running import verify_running
from relight.contracts import JobState
from relight.contracts.steps import (
    ATTEMPT_CHANGED,
    NOT_YET,
    RESUME_FAILED,
    UNREACHABLE,
    VerifyInput,
    VerifyResult,
)
from relight.policy.holds import LAUNCH_FAILED
from tests.activities.conftest import FIRST, Runner, step_line, step_lines, training
from tests.activities.double import Double


@pytest.fixture
def log(tmp_path: Path, double: Double) -> Path:
    path = tmp_path / "train.log"
    path.write_text(step_lines(1, 125))
    double.set(std_out=str(path))
    return path


def given(log: Path | None = None, resumable_from: int | None = 120) -> VerifyInput:
    marks = logs.mark_logs([str(log)]) if log else ()
    return VerifyInput(
        job=training(), attempt=FIRST, log_marks=marks, failed_at=125, resumable_from=resumable_from
    )


def append(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


async def test_an_attempt_that_could_not_be_started_has_failed(run: Runner, double: Double) -> None:
    """And nobody else held it. Slurm has counted another restart by then; it may have been seen running."""
    double.set(state=JobState.PENDING, nodes=(), held=True, reason=LAUNCH_FAILED, restart_count=1)
    assert "could not start" in await run.fails(verify_running, given(), RESUME_FAILED)
    assert "could not start" in await run.fails(verify_resume, given(), RESUME_FAILED)


async def test_who_requeued_it_is_told_once_its_nodes_are_free(run: Runner, double: Double) -> None:
    """The scheduler, which could not launch what it had shown as running, or a person."""
    double.set(state=JobState.COMPLETING, restart_count=1)
    for verify in (verify_running, verify_resume):
        assert "not known" in await run.fails(verify, given(), NOT_YET)
    double.set(state=JobState.PENDING, nodes=(), restart_count=1)
    for verify in (verify_running, verify_resume):
        assert "started again" in await run.fails(verify, given(), ATTEMPT_CHANGED)


async def test_from_the_first_step_to_the_proof(run: Runner, log: Path) -> None:
    verify = given(log)
    assert "no step" in await run.fails(verify_resume, verify, NOT_YET)
    append(log, step_lines(121, 123))
    assert "last step was 123" in await run.fails(verify_resume, verify, NOT_YET)
    append(log, step_lines(124, 125))
    await run.fails(verify_resume, verify, NOT_YET)
    append(log, step_line(126))
    result = await run(verify_resume, verify)
    assert (result.verdict, result.first_step, result.passed_step) == ("resumed", 121, 126)
    assert result.at is not None


async def test_what_was_read_is_not_read_again(run: Runner, log: Path) -> None:
    verify = given(log)
    append(log, step_lines(121, 123))
    await run.fails(verify_resume, verify, NOT_YET)
    assert run.details[0]["marks"][0]["size"] == log.stat().st_size


async def test_a_lost_heartbeat_begins_again_at_the_marks(run: Runner, log: Path) -> None:
    verify = given(log)
    append(log, step_lines(121, 123))
    await run.fails(verify_resume, verify, NOT_YET)
    run.details = []
    append(log, step_lines(124, 126))
    assert (await run(verify_resume, verify)).first_step == 121


async def test_the_log_is_truncated_after_the_first_look(run: Runner, log: Path) -> None:
    verify = given(log)
    await run.fails(verify_resume, verify, NOT_YET)
    log.write_text("starting\n" + step_lines(121, 123))
    await run.fails(verify_resume, verify, NOT_YET)
    append(log, step_lines(124, 300))  # longer than the old one
    assert (await run(verify_resume, verify)).first_step == 121


async def test_started_from_scratch(run: Runner, log: Path) -> None:
    verify = given(log)
    append(log, step_lines(1, 2))
    result = await run(verify_resume, verify)
    assert result.verdict == "from_scratch"
    assert "120" in result.summary


async def test_the_attempt_ends_first(run: Runner, double: Double, log: Path) -> None:
    verify = given(log)
    append(log, step_lines(121, 123))
    double.set(state=JobState.FAILED, exit_code=1)
    with pytest.raises(ApplicationError) as caught:
        await run(verify_resume, verify)
    assert caught.value.type == RESUME_FAILED
    details = VerifyResult.model_validate(caught.value.details[0])
    assert (details.verdict, details.first_step) == ("ended", 121)


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED])
async def test_an_attempt_that_ended_after_the_proof_has_resumed(
    run: Runner, double: Double, log: Path, state: JobState
) -> None:
    verify = given(log)
    append(log, step_lines(121, 130))
    double.set(state=state)
    assert (await run(verify_resume, verify)).verdict == "resumed"


async def test_cancelled_or_restarted_by_somebody(run: Runner, double: Double, log: Path) -> None:
    verify = given(log)
    double.set(state=JobState.CANCELLED)
    await run.fails(verify_resume, verify, ATTEMPT_CHANGED)
    double.set(state=JobState.RUNNING, restart_count=1)
    await run.fails(verify_resume, verify, ATTEMPT_CHANGED)


async def test_no_log(run: Runner, double: Double) -> None:
    assert "no log" in await run.fails(verify_resume, given(), NOT_YET)
    double.lose["job"] = "before"
    await run.fails(verify_resume, given(), UNREACHABLE)


def numbers(first: int, last: int, loss: float | str) -> str:
    return "".join(step_line(n).replace("1.23E+00", str(loss)) for n in range(first, last + 1))


async def test_which_checkpoint_it_says_it_loaded(run: Runner, log: Path) -> None:
    verify = given(log)
    append(log, "loaded checkpoint /run/checkpoints/step_00000110 at step 110\n" + step_lines(119, 126))
    result = await run(verify_resume, verify)
    assert (result.verdict, result.loaded_step) == ("older_checkpoint", 110)
    assert result.loaded.endswith("step_00000110")


async def test_a_loss_that_is_no_number_is_no_progress(run: Runner, log: Path) -> None:
    verify = given(log)
    append(log, step_lines(121, 125) + numbers(126, 127, "NaN"))
    assert "look wrong" in await run.fails(verify_resume, verify, NOT_YET)
    append(log, numbers(128, 128, "NaN"))
    result = await run(verify_resume, verify)
    assert result.verdict == "diverged"
    assert "since step 126" in result.summary


async def test_an_attempt_that_ends_after_a_nan_diverged(run: Runner, double: Double, log: Path) -> None:
    verify = given(log)
    append(log, step_lines(121, 122) + numbers(123, 123, "NaN"))
    double.set(state=JobState.FAILED, exit_code=1)
    assert (await run(verify_resume, verify)).verdict == "diverged"


@pytest.mark.parametrize("truncated", [False, True])
async def test_the_counter_goes_on_with_new_weights(run: Runner, log: Path, truncated: bool) -> None:
    verify = given(log).model_copy(update={"failed_loss": 1.2})
    if truncated:
        log.write_text("")
    append(log, numbers(121, 126, 9.5))
    if truncated:  # only the last loss before the fault is known
        assert "look wrong" in await run.fails(verify_resume, verify, NOT_YET)
        append(log, numbers(127, 127, 9.4))
    result = await run(verify_resume, verify)
    assert result.verdict == "diverged"
    assert "before the fault" in result.summary
