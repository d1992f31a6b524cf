"""From the audit of a recovery to a case: what relight would have done, and what then really happened. Pure.

Only what was decided in observe mode counts: where relight acts by itself, nothing shows what would have
happened without it.
"""

from datetime import datetime
from enum import StrEnum

from relight.audit.record import RecoveryAudit
from relight.contracts import (
    Action,
    Attempt,
    Cause,
    JobState,
    Mode,
    Model,
    Outcome,
    RecoveryOutcome,
    Symptom,
    UtcDatetime,
)
from relight.contracts.messages import AttemptEvent
from relight.policy.attempts import Relation, relation, same_execution

MONITORS_LOOK = "poll"
"""The detector of a fault that no sensor told of: the monitor's own, late look at the scheduler."""

SILENCE = "nobody within "
"""How `approved_by` begins where nobody decided and the policy goes on then."""


class Truth(StrEnum):
    """Whether the fault was one."""

    RIGHT = "right"
    WRONG = "wrong"
    OPEN = "open"
    """Nothing tells: it counts neither way."""


class Case(Model):
    """One detection."""

    recovery_id: str
    cause: Cause
    symptom: Symptom
    detector: str
    partition: str = ""
    at: UtcDatetime
    """When relight began to deal with it."""
    action: Action = Action.NONE
    would_act: bool = False
    """A plan was shown: in act mode relight would have carried it out."""
    would_act_at: UtcDatetime | None = None
    truth: Truth = Truth.OPEN
    because: str = ""
    """What really happened."""
    happened_at: UtcDatetime | None = None
    """When somebody or something else did what relight would have done; None: not known, or nobody did."""
    missed: bool = False
    """No sensor told of it."""


def case_of(audit: RecoveryAudit) -> Case | None:
    """The case of a recovery; None: it is open, or was not in observe mode."""
    outcome = audit.outcome
    if outcome is None or audit.mode is not Mode.OBSERVE:
        return None
    truth, because, at = judge(audit, outcome)
    sensors = [name for name in audit.detectors if name != MONITORS_LOOK]
    return Case(
        recovery_id=audit.recovery_id,
        cause=outcome.cause,
        symptom=outcome.symptom,
        detector=(sensors or list(audit.detectors) or ["unknown"])[0],
        partition=audit.job.partition,
        at=audit.started,
        action=outcome.action,
        would_act=audit.asked is not None,
        would_act_at=audit.asked,
        truth=truth,
        because=because,
        happened_at=at,
        missed=bool(audit.detectors) and not sensors,
    )


def judge(audit: RecoveryAudit, outcome: RecoveryOutcome) -> tuple[Truth, str, datetime | None]:
    """Whether the fault was one, why one can say so, and when others did what relight would have done."""
    times = outcome.times
    match outcome.outcome:
        case Outcome.REJECTED:
            return Truth.WRONG, f"rejected ({outcome.reason})", None
        case Outcome.REFUTED:
            return Truth.WRONG, outcome.reason or "refuted", None
        case Outcome.RESUMED | Outcome.FAILED_AGAIN | Outcome.HELD if _by_a_person(outcome):
            return Truth.RIGHT, f"approved by {outcome.approved_by}", times.acted or times.approved
        case Outcome.STOPPED:
            return Truth.RIGHT, outcome.reason, None
    return _afterwards(audit, outcome)


def _afterwards(audit: RecoveryAudit, outcome: RecoveryOutcome) -> tuple[Truth, str, datetime | None]:
    """Nobody decided: what became of the attempt tells, as long as relight left it alone."""
    acted = outcome.times.acted
    before = audit.diagnosis.progress.step if audit.diagnosis.progress is not None else None
    for report in audit.reports:
        if acted is not None and report.at >= acted:
            break
        mine = same_execution(outcome.attempt, report.attempt)
        if mine and report.event is AttemptEvent.PROGRESS and report.progress is not None:
            if before is not None and report.progress.step > before:
                return Truth.WRONG, f"training went on, to step {report.progress.step}", None
        elif mine and report.event is AttemptEvent.ENDED and report.state is not None:
            if report.state is JobState.COMPLETED:
                return Truth.WRONG, "the job completed", None
            return Truth.RIGHT, _how_it_ended(report.state), report.at
        elif report.event is AttemptEvent.STARTED and _follows(outcome.attempt, report.attempt):
            return Truth.RIGHT, f"somebody else started it again ({report.attempt.label})", report.at
    if outcome.symptom is Symptom.CRASH and outcome.times.confirmed is not None:
        return Truth.RIGHT, "the scheduler said that it had ended", None
    return Truth.OPEN, f"{outcome.outcome.value}: {outcome.reason}", None


_ENDS = {
    JobState.PENDING: "it was requeued, and not by relight",
    JobState.CANCELLED: "it was cancelled",
    JobState.PREEMPTED: "it was preempted",
    JobState.TIMEOUT: "it reached its time limit",
    JobState.DEADLINE: "it reached its deadline",
}
"""Ends that are no death, in words."""


def _how_it_ended(state: JobState) -> str:
    return _ENDS.get(state, f"the job died ({state.value})")


def _by_a_person(outcome: RecoveryOutcome) -> bool:
    """Not by a policy that takes silence for consent: then `approved_by` says that nobody decided."""
    return bool(outcome.approved_by) and not outcome.approved_by.startswith(SILENCE)


def _follows(failed: Attempt, seen: Attempt) -> bool:
    return relation(failed, seen) is Relation.NEWER
