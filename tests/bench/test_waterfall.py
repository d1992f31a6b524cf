"""Where the time goes: the pieces of a run, what histories tell, the profile, its plot, and the page."""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory

from bench import page, results
from bench.faults import sections
from bench.faults.history import read_recovery, when_told
from bench.faults.plots import digest, draw
from bench.faults.profile import main, newest
from bench.faults.record import Recovery, Run, Span, StepTime
from bench.faults.report import in_words
from bench.faults.runner import first_steps
from bench.faults.stage import STARTS_FILE
from bench.faults.waterfall import by_scenario, profile, waterfall, waterfalls
from relight.contracts import Outcome
from relight.contracts.outcome import Timeline
from tests.bench.test_faults import a_run, after, recovery
from tests.workflows.conftest import HISTORIES

KEPT = results.DIRECTORY / "faults-2026-12-02.json"


def step(name: str, scheduled: float, ended: float) -> StepTime:
    return StepTime(step=name, scheduled=after(scheduled), ended=after(ended))


def one_recovery(*steps: StepTime, outcome: Outcome = Outcome.RESUMED, **times: float) -> Recovery:
    timeline = Timeline(**{name: after(at) for name, at in times.items()})
    return recovery(outcome, times=timeline).model_copy(update={"steps": steps})


STEPS = (
    step("confirm_fault", 4, 5),
    step("locate_checkpoint", 5, 6),
    step("notify", 6.5, 20),
    step("drain_job", 12, 13),
    step("wait_nodes_free", 13, 15),
    step("locate_checkpoint", 15, 15.5),
    step("resubmit", 16, 17),
    step("verify_running", 17, 19),
    step("verify_resume", 19.5, 30),
    step("archive_recovery", 31, 32),
)
TIMES = {"detected": 1.0, "approved": 9.0, "acted": 12.5, "running": 18.5, "productive": 29.5}
PLAIN = a_run("nan", one_recovery(*STEPS, **TIMES))
FULL = PLAIN.model_copy(
    update={
        "first_steps": (after(-60), after(26)),
        "recoveries": (
            PLAIN.recoveries[0].model_copy(
                update={
                    "told": after(1.5),
                    "began": after(3.5),
                    "permit": Span(began=after(9.5), ended=after(11)),
                }
            ),
        ),
    }
)
AGAIN = a_run(
    "bad-node",
    one_recovery(
        step("confirm_fault", 2, 3), step("verify_running", 3, 4), step("verify_resume", 4, 9),
        outcome=Outcome.FAILED_AGAIN, detected=1, running=4,
    ),
    one_recovery(
        step("confirm_fault", 12, 13), step("verify_running", 13, 15), step("verify_resume", 15, 20),
        detected=10, running=15, productive=20,
    ),
)  # fmt: skip


def seconds(pieces: Sequence[Any]) -> list[tuple[str, float]]:
    return [(piece.name, round(piece.seconds, 3)) for piece in pieces]


# ---- one run -----------------------------------------------------------------------------------------------


def test_everything_that_was_noted_is_a_piece() -> None:
    fall = waterfall(FULL)
    assert fall is not None
    assert seconds(fall.to_running) == [
        ("detect", 1), ("tell the monitor", 0.5), ("settle window", 2), ("between steps", 0.5),
        ("confirm_fault", 1), ("locate_checkpoint", 1), ("wait for approval", 3), ("between steps", 0.5),
        ("wait for permit", 1.5), ("between steps", 1), ("drain_job", 1), ("wait_nodes_free", 2),
        ("locate_checkpoint", 0.5), ("between steps", 0.5), ("resubmit", 1), ("queue", 1.5),
    ]  # fmt: skip
    assert seconds(fall.to_productive) == [("load", 7.5), ("first steps", 3.5)]
    assert fall.seconds["between steps"] == 2.5


