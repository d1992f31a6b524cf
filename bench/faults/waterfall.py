"""Where the time of a run went, from the fault until the job runs and until it is productive. Pure.

A run's times are cut into consecutive pieces: each ends where the next one begins, none overlaps another, and
together they are the whole. What happens beside the runbook (notices, the archive) is in none of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from bench.faults.record import Recovery, Run, StepTime
from bench.scale.fit import quantile

DETECT, TELL, SETTLE = "detect", "tell the monitor", "settle window"
APPROVAL, PERMIT, BETWEEN = "wait for approval", "wait for permit", "between steps"
QUEUE, FAILED_AGAIN = "queue", "attempt that failed again"
LOAD, FIRST_STEPS, UNDIVIDED = "load", "first steps", "load and first steps"
PIECES: Mapping[str, tuple[str, str]] = {
    DETECT: ("relight", "from the fault until relight noticed it"),
    TELL: ("relight", "until the sensor's word of it had reached the monitor"),
    SETTLE: ("relight", "until the recovery began; where that was not noted, with the piece before it"),
    "confirm_fault": ("relight", ""),
    "locate_checkpoint": ("relight", "twice: for the plan, and before the job is started again"),
    APPROVAL: ("a person", "a plan waited"),
    PERMIT: ("relight", "from the question to the cluster's guard until it said yes"),
    "isolate_nodes": ("relight", ""),
    "drain_job": ("relight", ""),
    "wait_nodes_free": ("Slurm", "until no process of the old attempt is left"),
    "steer_checkpoint": ("relight", ""),
    "resubmit": ("relight", ""),
    BETWEEN: ("relight", "the workflow, pauses before another try, and the permit where that was not noted"),
    QUEUE: ("Slurm", "`verify_running`: from the resubmission until the job was seen running"),
    FAILED_AGAIN: ("the job", "from its start until relight noticed that it had failed too"),
    LOAD: ("the job", "processes start, import PyTorch and load the checkpoint, until the first step"),
    FIRST_STEPS: ("the job", "until training is past the step that it failed at"),
    UNDIVIDED: ("the job", "both, where it was not noted when the first step was"),
}
"""In the order of their time: whose part each piece is, and what it is. Other steps are relight's."""
AFTER_RUNNING = frozenset({LOAD, FIRST_STEPS, UNDIVIDED})
BESIDE = frozenset({"notify", "archive_recovery"})
"""Activities that the runbook does not wait for."""


@dataclass(frozen=True)
class Piece:
    """A part of the time, by name."""

    name: str
    seconds: float


@dataclass(frozen=True)
class Waterfall:
    """The pieces of one run, in order."""

    scenario: str
    to_running: tuple[Piece, ...]
    """Their sum is the time from the fault until the job ran again for good."""
    to_productive: tuple[Piece, ...]
    """From there until training was past the step that it failed at; none where it did not come to that."""

    @property
    def seconds(self) -> dict[str, float]:
        """Of each piece, over all its occurrences."""
        found: dict[str, float] = {}
        for piece in (*self.to_running, *self.to_productive):
            found[piece.name] = found.get(piece.name, 0.0) + piece.seconds
        return found

    @property
    def running(self) -> float:
        """From the fault until the job ran again, in seconds."""
        return sum(piece.seconds for piece in self.to_running)


def waterfall(run: Run) -> Waterfall | None:
    """Cuts the time of a run into pieces.

    Of several recoveries the pieces go from the fault through all of them to the last one's running job.

    Returns:
        None where no recovery brought the job to run again, or the suite itself spoiled the run.
    """
    ended = [(recovery, recovery.outcome) for recovery in run.recoveries if recovery.outcome is not None]
    if run.problem or run.fault_at is None or not ended:
        return None
    times = ended[-1][1].times
    if times.running is None:
        return None
    walk = _Walk(run.fault_at, times.running)
    for number, (recovery, outcome) in enumerate(ended):
        walk.to(outcome.times.detected, FAILED_AGAIN if number else DETECT)
        walk.to(recovery.told, TELL)
        _through(walk, recovery, outcome.times.approved)
    walk.to(times.running, BETWEEN)
    rest = _Walk(times.running, times.productive or times.running)
    first_step = next((at for at in run.first_steps if at >= times.running), None)
    rest.to(first_step, LOAD)
    rest.to(times.productive, UNDIVIDED if first_step is None else FIRST_STEPS)
    return Waterfall(run.scenario, tuple(walk.pieces), tuple(rest.pieces))


