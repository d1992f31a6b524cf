"""The pure parts of the fault suite: the table, the order of runs, verdicts, numbers and the page."""

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bench.faults.__main__ import read_options
from bench.faults.inject import INJECTORS, XIDS
from bench.faults.judge import judge, times
from bench.faults.plan import due
from bench.faults.record import Recovery, Run, StepTime, read_runs
from bench.faults.report import AIMS, judged, page, spread, summarize
from bench.faults.scenarios import BY_NAME, RECOVERABLE, SCENARIOS, Blame, Ending
from bench.faults.stage import JOB, START_FLOOR, TRAINING
from relight.contracts import Action, Attempt, Cause, Outcome, RecoveryOutcome, Symptom
from relight.contracts.messages import EndReason
from relight.contracts.outcome import Timeline

AT = datetime(2026, 3, 1, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def recovery(outcome: Outcome = Outcome.RESUMED, *, started: float = 0, **more: Any) -> Recovery:
    known = {
        "cause": Cause.DATA_LOADER,
        "action": Action.RESTART,
        "times": Timeline(
            occurred=after(started), detected=after(started + 1), acted=after(started + 3),
            running=after(started + 8),
            productive=after(started + 20),
        ),
    }  # fmt: skip
    attempt = Attempt(cluster="c", job_id="1", submit_time=AT, restart_count=0)
    ended = RecoveryOutcome(recovery_id="r", outcome=outcome, attempt=attempt, **(known | more))
    steps = (
        StepTime(step="wait_nodes_free", scheduled=after(started + 3), ended=after(started + 5)),
        StepTime(step="verify_running", scheduled=after(started + 7), ended=after(started + 8)),
    )
    return Recovery(recovery_id="r", outcome=ended, steps=steps)


def a_run(scenario: str, *recoveries: Recovery, **more: Any) -> Run:
    known: dict[str, Any] = {
        "number": 0, "began": AT, "jobs_at_once": 1, "victim": "node02", "fault_at": AT, "restarts": 1,
        "trains": True, "healthy_seconds": 60.0,
    }  # fmt: skip
    return Run(scenario=scenario, recoveries=recoveries, **(known | more))


# ---- the table ---------------------------------------------------------------------------------------------


def test_every_row_can_be_carried_out_and_judged() -> None:
    assert len(BY_NAME) == len(SCENARIOS)
    for row in SCENARIOS:
        injector, _, argument = row.inject.partition(":")
        assert injector in INJECTORS, row.name
        assert row.causes or row.ending in {Ending.UNTOUCHED, Ending.NOTICED}, row.name
        assert row.blame is not Blame.VICTIM or Action.RESTART_EXCLUDE_NODE in row.actions, row.name
        if injector == "xid":
            assert int(argument.split()[0]) in XIDS


def test_the_training_imports_the_standard_library_and_not_its_neighbours() -> None:
    names = {path.stem for path in TRAINING.parent.glob("*.py")}
    assert names & sys.stdlib_module_names, "nothing is shadowed any more: neither test nor setting is needed"
    assert "PYTHONSAFEPATH=1" in JOB


# ---- order and resumption ----------------------------------------------------------------------------------


def test_each_round_has_every_scenario_in_an_order_of_its_own() -> None:
    names = [s.name for s in SCENARIOS]
    plan = due(names, range(3), 1, [])
    rounds = [[name for name, n in plan if n == number] for number in range(3)]
    assert all(sorted(r) == sorted(names) for r in rounds)
    assert rounds[0] != rounds[1] != rounds[2]
    assert plan == due(names, range(3), 1, [])
    assert plan != due(names, range(3), 2, [])


def test_what_was_run_is_not_run_again_but_what_the_suite_spoiled_is() -> None:
    made = [a_run("hang"), a_run("nan", problem="no Slurm"), a_run("hang", number=1)]
    assert sorted(due(["hang", "nan"], range(2), 1, made)) == [("nan", 0), ("nan", 1)]


def test_runs_are_read_back_as_they_were_written(tmp_path: Any) -> None:
    run = a_run("exception", recovery(), end=EndReason.STOPPED, asked_at=AT)
    log = tmp_path / "log.jsonl"
    assert read_runs(log) == []
    log.write_text(run.model_dump_json() + "\n\n")
    assert read_runs(log) == [run]


# ---- verdicts ----------------------------------------------------------------------------------------------

EXCLUDED = {"cause": Cause.GPU_MEMORY_ECC, "action": Action.RESTART_EXCLUDE_NODE}
FAULTY = {"cause": Cause.STORAGE, "action": Action.STOP}
RIGHT = [
    a_run("exception", recovery()),
    a_run("cuda", recovery(excluded_nodes=("node02",), **EXCLUDED)),
    a_run("healthy", restarts=0),
    a_run("slow-rank", restarts=0, noticed=("slow",)),
    a_run("preemption"),
    a_run("scancel", restarts=0, trains=False, end=EndReason.CANCELLED),
    a_run("time-limit", restarts=0, trains=False, end=EndReason.TIME_LIMIT),
    a_run("disk-full", recovery(Outcome.STOPPED, **FAULTY), restarts=0, trains=False),
    a_run("nan", recovery(cause=Cause.NUMERICAL), asked_at=AT),
    a_run("bad-node", recovery(cause=Cause.UNKNOWN)),
]
WRONG = [
    ("detected", a_run("exception", restarts=0, trains=False)),
    ("cause", a_run("exception", recovery(cause=Cause.STORAGE))),
    ("node", a_run("exception", recovery(excluded_nodes=("node02",)))),
    ("node", a_run("cuda", recovery(excluded_nodes=("node07",), **EXCLUDED))),
    ("action", a_run("cuda", recovery(cause=Cause.GPU_MEMORY_ECC))),
    ("ended_well", a_run("exception", recovery(Outcome.FAILED_AGAIN))),
    ("ended_well", a_run("exception", recovery(), trains=False)),
    ("ended_well", a_run("healthy", restarts=1)),
    ("action", a_run("healthy", recovery(), restarts=1)),
    ("detected", a_run("slow-rank", restarts=0)),
    ("action", a_run("preemption", recovery())),
    ("cause", a_run("scancel", restarts=0, end=EndReason.STOPPED)),
    ("action", a_run("scancel", restarts=1, end=EndReason.CANCELLED)),
    ("ended_well", a_run("disk-full", recovery(Outcome.STOPPED, **FAULTY), restarts=2)),
    ("ended_well", a_run("nan", recovery(cause=Cause.NUMERICAL))),
    ("node", a_run("bad-node", recovery(cause=Cause.UNKNOWN), restarts=2)),
    ("node", a_run("bad-node", recovery(**{**EXCLUDED, "excluded_nodes": ("node07",)}))),
]


@pytest.mark.parametrize("run", RIGHT, ids=lambda run: run.scenario)
def test_what_is_right(run: Run) -> None:
    verdict = judge(BY_NAME[run.scenario], run)
    assert verdict.right, verdict
    assert verdict.wasted == 0


@pytest.mark.parametrize(("question", "run"), WRONG, ids=lambda v: v if isinstance(v, str) else v.scenario)
def test_what_is_wrong(question: str, run: Run) -> None:
    verdict = judge(BY_NAME[run.scenario], run)
    assert getattr(verdict, question) is False
    assert not verdict.right


def test_attempts_that_failed_again_are_wasted() -> None:
    run = a_run("exception", recovery(Outcome.FAILED_AGAIN), recovery(), restarts=3)
    assert judge(BY_NAME["exception"], run).wasted == 2


def test_times_run_from_the_first_detection_to_the_last_success() -> None:
    run = a_run("bad-node", recovery(Outcome.FAILED_AGAIN), recovery(started=30), restarts=2)
    took = times(run)
    assert (took.detected, took.acted, took.running, took.productive, took.total) == (1, 2, 35, 12, 50)
    assert took.slurm == 6  # twice two seconds on the nodes and one in the queue
    assert took.added == 2 * 8 - 6  # what the attempt in between did is its own


def test_the_silence_that_policy_allows_before_the_first_step_is_not_added_by_relight() -> None:
    late = Timeline(
        occurred=AT, detected=after(START_FLOOR + 1), acted=after(START_FLOOR + 2),
        running=after(START_FLOOR + 8), productive=after(START_FLOOR + 20),
    )  # fmt: skip
    run = a_run("hang-at-start", recovery(symptom=Symptom.HANG, cause=Cause.UNKNOWN, times=late))
    assert times(run).added == 8 - 3
    assert times(run).detected == START_FLOOR + 1


def test_a_persons_time_is_not_relights() -> None:
    run = a_run("nan", recovery(cause=Cause.NUMERICAL), asked_at=after(1), approved_at=after(2))
    took = times(run)
    assert (took.acted, took.added) == (1, 8 - 3 - 1)


def test_without_a_recovery_there_are_no_times() -> None:
    assert times(a_run("healthy")).total is None


# ---- numbers -----------------------------------------------------------------------------------------------


def test_a_spread_is_read_by_rank() -> None:
    assert spread([]) == {"n": 0}
    assert spread([3.0]) == {"n": 1, "P50": 3.0, "P95": 3.0, "P99": 3.0, "max": 3.0}
    assert spread([float(i) for i in range(1, 101)]) == {
        "n": 100,
        "P50": 50,
        "P95": 95,
        "P99": 99,
        "max": 100,
    }


def test_the_summary_compares_with_the_aims() -> None:
    summary = summarize([*RIGHT, a_run("hang", problem="no Slurm")])
    assert (summary["runs"], summary["spoiled_by_the_suite"]) == (len(RIGHT), 1)
    assert summary["scenarios"]["exception"]["right"] == "1/1"
    assert summary["scenarios"]["healthy"]["cause"] == ""
    assert summary["aims"].keys() == AIMS.keys()
    met = {name for name, aim in summary["aims"].items() if aim["met"]}
    assert met == AIMS.keys() - {"hang detected, max"}
    assert summary["aims"]["hang detected, max"]["met"] is None


def test_missed_aims_are_told() -> None:
    slow = {"times": Timeline(detected=after(30), acted=after(90), running=after(120), productive=after(130))}
    alarm = recovery(Outcome.REFUTED)
    runs = [
        a_run("hang", recovery(cause=Cause.UNKNOWN, **slow)),
        a_run("exception", recovery(**slow)),
        a_run("exception", recovery(Outcome.FAILED_AGAIN)),
        a_run("disk-full", recovery(**FAULTY), restarts=4),
        a_run("healthy", restarts=0, false_alarms=(alarm,)),
    ]
    summary = summarize(runs)
    assert {name for name, aim in summary["aims"].items() if aim["met"]} == {"crash detected, P50"}
    assert summary["aims"]["false alarms per hour"]["measured"] == pytest.approx(12)
    text = page(summary)
    assert text.count("MISSED") == len(AIMS) - 1
    assert "exception" in text


def test_a_judged_run_has_its_verdict_and_a_spoiled_one_has_none() -> None:
    assert judged(a_run("exception", recovery()))["verdict"]["right"] is True
    assert judged(a_run("exception", recovery()))["seconds"]["detected"] == 1
    assert judged(a_run("exception", problem="no Slurm"))["verdict"] == {}


def test_shares_count_what_can_be_recovered() -> None:
    assert {BY_NAME[n].ending for n in ("exception", "nan", "preemption")} == RECOVERABLE


# ---- the command -------------------------------------------------------------------------------------------


def test_a_log_is_not_mixed_up_with_another_suite(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.jsonl"
    assert read_options(["--log", str(log), "--only", "hang,nan"]).names == ["hang", "nan"]
    log.touch()
    assert read_options(["--log", str(log), "--resume"]).resume
    with pytest.raises(SystemExit):
        read_options(["--log", str(log)])
    assert "--resume" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        read_options(["--log", str(log), "--resume", "--only", "earthquake"])
    assert "no scenario earthquake" in capsys.readouterr().err
