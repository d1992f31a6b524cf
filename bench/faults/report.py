"""From runs to numbers, and from numbers to a page. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.faults.judge import Times, judge, times
from bench.faults.record import Run
from bench.faults.scenarios import BY_NAME, RECOVERABLE, SCENARIOS, Ending, Group
from bench.faults.stage import HANG_FLOOR, START_FLOOR, STEP_SECONDS
from bench.scale.fit import quantile

PHASES = ("detected", "acted", "running", "productive", "total", "added", "slurm")
AIMS: Mapping[str, float] = {
    "crash detected, P50": 2.0,
    "crash detected, P99": 10.0,
    "hang detected, max": 3 * STEP_SECONDS + 5.0,
    "acted after detection, P95": 3.0,
    "added between fault and running, P95": 15.0,
    "recoverable that ended well, share": 0.95,
    "unrecoverable that were stopped in time, share": 1.0,
    "false alarms per hour": 0.0,
}
"""Seconds, shares and rates; shares are aims from below, all else from above."""


def spread(values: Sequence[float]) -> dict[str, float | int]:
    """P50, P95, P99 and the largest, by rank: with few values the last ones are the same."""
    if not values:
        return {"n": 0}
    ranks = {f"P{round(q * 100)}": round(quantile(values, q), 2) for q in (0.5, 0.95, 0.99)}
    return {"n": len(values), **ranks, "max": round(max(values), 2)}


def summarize(runs: Iterable[Run]) -> dict[str, Any]:
    """All numbers of the suite."""
    all_runs = list(runs)
    good = [run for run in all_runs if not run.problem]
    return {
        "runs": len(good),
        "spoiled_by_the_suite": len(all_runs) - len(good),
        "scenarios": {s.name: _of_scenario(mine) for s in SCENARIOS if (mine := _of(good, s.name))},
        "spreads": {
            group.value: {phase: _spread_of(_in(good, group), phase) for phase in PHASES} for group in Group
        },
        "aims": _aims(good),
        "healthy_hours": round(sum(run.healthy_seconds for run in good) / 3600, 3),
        "false_alarms": [alarm.recovery_id for run in good for alarm in run.false_alarms],
        "job_start_seconds": spread([run.start_seconds for run in good if run.start_seconds]),
        "load": spread([run.load for run in good]),
    }


def _of(runs: Sequence[Run], name: str) -> list[Run]:
    return [run for run in runs if run.scenario == name]


def _in(runs: Sequence[Run], group: Group) -> list[Run]:
    return [run for run in runs if BY_NAME[run.scenario].group is group]


def _spread_of(runs: Sequence[Run], phase: str) -> dict[str, float | int]:
    return spread([value for run in runs if (value := getattr(times(run), phase)) is not None])


def _of_scenario(runs: Sequence[Run]) -> dict[str, Any]:
    scenario = BY_NAME[runs[0].scenario]
    verdicts = [judge(scenario, run) for run in runs]
    return {
        "n": len(runs),
        "expected": scenario.ending.value,
        **{
            question: _count([getattr(v, question) for v in verdicts])
            for question in ("detected", "cause", "node", "action", "ended_well", "right")
        },
        "wasted_attempts": sum(v.wasted for v in verdicts),
        "beyond_expected": sum(max(0, v.wasted - scenario.wasted) for v in verdicts),
        "seconds": {phase: _spread_of(runs, phase) for phase in PHASES},
    }


def _count(answers_of_all: Sequence[bool | None]) -> str:
    """`3/4`; empty where the question does not arise."""
    answers = [answer for answer in answers_of_all if answer is not None]
    return f"{sum(answers)}/{len(answers)}" if answers else ""


def _aims(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    well = [(BY_NAME[run.scenario].ending, judge(BY_NAME[run.scenario], run).ended_well) for run in runs]
    recoverable = [w for ending, w in well if ending in RECOVERABLE]
    unrecoverable = [w for ending, w in well if ending is Ending.STOPPED]
    acting = [run for run in runs if BY_NAME[run.scenario].ending is Ending.RESUMED]
    hours = sum(run.healthy_seconds for run in runs) / 3600
    alarms = sum(len(run.false_alarms) for run in runs)
    crash, hang = (_spread_of(_in(runs, g), "detected") for g in (Group.CRASH, Group.HANG))
    measured: dict[str, float | int | None] = {
        "crash detected, P50": crash.get("P50"),
        "crash detected, P99": crash.get("P99"),
        "hang detected, max": hang.get("max"),
        "acted after detection, P95": _spread_of(acting, "acted").get("P95"),
        "added between fault and running, P95": _spread_of(acting, "added").get("P95"),
        "recoverable that ended well, share": _share(recoverable),
        "unrecoverable that were stopped in time, share": _share(unrecoverable),
        "false alarms per hour": round(alarms / hours, 2) if hours else None,
    }
    return {
        name: {"aim": aim, "measured": measured[name], "met": _met(name, measured[name], aim)}
        for name, aim in AIMS.items()
    }


def _share(answers: Sequence[bool]) -> float | None:
    return round(sum(answers) / len(answers), 3) if answers else None


def _met(name: str, value: float | None, aim: float) -> bool | None:
    if value is None:
        return None
    return value >= aim if name.endswith("share") else value <= aim


def in_words(name: str, aim: Mapping[str, Any]) -> str:
    """Whether an aim was met, and by how much: `MISSED by 5.07 s (169% more)`, `met, 0.71 s to spare`.

    Args:
        name: a key of `AIMS`.
        aim: its `aim`, `measured` and `met`.
    """
    if aim["met"] is None:
        return "not measured"
    off = round(abs(aim["measured"] - aim["aim"]), 3)
    if name.endswith("share"):
        amount = f"{off * 100:.1f} percentage points"
    else:
        amount = f"{off:g} an hour" if name.endswith("hour") else f"{off:.2f} s"
    if aim["met"]:
        return f"met, {amount} to spare" if off else "met"
    more = f" ({off / aim['aim']:.0%} more)" if amount.endswith(" s") else ""
    return f"MISSED by {amount}{more}"


def page(summary: Mapping[str, Any]) -> str:
    """The summary for people."""
    lines = [
        f"{summary['runs']} runs ({summary['spoiled_by_the_suite']} more were spoiled by the suite itself), "
        f"{summary['healthy_hours']} h of healthy training, {len(summary['false_alarms'])} false alarms",
        f"hang floor {HANG_FLOOR:.0f} s, start floor {START_FLOOR:.0f} s, a step {STEP_SECONDS} s; "
        f"a job starts in {summary['job_start_seconds'].get('P50')} s (P50); load {summary['load']}",
        "",
        f"{'scenario':22} {'expected':10} {'found':>6} {'cause':>6} {'node':>6} {'action':>6} {'well':>6} "
        f"{'wasted':>6}  detected P50/max  added P50/max  slurm P50  total P50 (s)",
    ]
    for name, row in summary["scenarios"].items():
        s = row["seconds"]
        lines.append(
            f"{name:22} {row['expected']:10} {row['detected']:>6} {row['cause']:>6} {row['node']:>6} "
            f"{row['action']:>6} {row['ended_well']:>6} {row['wasted_attempts']:>6}  "
            f"{_two(s['detected']):>16} {_two(s['added']):>14} {s['slurm'].get('P50', ''):>10} "
            f"{s['total'].get('P50', ''):>10}"
        )
    lines += ["", f"{'aim':50} {'at':>7} {'measured':>9}"]
    for name, aim in summary["aims"].items():
        shown = "" if aim["measured"] is None else aim["measured"]
        lines.append(f"{name:50} {aim['aim']:>7} {shown:>9}  {in_words(name, aim)}")
    return "\n".join(lines)


def _two(values: Mapping[str, float]) -> str:
    return f"{values['P50']:.1f}/{values['max']:.1f}" if values.get("n") else ""


def judged(run: Run) -> dict[str, Any]:
    """A run with its verdict and times, for the file of results; what its log said is in the suite's own."""
    verdict: dict[str, Any] = {}
    seconds: Times = times(run)
    if not run.problem:
        found = judge(BY_NAME[run.scenario], run)
        verdict = {**asdict(found), "right": found.right}
    raw = run.model_dump(mode="json", exclude={"log_tail"})
    return {**raw, "verdict": verdict, "seconds": asdict(seconds)}
