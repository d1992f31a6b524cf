import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from activities.confirm_fault import confirm_fault
from relight.contracts import Cause, Diagnosis, JobState, Progress, Symptom, TrainingJob
from relight.contracts.steps import ATTEMPT_CHANGED, NOT_YET, UNREACHABLE, ConfirmInput
from relight.diagnosis.verdict import NO_FIRST_STEP
from relight.policy.holds import LAUNCH_FAILED
from tests.activities.conftest import Runner, step_line, step_lines, training
from tests.activities.double import T0, Double, running

INTERVAL = timedelta(seconds=0.1)


def given(
    symptom: Symptom = Symptom.CRASH,
    *,
    step: int | None = 125,
    ago: float = 0,
    interval: timedelta | None = INTERVAL,
    job: TrainingJob | None = None,
) -> ConfirmInput:
    """A fault that began so many seconds ago, after this step."""
    at = datetime.now(UTC) - timedelta(seconds=ago)
    progress = None if step is None else Progress(step=step, at=at, interval=interval)
    diagnosis = Diagnosis(
        symptom=symptom,
        cause=Cause.UNKNOWN,
        retryable=True,
        occurred_at=at,
        detected_at=at,
        progress=progress,
    )
    return ConfirmInput(job=job or training(), diagnosis=diagnosis)


@pytest.fixture
def log(tmp_path: Path, double: Double) -> Path:
    path = tmp_path / "train.log"
    path.write_text(step_lines(120, 125))
    double.set(std_out=str(path))
    return path


# ---- the scheduler's word


@pytest.mark.parametrize(
    "fields",
    [
        {"state": JobState.FAILED, "exit_code": 1},
        {"state": JobState.OUT_OF_MEMORY},
        {"state": JobState.NODE_FAIL},
        {"state": JobState.COMPLETING, "reason": "NonZeroExitCode"},
    ],
)
async def test_a_failed_attempt_confirms(run: Runner, double: Double, fields: dict[str, Any]) -> None:
    double.set(**fields)
    result = await run(confirm_fault, given())
    assert result.verdict == "confirmed"
    assert result.job_info is not None
    assert result.observations[0].verdict == "confirms"
    assert result.observations[0].evidence


async def test_a_confirmed_fault_tells_how_large_the_partition_is(run: Runner, double: Double) -> None:
    double.set(state=JobState.FAILED, exit_code=1)
    double.partitions = {"gpu": 640}
    what = given()
    for partition, size in (("gpu", 640), ("cpu", None), ("", None)):
        job = what.job.model_copy(update={"partition": partition})
        result = await run(confirm_fault, what.model_copy(update={"job": job}))
        assert (result.verdict, result.partition_nodes) == ("confirmed", size)


async def test_a_fault_is_confirmed_where_the_partition_cannot_be_asked_about(
    run: Runner, double: Double
) -> None:
    double.set(state=JobState.FAILED, exit_code=1)
    double.lose["partition_size"] = "before"
    what = given()
    job = what.job.model_copy(update={"partition": "gpu"})
    result = await run(confirm_fault, what.model_copy(update={"job": job}))
    assert (result.verdict, result.partition_nodes) == ("confirmed", None)


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (JobState.COMPLETED, "completed"),
        (JobState.CANCELLED, "cancelled"),
        (JobState.TIMEOUT, "time limit"),
        (JobState.PREEMPTED, "preempted"),
    ],
)
async def test_an_end_that_is_no_fault(run: Runner, double: Double, state: JobState, word: str) -> None:
    double.set(state=state)
    assert word in await run.fails(confirm_fault, given(), ATTEMPT_CHANGED)


@pytest.mark.parametrize("state", [JobState.COMPLETING, JobState.UNKNOWN])
async def test_how_it_ends_is_not_known_yet(run: Runner, double: Double, state: JobState) -> None:
    double.set(state=state)
    await run.fails(confirm_fault, given(), NOT_YET)


async def test_what_the_scheduler_could_not_start_confirms(run: Runner, double: Double) -> None:
    double.set(state=JobState.PENDING, nodes=(), held=True, reason=LAUNCH_FAILED)
    result = await run(confirm_fault, given())
    assert result.verdict == "confirmed"
    assert "could not start" in result.summary
    double.set(reason="JobHeldUser")
    assert (await run(confirm_fault, given())).verdict == "refuted"


