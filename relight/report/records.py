"""From audits and watched jobs to what the report counts: losses, and the chains they belong to. Pure.

A chain is all attempts of one run that relight watched as one: restarts, and what was submitted anew for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import Field

from relight.audit.record import RecoveryAudit
from relight.contracts import Cause, Model, Outcome, RecoveryOutcome, Symptom, TrainingJob, UtcDatetime
from relight.contracts.messages import EndReason

NOTHING = timedelta(0)


class Phase(StrEnum):
    """Where the time between a fault and being past it goes."""

    DETECT = "detect"
    """From the fault until a sensor told of it."""
    DECIDE = "decide"
    """From there until the first change was accepted: confirming, planning, approval, permit."""
    QUEUE = "queue"
    """From there until the new attempt runs: taking the old one down, and the scheduler's queue."""
    LOAD = "load"
    """From there until it trains: start of the processes, and loading the checkpoint."""
    REPLAY = "replay"
    """Training again what was trained since the checkpoint."""
    REST = "not told apart"
    """What was lost and belongs to no phase that is known: of recoveries that did not resume, above all."""


TIMED: tuple[Phase, ...] = tuple(phase for phase in Phase if phase is not Phase.REST)
BEFORE_TRAINING: tuple[Phase, ...] = (Phase.DETECT, Phase.DECIDE, Phase.QUEUE, Phase.LOAD)
"""What comes before training goes on: u of the formula."""


class CostUnknown(StrEnum):
    """Why it is not known what a fault cost, in words that follow a number of faults."""

    OPEN = "still open"
    NOT_ACTED = "relight did nothing about it"
    NO_GPUS = "the scheduler tells of no GPUs of the job"
    NO_STEPS = "it is not known how much was to be trained again"


class Loss(Model):
    """One recovery: what was lost, and where."""

    recovery_id: str
    chain_id: str
    """The monitor's id."""
    job: str
    """The failed attempt, for people to read."""
    run: str
    user: str = ""
    cause: Cause
    symptom: Symptom
    outcome: Outcome | None = None
    """None: it is open, or ended without a result."""
    reason: str = ""
    fault: bool
    """There was one: not refuted by relight, and not by a person."""
    open: bool = False
    occurred: UtcDatetime
    until: UtcDatetime
    """When training was past the fault, or when the recovery ended without that, or now."""
    phases: dict[Phase, timedelta] = Field(default={})
    """Those that are known; all of `TIMED` where it resumed and the time of a step is known."""
    waited: timedelta | None = None
    """For a person; a part of `decide`. None: no person had to be asked, or nobody approved."""
    nodes: int = 0
    gpus: int | None = None
    gpu_hours: float | None = None
    """As the recovery itself counted them; None: not known."""
    cost_unknown: CostUnknown | None = None
    """Why they are not known; None: they are."""
    restarted: bool = False
    """A new attempt followed."""

    @property
    def gpu_hours_by_phase(self) -> Mapping[Phase, float]:
        """The GPU hours, each in its phase; their sum is `gpu_hours`. Empty where these are not known."""
        if self.gpu_hours is None:
            return {}
        known = {} if self.gpus is None else {p: self.gpus * _hours(t) for p, t in self.phases.items()}
        total = sum(known.values())
        if total > self.gpu_hours:  # clocks of several machines: phases may overlap a little
            known = {phase: hours * self.gpu_hours / total for phase, hours in known.items()}
            total = self.gpu_hours
        return known | {Phase.REST: max(0.0, round(self.gpu_hours - total, 6))}


class ChainEnd(StrEnum):
    """How a chain ended."""

    WELL = "completed"
    BADLY = "stopped"
    """By policy, or because a person rejected a plan or nobody decided: it did not get past a fault."""
    BY_OTHERS = "ended by its user or its time limit"
    UNWATCHED = "no longer watched"
    """Somebody ended the watch; the job may have run on."""
    OPEN = "open"
    UNKNOWN = "not known"


_ENDS = {
    EndReason.COMPLETED: ChainEnd.WELL,
    EndReason.STOPPED: ChainEnd.BADLY,
    EndReason.CANCELLED: ChainEnd.BY_OTHERS,
    EndReason.TIME_LIMIT: ChainEnd.BY_OTHERS,
    EndReason.UNWATCHED: ChainEnd.UNWATCHED,
}


class Watch(Model):
    """A job that is or was watched, as Temporal still knows it."""

    monitor_id: str
    job: TrainingJob
    began: UtcDatetime
    ended: UtcDatetime | None = None
    """None: it is watched now."""
    end: EndReason | None = None
    """None: it is watched now, or the monitor ended without a result."""


class Chain(Model):
    """All attempts of one run, with what was lost in it."""

    chain_id: str
    job_id: str
    run: str
    user: str = ""
    nodes: int = 0
    began: UtcDatetime | None = None
    """When relight began to watch it; None: Temporal does not know its monitor any more."""
    until: UtcDatetime | None = None
    """When it ended, or now; None as `began`."""
    end: ChainEnd
    attempts: int
    """Those that relight had to do with: the first, and each one that followed a recovery."""
    losses: tuple[Loss, ...] = ()
    """Oldest first."""


