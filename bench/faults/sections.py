"""The fault suite's part of `docs/benchmarks.md`: aims, where the time goes, before and after. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from bench.faults.judge import times
from bench.faults.record import Run
from bench.faults.report import in_words, spread
from bench.faults.waterfall import PIECES, Waterfall, ordered, profile, waterfall, whose
from bench.markdown import table
from bench.results import BadResult

PLOT = "waterfall.svg"
"""The name of the plot, drawn by `bench.faults.profile`."""
PHASES = {
    "detected": "fault → detected",
    "acted": "detected (or approved) → acted",
    "running": "acted → running",
    "to_running": "fault → running",
    "added": "fault → running, without Slurm's and a person's part",
    "productive": "running → productive",
}


def runs_of(result: Mapping[str, Any]) -> list[Run]:
    """The runs of a result of the suite, old ones too: what was not noted then has its default.

    Raises:
        BadResult: they are not the suite's.
    """
    try:
        return [Run.model_validate(run) for run in result["runs"]]
    except ValidationError as error:
        raise BadResult(f"the runs of a result of bench.faults cannot be read: {error}") from error


def cut(runs: Sequence[Run]) -> list[tuple[Run, Waterfall]]:
    """The runs that can be cut into pieces, with those."""
    return [(run, fall) for run in runs if (fall := waterfall(run)) is not None]


def aims(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Each aim, whether it was met and by how much; those that were missed are said first."""
    missed = [f"{name}, {in_words(name, aim)}" for name, aim in found.items() if aim["met"] is False]
    measured = sum(aim["met"] is not None for aim in found.values())
    lines = [f"Of {measured} measured aims {measured - len(missed)} were met.{_told(missed)}", ""]
    rows = []
    for name, aim in found.items():
        words = in_words(name, aim)
        rows.append({"name": name, **aim, "met": f"**{words}**" if aim["met"] is False else words})
    return lines + table(rows, {"name": "", "aim": "aim", "measured": "measured", "met": "met or missed"})


def _told(missed: Sequence[str]) -> str:
    return f" Not met: {'; '.join(missed)}." if missed else ""


def where_the_time_goes(result: Mapping[str, Any], plot: str) -> list[str]:
    """The table of pieces, the plot, and what the pieces are.

    Args:
        result: of the suite.
        plot: its address on the page.
    """
    runs = runs_of(result)
    falls = [fall for _, fall in cut(runs)]
    if not falls:
        return ["No run of this result ran again."]
    rows = profile(falls)
    parts: dict[str, float] = {}
    for row in rows:
        if row["share_to_running"] is not None:
            parts[row["whose"]] = parts.get(row["whose"], 0.0) + row["seconds"]
    whole = sum(parts.values())
    told = ", ".join(
        f"{name}: {part / whole:.0%}" for name, part in sorted(parts.items(), key=lambda p: -p[1])
    )
    lines = [
        f"All {len(falls)} runs (of {len(runs)}) in which the job ran again, cut into consecutive pieces "
        f"from the fault until training is past the step that it failed at. From the fault until the job "
        f"runs they took {whole:.0f} s together ({told}). A step's piece goes from when the workflow "
        f"asked for it until its result; P50 and P95 are of the runs that have the piece, by rank.",
        "",
        *table(
            [_percent(row) for row in rows],
            {
                "piece": "piece",
                "whose": "whose",
                "seconds": "total, s",
                "share": "share of all",
                "share_to_running": "until it runs",
                "p50": "P50 s",
                "p95": "P95 s",
                "max": "longest",
                "runs": "runs",
            },
        ),
        "",
        f"![Where the time goes, by fault]({plot})",
        "",
    ]
    names = ordered(row["piece"] for row in rows)
    meant = [f"- *{name}*: {PIECES[name][1]}." for name in names if name in PIECES and PIECES[name][1]]
    return [*lines, "What the pieces are, where the name does not say it:", "", *meant]


def before_and_after(oldest: Mapping[str, Any], newest: Mapping[str, Any]) -> list[str]:
    """P50 and P95 of each phase and each piece, in the oldest and the newest result."""
    both = [cut(runs_of(result)) for result in (oldest, newest)]
    shared = {run.scenario for run, _ in both[0]} & {run.scenario for run, _ in both[1]}
    before, after = ([(run, fall) for run, fall in one if run.scenario in shared] for one in both)
    if not shared:
        return ["The two results have no fault in common after which the job ran again."]
    told = (
        f"Only faults that both results have, and of those the runs in which the job ran again: "
        f"{len(before)} before, {len(after)} after. Of a piece, the runs that have it count. A result that "
        f"lacks a piece may have it in another one: what the pieces are is told above."
    )
    loads = [spread([run.load for run, _ in one]) for one in (before, after)]
    lines = [
        told,
        "",
        f"Load of the machine (P50): {loads[0]['P50']:g} before, {loads[1]['P50']:g} after.",
        "",
    ]
    phases = [_row(title, _phase(before, key), _phase(after, key)) for key, title in PHASES.items()]
    names = ordered({name for _, fall in (*before, *after) for name in fall.seconds})
    pieces = [
        _row(name, _piece(before, name), _piece(after, name)) | {"whose": whose(name)} for name in names
    ]
    columns = {
        "before.n": "runs before", "before.P50": "P50 s", "before.P95": "P95 s",
        "after.n": "runs after", "after.P50": "P50 s", "after.P95": "P95 s",
        "p50": "change of P50, s", "p95": "of P95",
    }  # fmt: skip
    return [
        *lines, *table(phases, {"name": "phase", **columns}), "",
        *table(pieces, {"name": "piece", "whose": "whose", **columns}),
    ]  # fmt: skip


def _percent(row: Mapping[str, Any]) -> dict[str, Any]:
    shares = {key: row[key] for key in ("share", "share_to_running")}
    return {**row, **{key: None if share is None else f"{share:.1%}" for key, share in shares.items()}}


def _row(name: str, before: dict[str, float | int], after: dict[str, float | int]) -> dict[str, Any]:
    changes = {}
    for key, rank in (("p50", "P50"), ("p95", "P95")):
        known = before["n"] and after["n"]
        changes[key] = f"{after[rank] - before[rank]:+.2f}" if known else None
    return {"name": name, "before": before, "after": after, **changes}


def _phase(cuts: Sequence[tuple[Run, Waterfall]], key: str) -> dict[str, float | int]:
    found = [fall.running if key == "to_running" else getattr(times(run), key) for run, fall in cuts]
    return spread([value for value in found if value is not None])


def _piece(cuts: Sequence[tuple[Run, Waterfall]], name: str) -> dict[str, float | int]:
    return spread([fall.seconds[name] for _, fall in cuts if name in fall.seconds])
