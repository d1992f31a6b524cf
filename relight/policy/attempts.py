"""How attempts of a job relate, and when a recovery must step back because somebody else moved first."""

from enum import StrEnum

from relight.contracts import Attempt, JobState
from relight.contracts.messages import AttemptEvent, AttemptReport


class Relation(StrEnum):
    """How an attempt relates to the one that is known."""

    SAME = "same"
    NEWER = "newer"
    """The same job, executed again later."""
    OLDER = "older"
    OTHER = "other"
    """Another job, also when Slurm gave it the same id."""


def relation(known: Attempt, seen: Attempt) -> Relation:
    """How `seen` relates to `known`.

    Slurm counts restarts up on every requeue, so a higher count is the same job later. It changes the submit
    time too, but only once the old attempt has left its nodes (seen on 22.05.8): until then the restarted
    attempt has the submit time of the one before, which may be days old. So an equal count above zero is the
    same execution. A job under a reused id begins with count zero and a submit time of its own.
    """
    if (seen.cluster, seen.job_id) != (known.cluster, known.job_id):
        return Relation.OTHER
    if seen.restart_count > known.restart_count:
        return Relation.NEWER
    if seen.restart_count < known.restart_count:
        return Relation.OLDER
    if known.restart_count > 0 or seen.submit_time == known.submit_time:
        return Relation.SAME
    return Relation.OTHER


def same_execution(known: Attempt, seen: Attempt) -> bool:
    """Both name one execution of the job, also where its submit time was seen before and after it settled."""
    return relation(known, seen) is Relation.SAME


_ENDED_BY_OTHERS = {
    JobState.COMPLETED: "the job completed",
    JobState.CANCELLED: "the job was cancelled",
    JobState.TIMEOUT: "the job reached its time limit",
    JobState.DEADLINE: "the job reached its deadline",
    JobState.PREEMPTED: "the job was preempted",
}


def step_back(report: AttemptReport, expected: Attempt, *, adopt: bool = False) -> str:
    """Why a recovery must leave the job alone after this report; empty when it may go on.

    Args:
        report: what a sensor told.
        expected: the attempt that the recovery counts on: the failed one, or the one it made by a requeue.
        adopt: the scheduler may have requeued the job by itself, and the recovery may take that attempt over.
    """
    match relation(expected, report.attempt), report.event:
        case Relation.NEWER, AttemptEvent.STARTED | AttemptEvent.PROGRESS if not adopt:
            return f"the job was restarted by somebody else, as attempt {report.attempt.label}"
        case Relation.NEWER, AttemptEvent.ENDED if not adopt:
            return f"the job was restarted by somebody else, and attempt {report.attempt.label} has ended"
        case Relation.SAME, AttemptEvent.ENDED if report.state in _ENDED_BY_OTHERS:
            return f"{_ENDED_BY_OTHERS[report.state]} ({report.attempt.label})"
        case _:
            return ""
