"""Was it right? Pure: a scenario and what was noted of a run give the verdict."""

from dataclasses import dataclass
from datetime import datetime

from bench.faults.record import Run
from bench.faults.scenarios import BY_NAME, RECOVERABLE, Blame, Ending, Scenario
from bench.faults.stage import START_FLOOR
from relight.contracts import Outcome, RecoveryOutcome, Symptom
from relight.contracts.messages import EndReason

_MONITOR_ENDS = {EndReason.CANCELLED: "user_cancel", EndReason.TIME_LIMIT: "time_limit"}
ATTEMPTS = 2
"""So many attempts may meet a fault that no restart cures."""


@dataclass(frozen=True)
class Verdict:
    """Of one run. None: the question does not arise."""

    detected: bool | None
    cause: bool | None
    node: bool | None
    action: bool | None
    ended_well: bool
    """The job is as it should be at the end, whatever relight called the fault."""
    wasted: int
    """Attempts, beside the first, that did not bring the job on."""

    @property
    def right(self) -> bool:
        """All of it."""
        return self.ended_well and False not in (self.detected, self.cause, self.node, self.action)


@dataclass(frozen=True)
class Times:
    """Seconds of one run; None where it did not come to that."""

    detected: float | None = None
    """From the fault."""
    acted: float | None = None
    """From the detection, or from the approval where a person was asked."""
    running: float | None = None
    """From the first change until the job runs again."""
    productive: float | None = None
    """From there until training is past the step that it failed at: most of it is the start of the job."""
    total: float | None = None
    """From the fault until then."""
    added: float | None = None
    """From the fault until the job runs: relight's part.

    Without `slurm`, the wait for a person, and the silence that policy allows before the first step. Where an
    attempt failed that relight had started, it is the sum of both recoveries: what that attempt did between
    them is its own.
    """
    slurm: float | None = None
    """Of that: until the old attempt has left its nodes, and in the queue."""


def judge(scenario: Scenario, run: Run) -> Verdict:
    """The verdict on a run that the suite itself did not spoil."""
    outcomes = run.outcomes
    restarts_expected = 1 if scenario.ending in RECOVERABLE else 0
    if scenario.inject.endswith(":restart"):
        restarts_expected = 2  # Slurm counts the attempt that it could not start
    wasted = max(0, run.restarts - restarts_expected)
    if scenario.ending is Ending.ENDED:
        told = _MONITOR_ENDS.get(run.end) if run.end else None
        right = told in scenario.causes
        return Verdict(run.end is not None, right, _blames(scenario, run), run.restarts == 0, right, wasted)
    if scenario.ending in {Ending.UNTOUCHED, Ending.NOTICED, Ending.REQUEUED}:
        detected = bool(run.noticed) if scenario.ending is Ending.NOTICED else None
        restarts = 1 if scenario.ending is Ending.REQUEUED else 0
        well = run.trains and run.restarts == restarts
        return Verdict(detected, None, _blames(scenario, run), not outcomes, well, wasted)
    causes = {o.cause for o in outcomes}
    return Verdict(
        detected=bool(run.recoveries),
        cause=bool(causes) and causes <= set(scenario.causes),
        node=_blames(scenario, run),
        action=bool(outcomes) and all(o.action in scenario.actions for o in outcomes),
        ended_well=_ended_well(scenario, run),
        wasted=wasted,
    )


def _ended_well(scenario: Scenario, run: Run) -> bool:
    if scenario.ending is Ending.STOPPED:
        ended = [o.outcome for o in run.outcomes]
        stopped = bool(ended) and ended[-1] in {Outcome.STOPPED, Outcome.HELD}
        return stopped and run.restarts < ATTEMPTS
    resumed = bool(run.outcomes) and run.outcomes[-1].outcome is Outcome.RESUMED
    return resumed and run.trains and (scenario.ending is not Ending.APPROVED or run.asked_at is not None)


def _blames(scenario: Scenario, run: Run) -> bool:
    """Whether the nodes that the job was kept off, or that were drained, are those that should be."""
    blamed = {node for o in run.outcomes for node in (*o.excluded_nodes, *o.drained_nodes)}
    match scenario.blame:
        case Blame.NONE:
            return not blamed
        case Blame.VICTIM_IF_AGAIN if run.restarts < ATTEMPTS:
            return blamed <= {run.victim}
        case Blame.VICTIM | Blame.VICTIM_IF_AGAIN:
            return blamed == {run.victim}
        case Blame.EITHER:
            return blamed <= {run.victim}


def times(run: Run) -> Times:
    """How long each part took; of several recoveries, from the first detection to the last success."""
    first = run.outcomes[0].times if run.outcomes else None
    last = run.outcomes[-1].times if run.outcomes else None
    if run.fault_at is None or first is None or last is None:
        return Times()
    waited = _between(first.detected, run.approved_at) if run.approved_at else 0.0
    slurm = sum(r.seconds("wait_nodes_free") + r.seconds("verify_running") for r in run.recoveries)
    until_running = _until_running(run, run.fault_at)
    allowed = sum(START_FLOOR for o in run.outcomes if hung_at_start(run, o))
    return Times(
        detected=_between(run.fault_at, first.detected),
        acted=_between(run.approved_at or first.detected, first.acted),
        running=_between(first.acted, last.running),
        productive=_between(last.running, last.productive),
        total=_between(run.fault_at, last.productive),
        added=None if until_running is None else until_running - slurm - (waited or 0.0) - allowed,
        slurm=slurm if until_running is not None else None,
    )


def hung_at_start(run: Run, outcome: RecoveryOutcome) -> bool:
    """The recovery of a hang before the first step, of which policy allows a long silence."""
    return outcome.symptom is Symptom.HANG and BY_NAME[run.scenario].inject.startswith("hang_at")


def _until_running(run: Run, fault_at: datetime) -> float | None:
    """From each fault until the job ran, or until the next fault; None if it does not run."""
    all_times = [o.times for o in run.outcomes]
    if all_times[-1].running is None:
        return None
    faults = [fault_at, *(times.occurred or times.detected for times in all_times[1:])]
    ends = [times.running or after for times, after in zip(all_times, [*faults[1:], None], strict=True)]
    return sum(_between(began, end) or 0.0 for began, end in zip(faults, ends, strict=True))


def _between(before: datetime | None, after: datetime | None) -> float | None:
    return None if before is None or after is None else (after - before).total_seconds()