def loss_of(audit: RecoveryAudit, now: datetime) -> Loss:
    """What one recovery tells."""
    outcome, found = audit.outcome, audit.diagnosis
    productive = outcome.times.productive if outcome is not None else None
    occurred = (outcome.times.occurred if outcome is not None else None) or found.occurred_at
    gpus = audit.gpus if audit.gpus is not None else _gpus(outcome)
    return Loss(
        recovery_id=audit.recovery_id,
        chain_id=audit.monitor_id or audit.recovery_id,
        job=audit.job.attempt.label,
        run=audit.job.run,
        user=audit.job.user,
        cause=outcome.cause if outcome is not None else found.cause,
        symptom=outcome.symptom if outcome is not None else found.symptom,
        outcome=outcome.outcome if outcome is not None else None,
        reason=outcome.reason if outcome is not None else "",
        fault=outcome is None or outcome.outcome not in (Outcome.REFUTED, Outcome.REJECTED),
        open=outcome is None and audit.ended is None,
        occurred=occurred,
        until=max(occurred, productive or audit.ended or now),
        phases=_phases(outcome, occurred, _step_time(audit)) if outcome is not None else {},
        waited=_waited(audit),
        nodes=len(audit.job.nodes),
        gpus=gpus,
        gpu_hours=outcome.gpu_hours_lost if outcome is not None else None,
        cost_unknown=_cost_unknown(outcome, gpus),
        restarted=outcome is not None and outcome.new_attempt is not None,
    )


def chains(watches: Iterable[Watch], losses: Iterable[Loss], now: datetime) -> tuple[Chain, ...]:
    """Every chain, those with the most losses first.

    Args:
        watches: jobs that are or were watched.
        losses: recoveries, in any order; those whose job is not among the watches make chains of their own.
        now: until when open ones count.
    """
    of: dict[str, list[Loss]] = {}
    for loss in sorted(losses, key=lambda one: one.occurred):
        of.setdefault(loss.chain_id, []).append(loss)
    found = [_watched(watch, of.pop(watch.monitor_id, []), now) for watch in watches]
    found += [_forgotten(chain_id, mine) for chain_id, mine in of.items()]
    return tuple(sorted(found, key=lambda chain: (-len(chain.losses), chain.chain_id)))


def _watched(watch: Watch, losses: Sequence[Loss], now: datetime) -> Chain:
    end = ChainEnd.OPEN if watch.ended is None else ChainEnd.UNKNOWN
    return Chain(
        chain_id=watch.monitor_id,
        job_id=watch.job.attempt.job_id,
        run=watch.job.run,
        user=watch.job.user,
        nodes=len(watch.job.nodes),
        began=watch.began,
        until=watch.ended or now,
        end=_ENDS.get(watch.end, end) if watch.end is not None else end,
        attempts=_attempts(losses),
        losses=tuple(losses),
    )


def _forgotten(chain_id: str, losses: Sequence[Loss]) -> Chain:
    """Temporal does not know the monitor any more: only its recoveries tell of it."""
    last = losses[-1]
    given_up = last.outcome in (Outcome.HELD, Outcome.STOPPED)
    return Chain(
        chain_id=chain_id,
        job_id=last.job.partition(".")[0],
        run=last.run,
        user=last.user,
        nodes=last.nodes,
        end=ChainEnd.BADLY if given_up else ChainEnd.UNKNOWN,
        attempts=_attempts(losses),
        losses=tuple(losses),
    )


def _attempts(losses: Sequence[Loss]) -> int:
    return 1 + sum(loss.restarted for loss in losses)


def _phases(outcome: RecoveryOutcome, occurred: datetime, step: timedelta | None) -> dict[Phase, timedelta]:
    """How long each phase took, as far as both of its ends are known; none is negative."""
    times = outcome.times
    found = {
        Phase.DETECT: _between(occurred, times.detected),
        Phase.DECIDE: _between(times.detected, times.acted),
        Phase.QUEUE: _between(times.acted, times.running),
    }
    training = _between(times.running, times.productive)
    if training is not None and step is not None and outcome.steps_replayed is not None:
        replay = min(training, outcome.steps_replayed * step)
        found |= {Phase.LOAD: training - replay, Phase.REPLAY: replay}
    return {phase: time for phase, time in found.items() if time is not None}


def _step_time(audit: RecoveryAudit) -> timedelta | None:
    progress = audit.diagnosis.progress
    return progress.interval if progress is not None else None


def _waited(audit: RecoveryAudit) -> timedelta | None:
    approved = audit.outcome.times.approved if audit.outcome is not None else None
    return _between(audit.asked, approved)


def _cost_unknown(outcome: RecoveryOutcome | None, gpus: int | None) -> CostUnknown | None:
    if outcome is None:
        return CostUnknown.OPEN
    if outcome.gpu_hours_lost is not None:
        return None
    if outcome.times.acted is None:
        return CostUnknown.NOT_ACTED
    return CostUnknown.NO_GPUS if gpus is None else CostUnknown.NO_STEPS


def _gpus(outcome: RecoveryOutcome | None) -> int | None:
    """Of the job, from what the recovery counted, where nothing but time went into that."""
    lost = outcome.downtime if outcome is not None else None
    if outcome is None or outcome.gpu_hours_lost is None or not lost:
        return None
    return round(outcome.gpu_hours_lost / _hours(lost))


def _between(begin: datetime | None, end: datetime | None) -> timedelta | None:
    return None if begin is None or end is None else max(end - begin, NOTHING)


def _hours(time: timedelta) -> float:
    return time / timedelta(hours=1)


def times_of(losses: Iterable[Loss], phase: Phase) -> list[timedelta]:
    """How long the phase took in each recovery in which that is known."""
    return [loss.phases[phase] for loss in losses if phase in loss.phases]