async def test_a_suspended_job_does_not_hang(run: Runner, double: Double) -> None:
    double.set(state=JobState.SUSPENDED)
    assert (await run(confirm_fault, given(Symptom.HANG))).verdict == "refuted"
    await run.fails(confirm_fault, given(Symptom.CRASH), NOT_YET)


async def test_unreachable_concludes_nothing(run: Runner, double: Double) -> None:
    double.lose["job"] = "before"
    await run.fails(confirm_fault, given(), UNREACHABLE)


@pytest.mark.parametrize("symptom", [Symptom.CRASH, Symptom.HANG, Symptom.DEGRADED])
async def test_a_lost_node_confirms(run: Runner, double: Double, symptom: Symptom) -> None:
    double.lost_nodes = {"n2", "n4"}  # n4 is not the job's
    result = await run(confirm_fault, given(symptom))
    assert result.verdict == "confirmed"
    assert result.nodes_lost == ("n2",)


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.RUNNING, JobState.COMPLETING])
async def test_the_schedulers_own_requeue_after_node_loss_confirms(
    run: Runner, double: Double, state: JobState
) -> None:
    double.lost_nodes = {"n2"}
    double.set(restart_count=1, submit_time=T0 + timedelta(hours=1), state=state, nodes=("n3",))
    result = await run(confirm_fault, given())
    assert result.verdict == "confirmed"
    assert result.nodes_lost == ("n2",)


@pytest.mark.parametrize(
    ("lost", "fields"),
    [
        (set(), {"restart_count": 1}),
        ({"n3"}, {"restart_count": 1}),
        ({"n2"}, {"restart_count": 1, "state": JobState.PENDING, "held": True}),
        ({"n2"}, {"restart_count": 2}),
        ({"n2"}, {"restart_count": 1, "state": JobState.CANCELLED}),
        (set(), {"submit_time": T0 + timedelta(days=1)}),
    ],
)
async def test_anybody_elses_requeue_is_not_ours(
    run: Runner, double: Double, lost: set[str], fields: dict[str, Any]
) -> None:
    double.lost_nodes = lost
    double.set(**fields)
    await run.fails(confirm_fault, given(), ATTEMPT_CHANGED)


async def test_forgotten_by_the_scheduler(run: Runner, double: Double) -> None:
    double.known.clear()
    result = await run(confirm_fault, given())
    assert result.verdict == "inconclusive"
    assert [o.verdict for o in result.observations] == ["unknown", "not available"]
    double.accounting = {"42": running(state=JobState.FAILED)}
    assert (await run(confirm_fault, given())).verdict == "confirmed"
    double.accounting["42"] = running(state=JobState.COMPLETED)
    await run.fails(confirm_fault, given(), ATTEMPT_CHANGED)


async def test_slowness_needs_a_source_that_is_not_there(run: Runner, log: Path) -> None:
    assert (await run(confirm_fault, given(Symptom.SLOW))).verdict == "inconclusive"


# ---- the logs of a job that still runs


async def test_a_hang_is_confirmed_by_silence(run: Runner, log: Path) -> None:
    result = await run(confirm_fault, given(Symptom.HANG, ago=60))
    assert result.verdict == "confirmed"
    assert "step 125" in result.summary
    assert result.observations[-1].source == "job_log"


async def test_a_hang_with_a_later_step_is_refuted(run: Runner, log: Path) -> None:
    with log.open("a") as file:
        file.write(step_line(126))
    assert (await run(confirm_fault, given(Symptom.HANG, ago=60))).verdict == "refuted"


async def test_an_earlier_attempt_in_the_same_file_refutes_nothing(run: Runner, log: Path) -> None:
    log.write_text(step_lines(120, 130) + step_lines(121, 125))
    assert (await run(confirm_fault, given(Symptom.HANG, ago=60))).verdict == "confirmed"