def test_what_was_not_noted_is_in_the_piece_beside_it() -> None:
    fall = waterfall(PLAIN)
    assert fall is not None
    assert seconds(fall.to_running)[:3] == [("detect", 1), ("settle window", 3), ("confirm_fault", 1)]
    assert seconds(fall.to_running)[4:6] == [("wait for approval", 3), ("between steps", 3)]
    assert seconds(fall.to_productive) == [("load and first steps", 11)]


def test_of_several_recoveries_all_are_in_it() -> None:
    fall = waterfall(AGAIN)
    assert fall is not None
    assert seconds(fall.to_running) == [
        ("detect", 1), ("settle window", 1), ("confirm_fault", 1), ("queue", 1),
        ("attempt that failed again", 5), ("attempt that failed again", 1), ("settle window", 2),
        ("confirm_fault", 1), ("queue", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("run", [PLAIN, FULL, AGAIN], ids=["plain", "full", "again"])
def test_the_pieces_are_the_whole_time(run: Run) -> None:
    check_whole(run)


def test_the_pieces_of_every_run_that_was_measured_are_its_whole_time() -> None:
    runs = sections.runs_of(results.read(KEPT))
    assert sum(check_whole(run) for run in runs if waterfall(run) is not None) == 41


def check_whole(run: Run) -> int:
    fall, last = waterfall(run), run.outcomes[-1].times
    assert fall is not None
    assert run.fault_at
    assert last.running
    assert last.productive
    assert fall.running == pytest.approx((last.running - run.fault_at).total_seconds())
    whole = (last.productive - run.fault_at).total_seconds()
    assert sum(fall.seconds.values()) == pytest.approx(whole)
    assert all(piece.seconds > 0 for piece in (*fall.to_running, *fall.to_productive))
    return 1


@pytest.mark.parametrize(
    "run",
    [
        a_run("healthy"),
        a_run("disk-full", one_recovery(outcome=Outcome.STOPPED, detected=1)),
        FULL.model_copy(update={"problem": "no Slurm"}),
        FULL.model_copy(update={"fault_at": None}),
    ],
    ids=["no recovery", "not running again", "spoiled", "no fault"],
)
def test_other_runs_have_no_pieces(run: Run) -> None:
    assert waterfall(run) is None


def test_a_job_that_never_got_on_has_pieces_until_it_ran() -> None:
    fall = waterfall(a_run("exception", one_recovery(*STEPS, **{**TIMES, "productive": 18.5})))
    assert fall is not None
    assert fall.running == 18.5
    assert fall.to_productive == ()


# ---- many runs ---------------------------------------------------------------------------------------------


def test_the_profile_has_the_largest_piece_first() -> None:
    rows = {row["piece"]: row for row in profile(waterfalls([FULL, AGAIN, a_run("healthy")]))}
    totals = [row["seconds"] for row in rows.values()]
    assert totals == sorted(totals, reverse=True)
    assert sum(row["share"] for row in rows.values()) == pytest.approx(1, abs=0.01)
    to_running = [row["share_to_running"] for row in rows.values() if row["share_to_running"] is not None]
    assert sum(to_running) == pytest.approx(1, abs=0.01)
    queue = rows["queue"]  # 1.5 s, and 1 + 2 s
    assert (queue["seconds"], queue["p50"], queue["p95"], queue["max"], queue["runs"]) == (4.5, 1.5, 3, 3, 2)
    assert (rows["load"]["share_to_running"], rows["load"]["whose"]) == (None, "the job")


def test_a_scenario_has_the_median_of_each_piece() -> None:
    slow = a_run("nan", one_recovery(*STEPS, **{**TIMES, "detected": 3}))
    medians = by_scenario(waterfalls([PLAIN, slow, AGAIN]))
    assert list(medians) == ["nan", "bad-node"]
    assert medians["nan"]["detect"] == 2
    assert list(medians["nan"])[:3] == ["detect", "settle window", "confirm_fault"]
    assert by_scenario(waterfalls([PLAIN, FULL]))["nan"]["wait for permit"] == 0.75  # one run has none


# ---- what histories tell -----------------------------------------------------------------------------------


def events(name: str) -> Sequence[Any]:
    return WorkflowHistory.from_json("any", (HISTORIES / f"{name}.json").read_text()).events


def test_a_history_tells_the_beginning_the_permit_and_each_step() -> None:
    noted = read_recovery(events("permit_waited_for.1.recovery"))
    assert noted.parent is None
    assert noted.permit is not None
    assert noted.permit.began < noted.permit.ended
    names = [s.step for s in noted.steps]
    assert names[:2] == ["confirm_fault", "locate_checkpoint"]
    assert "resubmit" in names
    assert all(s.started and noted.began < s.scheduled <= s.started <= s.ended for s in noted.steps)


def test_a_history_tells_how_often_a_step_was_tried() -> None:
    assert max(s.tries for s in read_recovery(events("held.0.recovery")).steps) > 1


@pytest.mark.parametrize("name", ["crash.0.recovery", "permit_refused.0.recovery"])
def test_a_permit_that_was_not_given_is_none(name: str) -> None:
    assert read_recovery(events(name)).permit is None


def test_a_history_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="does not begin"):
        read_recovery([])


def test_the_monitors_history_tells_when_it_heard_of_the_fault() -> None:
    monitor = events("crash_loop.0.monitor")
    noted = [read_recovery(events(f"crash_loop.{n}.recovery")) for n in (1, 2)]
    told = []
    since: datetime | None = datetime.min.replace(tzinfo=noted[0].began.tzinfo)
    for one in noted:
        assert one.parent is not None
        at = when_told(monitor, one.parent.event, since)
        assert at is not None
        assert at < one.began
        told.append(at)
        since = at + timedelta(microseconds=1)
    assert told[0] < told[1]
    assert noted[0].parent is not None
    assert when_told(monitor, noted[0].parent.event, noted[0].began) is None
    assert when_told(monitor, noted[0].parent.event, None) is None


def test_the_training_notes_its_first_steps(tmp_path: Path) -> None:
    assert first_steps(tmp_path) == ()
    (tmp_path / STARTS_FILE).write_text(f"{after(1).timestamp()}\n{after(9).timestamp()}\n")
    assert first_steps(tmp_path) == (after(1), after(9))
    source = (results.ROOT / "bench" / "faults" / "training.py").read_text()
    assert f'options.dir / "{STARTS_FILE}"' in source


# ---- the command and the plot ------------------------------------------------------------------------------


def result_of(*runs: Run, date: str = "2026-03-01") -> dict[str, Any]:
    kept: dict[str, Any] = json.loads(KEPT.read_text())
    return {**kept, "bench": "faults", "commit": date, "date": date, "summary": {},
            "runs": [run.model_dump(mode="json") for run in runs]}  # fmt: skip


def test_the_command_prints_a_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "faults-1.json"
    file.write_text(json.dumps(result_of(FULL, AGAIN)))
    assert main([str(file)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "2 runs in which the job ran again"
    assert told[2].split()[:2] == ["load", "the"]
    assert main([str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["pieces"] == profile(waterfalls([FULL, AGAIN]))
    assert found["scenarios"].keys() == {"nan", "bad-node"}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (result_of(a_run("healthy")), "in none of its runs"),
        (result_of() | {"bench": "scan"}, "bench.scan"),
        (result_of() | {"runs": [{"scenario": "nan"}]}, "number"),
        ({}, "lacks"),
    ],
)
def test_what_cannot_be_used_is_told(
    content: dict[str, Any], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "faults-1.json"
    file.write_text(json.dumps(content))
    assert main([str(file)]) == 1
    assert problem in capsys.readouterr().err


def test_the_newest_result_is_that_with_the_latest_date(tmp_path: Path) -> None:
    with pytest.raises(results.BadResult, match="make bench-faults"):
        newest(tmp_path)
    for name, date in (("faults-a.json", "2026-03-02"), ("faults-b.json", "2026-03-01T10:00:00+00:00")):
        (tmp_path / name).write_text(json.dumps(result_of(FULL, date=date)))
    assert newest(tmp_path).name == "faults-a.json"


def test_the_same_numbers_give_the_same_plot(tmp_path: Path) -> None:
    numbers = by_scenario(waterfalls([FULL, AGAIN]))
    drawn = []
    for name in ("1.svg", "2.svg"):
        draw(numbers, tmp_path / name)
        drawn.append((tmp_path / name).read_bytes())
    assert drawn[0] == drawn[1]
    assert digest(numbers).encode() in drawn[0]
    assert b"dc:date" not in drawn[0]


def test_the_plot_in_the_repository_is_made_of_the_newest_result() -> None:
    numbers = by_scenario(waterfalls(sections.runs_of(results.read(newest()))))
    drawn = (results.ROOT / "docs" / page.IMAGES / sections.PLOT).read_text()
    assert digest(numbers) in drawn, "run `make bench-page`"


# ---- the page ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "aim", "measured", "met", "words"),
    [
        ("crash detected, P50", 2.0, 1.29, True, "met, 0.71 s to spare"),
        ("acted after detection, P95", 3.0, 8.07, False, "MISSED by 5.07 s (169% more)"),
        ("recoverable that ended well, share", 0.95, 0.9, False, "MISSED by 5.0 percentage points"),
        ("unrecoverable that were stopped in time, share", 1.0, 1.0, True, "met"),
        ("false alarms per hour", 0.0, 1.5, False, "MISSED by 1.5 an hour"),
        ("false alarms per hour", 0.0, None, None, "not measured"),
    ],
)
def test_an_aim_says_by_how_much(
    name: str, aim: float, measured: float | None, met: bool | None, words: str
) -> None:
    assert in_words(name, {"aim": aim, "measured": measured, "met": met}) == words


def test_missed_aims_come_first_on_the_page() -> None:
    lines = sections.aims(results.read(KEPT)["summary"]["aims"])
    assert lines[0] == (
        "Of 8 measured aims 7 were met. Not met: acted after detection, P95, MISSED by 5.07 s (169% more)."
    )
    assert "| acted after detection, P95 | 3 | 8.07 | **MISSED by 5.07 s (169% more)** |" in lines


def test_one_result_has_no_before_and_after() -> None:
    text = page.page([result_of(FULL)])
    assert "## Where the time goes" in text
    assert f"](images/{sections.PLOT})" in text
    assert "| wait for permit | relight | 1.5 |" in text
    assert "- *wait for permit*: from the question" in text
    assert "## Before and after" not in text


def test_the_oldest_and_the_newest_are_compared_by_phase_and_by_piece() -> None:
    slow = a_run("nan", one_recovery(*STEPS, **{**TIMES, "detected": 3}))
    found = [result_of(FULL, date="2026-03-03"), result_of(slow, AGAIN, date="2026-03-01")]
    text = page.page([*found, result_of(a_run("healthy"), date="2026-03-02")])
    told = text.partition("## Before and after")[2]
    assert "Before: *2026-03-01" in told
    assert "After: *2026-03-03" in told
    assert "1 before, 1 after" in told  # bad-node is in one of them only
    assert "| fault → detected | 1 | 3 | 3 | 1 | 1 | 1 | -2.00 | -2.00 |" in told
    assert "| fault → running | 1 | 18.5 | 18.5 | 1 | 18.5 | 18.5 | +0.00 | +0.00 |" in told
    assert "| wait for permit | relight | 0 | – | – | 1 | 1.5 | 1.5 | – | – |" in told


def test_results_without_a_fault_in_common_are_not_compared() -> None:
    lines = sections.before_and_after(result_of(FULL), result_of(AGAIN))
    assert lines == ["The two results have no fault in common after which the job ran again."]


def test_a_result_in_which_nothing_ran_again_says_so() -> None:
    assert sections.where_the_time_goes(result_of(a_run("healthy")), "p.svg")[0].startswith("No run")