def _through(walk: "_Walk", recovery: Recovery, approved: datetime | None) -> None:
    """The steps of one recovery and what was waited for between them."""
    steps = sorted((s for s in recovery.steps if s.step not in BESIDE), key=lambda s: s.scheduled)
    walk.to(recovery.began or (steps[0].scheduled if steps else None), SETTLE)
    for step in steps:
        if approved is not None and approved <= step.scheduled:
            walk.to(approved, APPROVAL)
        if recovery.permit is not None and recovery.permit.ended <= step.scheduled:
            walk.to(recovery.permit.began, BETWEEN)
            walk.to(recovery.permit.ended, PERMIT)
        walk.to(step.scheduled, BETWEEN)
        walk.to(step.ended, _name(step))


def _name(step: StepTime) -> str:
    return {"verify_running": QUEUE, "verify_resume": FAILED_AGAIN}.get(step.step, step.step)


class _Walk:
    """Goes from one time to a later one and leaves pieces behind: never back, and never beyond the end."""

    def __init__(self, at: datetime, end: datetime) -> None:
        self.at, self.end = at, end
        self.pieces: list[Piece] = []

    def to(self, at: datetime | None, name: str) -> None:
        """The time until then is this piece, if any is left."""
        if at is not None and (until := min(at, self.end)) > self.at:
            self.pieces.append(Piece(name, (until - self.at).total_seconds()))
            self.at = until


# ---- of many runs ------------------------------------------------------------------------------------------


def waterfalls(runs: Iterable[Run]) -> list[Waterfall]:
    """Those of all runs that have one."""
    return [found for run in runs if (found := waterfall(run)) is not None]


def profile(falls: Sequence[Waterfall]) -> list[dict[str, Any]]:
    """A row a piece, the largest in total first.

    `seconds` is its total, `share` that of the time until the job is productive, `share_to_running` that of
    the time until it runs (None for what comes later); `p50`, `p95` and `max` are of the runs that have it,
    by rank, and `runs` is how many those are.
    """
    found: dict[str, list[float]] = {}
    for fall in falls:
        for name, seconds in fall.seconds.items():
            found.setdefault(name, []).append(seconds)
    whole = sum(sum(values) for values in found.values())
    to_running = sum(fall.running for fall in falls)
    rows = []
    for name, values in sorted(found.items(), key=lambda item: (-sum(item[1]), item[0])):
        total = sum(values)
        rows.append(
            {
                "piece": name,
                "whose": whose(name),
                "seconds": round(total, 3),
                "share": round(total / whole, 4),
                "share_to_running": None if name in AFTER_RUNNING else round(total / to_running, 4),
                "p50": round(quantile(values, 0.5), 3),
                "p95": round(quantile(values, 0.95), 3),
                "max": round(max(values), 3),
                "runs": len(values),
            }
        )
    return rows


def whose(name: str) -> str:
    """Whose part a piece is: relight's, Slurm's, a person's, or the job's own."""
    return PIECES.get(name, ("relight", ""))[0]


def by_scenario(falls: Sequence[Waterfall]) -> dict[str, dict[str, float]]:
    """The median of each piece, in seconds, by scenario; a run that lacks a piece counts as zero."""
    mine: dict[str, list[dict[str, float]]] = {}
    for fall in falls:
        mine.setdefault(fall.scenario, []).append(fall.seconds)
    return {
        scenario: {
            name: round(median(one.get(name, 0.0) for one in runs), 3)
            for name in ordered({name for one in runs for name in one})
        }
        for scenario, runs in mine.items()
    }


def ordered(names: Iterable[str]) -> list[str]:
    """Names of pieces in the order of their time; steps that are not in the table come last, by name."""
    order = list(PIECES)
    return sorted(names, key=lambda name: (order.index(name) if name in PIECES else len(order), name))