@pytest.mark.parametrize("symptom", [Symptom.HANG, Symptom.CRASH])
async def test_silence_must_last(run: Runner, log: Path, symptom: Symptom) -> None:
    assert "of 2 s" in await run.fails(confirm_fault, given(symptom, ago=1), NOT_YET)
    assert (await run(confirm_fault, given(symptom, ago=2.5))).verdict == "confirmed"


async def test_silence_must_last_two_learned_intervals(run: Runner, log: Path) -> None:
    slow = timedelta(seconds=20)
    await run.fails(confirm_fault, given(ago=30, interval=slow), NOT_YET)
    assert (await run(confirm_fault, given(ago=41, interval=slow))).verdict == "confirmed"


@pytest.mark.parametrize(
    ("lines", "needed"),
    [
        (step_lines(120, 125), 2),  # every 0.1 s: the shortest silence
        (step_lines(1, 125), 2),
        ("".join(map(step_line, range(25, 126, 25))), 5),  # every 25 steps, that is 2.5 s
        (step_lines(124, 125), 15),  # too few to tell
        ("step 120 loss 1.0\nstep 125 loss 1.0\n", 15),
    ],
)
async def test_where_no_interval_was_learned_the_log_may_tell_it(
    run: Runner, log: Path, lines: str, needed: int
) -> None:
    log.write_text(lines)
    fault = given(interval=None, ago=needed - 0.8)
    assert f"of {needed} s" in await run.fails(confirm_fault, fault, NOT_YET)
    assert (await run(confirm_fault, given(interval=None, ago=needed + 0.5))).verdict == "confirmed"


@pytest.mark.parametrize("symptom", [Symptom.HANG, Symptom.CRASH])
async def test_steps_that_come_between_two_tries_refute(run: Runner, log: Path, symptom: Symptom) -> None:
    fault = given(symptom, ago=1)
    await run.fails(confirm_fault, fault, NOT_YET)
    with log.open("a") as file:
        file.write(step_line(126))
    assert (await run(confirm_fault, fault)).verdict == "refuted"


async def test_a_training_that_restarts_itself_within_the_job_refutes(run: Runner, log: Path) -> None:
    fault = given(ago=1)
    await run.fails(confirm_fault, fault, NOT_YET)
    with log.open("a") as file:
        file.write(step_line(121))
    assert (await run(confirm_fault, fault)).verdict == "refuted"


def written(log: Path, ago: float) -> None:
    """The file was last written so many seconds ago."""
    at = time.time() - ago
    os.utime(log, (at, at))


def looked(run: Runner, ago: float) -> None:
    """Makes the first look one of so many seconds ago."""
    run.details[0]["at"] = (datetime.now(UTC) - timedelta(seconds=ago)).isoformat()


async def test_steps_written_just_before_a_crash_do_not_refute_it(run: Runner, log: Path) -> None:
    fault = given(step=123, ago=60)  # the sensor saw the traceback before the last steps
    await run.fails(confirm_fault, fault, NOT_YET)
    looked(run, 3)
    assert (await run(confirm_fault, fault)).verdict == "confirmed"


@pytest.mark.parametrize("step", [None, 123])
async def test_what_no_sensor_saw_is_silent_since_the_log_was_written(
    run: Runner, log: Path, step: int | None
) -> None:
    """A clock of a file system is believed only with two looks, a step apart and half a second at least."""
    fault = given(step=step, ago=600)
    written(log, 1.7)
    assert "2 s of 2 s" in await run.fails(confirm_fault, fault, NOT_YET)
    looked(run, 0.45)
    written(log, 60)
    await run.fails(confirm_fault, fault, NOT_YET)  # what counts is when the first look found it written
    run.details[0]["written"] = (datetime.now(UTC) - timedelta(seconds=2.1)).isoformat()
    looked(run, 0.1)
    await run.fails(confirm_fault, fault, NOT_YET)
    looked(run, 0.6)
    assert (await run(confirm_fault, fault)).verdict == "confirmed"


async def test_a_log_of_the_future_is_as_old_as_our_look(run: Runner, log: Path) -> None:
    fault = given(step=None, ago=600)
    written(log, -3600)
    assert "0 s of 2 s" in await run.fails(confirm_fault, fault, NOT_YET)
    looked(run, 3)
    assert (await run(confirm_fault, fault)).verdict == "confirmed"


async def test_a_silence_that_is_soon_long_enough_is_looked_at_just_then(run: Runner, log: Path) -> None:
    for ago, after in ((1.0, 1.0), (0.5, 1.5)):
        error = await run.error(confirm_fault, given(ago=ago))
        assert error.next_retry_delay is not None
        assert error.next_retry_delay.total_seconds() == pytest.approx(after, abs=0.3)
    far = given(ago=1.0, interval=timedelta(seconds=10))
    assert (await run.error(confirm_fault, far)).next_retry_delay is None


async def test_without_a_known_step_silence_counts_from_our_look(run: Runner, log: Path) -> None:
    fault = given(step=None, ago=600)
    assert "0 s of 2 s" in await run.fails(confirm_fault, fault, NOT_YET)
    looked(run, 3)
    assert (await run(confirm_fault, fault)).verdict == "confirmed"


def start(step: int | None) -> ConfirmInput:
    """An attempt that has made no step, and whose log has been silent for ten minutes."""
    fault = given(Symptom.HANG, step=step, ago=600, interval=None)
    diagnosis = fault.diagnosis.model_copy(update={"rules": ((NO_FIRST_STEP,),)})
    return fault.model_copy(update={"diagnosis": diagnosis})


@pytest.mark.parametrize(
    ("step", "earlier"), [(None, "importing torch\n"), (130, step_lines(120, 130)), (None, "")]
)
async def test_a_hang_before_the_first_step_is_confirmed_by_a_log_that_stays_silent(
    run: Runner, log: Path, step: int | None, earlier: str
) -> None:
    log.write_text(earlier)
    assert "0 s of 15 s" in await run.fails(confirm_fault, start(step), NOT_YET)
    looked(run, 16)
    result = await run(confirm_fault, start(step))
    assert result.verdict == "confirmed"
    assert "its log has been silent for 600 s with no step" in result.summary


async def test_a_hang_before_the_first_step_is_confirmed_at_once_where_the_log_is_old(
    run: Runner, log: Path
) -> None:
    log.write_text("importing torch\n")
    written(log, 600)
    await run.fails(confirm_fault, start(None), NOT_YET)
    looked(run, 0.6)
    assert (await run(confirm_fault, start(None))).verdict == "confirmed"


@pytest.mark.parametrize("line", ["loading shard 7 of 9\n", step_line(121)])
async def test_a_hang_before_the_first_step_is_refuted_by_whatever_is_written(
    run: Runner, log: Path, line: str
) -> None:
    await run.fails(confirm_fault, start(125), NOT_YET)
    with log.open("a") as file:
        file.write(line)
    assert (await run(confirm_fault, start(125))).verdict == "refuted"


async def test_no_log_can_be_read(run: Runner, double: Double) -> None:
    assert "no log" in await run.fails(confirm_fault, given(Symptom.HANG, ago=600), NOT_YET)


async def test_the_job_fails_while_it_is_watched(run: Runner, double: Double, log: Path) -> None:
    fault = given(ago=0)
    await run.fails(confirm_fault, fault, NOT_YET)
    double.set(state=JobState.FAILED)
    assert (await run(confirm_fault, fault)).verdict == "confirmed"


# ---- wrong numbers


def numerical() -> ConfirmInput:
    wrong = given(Symptom.DEGRADED)
    return wrong.model_copy(
        update={"diagnosis": wrong.diagnosis.model_copy(update={"cause": Cause.NUMERICAL})}
    )


@pytest.mark.parametrize(
    ("steps", "verdict"),
    [
        (range(126, 129), "confirmed"),
        (range(121, 124), "confirmed"),  # another attempt, which has not come so far yet
        (range(126, 128), "inconclusive"),
        (range(0), "inconclusive"),
    ],
)
async def test_a_loss_that_is_no_number_now(run: Runner, log: Path, steps: range, verdict: str) -> None:
    with log.open("a") as file:
        file.write("".join(step_line(step).replace("1.23E+00", "NaN") for step in steps))
    result = await run(confirm_fault, numerical())
    assert result.verdict == verdict
    assert result.observations[-1].source == "job_log"
