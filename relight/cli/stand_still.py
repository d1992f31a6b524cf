"""A job that hangs and that relight leaves alone, since nobody agreed to its plan. Pure."""

from collections.abc import Iterable

from relight.cli.output import clock
from relight.cli.shapes import StandStill
from relight.contracts import Attempt, Outcome, Progress, RecoveryOutcome, Symptom
from relight.policy.attempts import same_execution

DECLINED = (Outcome.REJECTED, Outcome.EXPIRED)
"""How a recovery ends that nobody agreed to: of a hang at that step relight does not ask again."""


def stand_still(
    attempt: Attempt, progress: Progress | None, outcomes: Iterable[RecoveryOutcome]
) -> StandStill | None:
    """The declined hang that still goes on, as far as steps tell.

    Args:
        attempt: the job's present attempt.
        progress: the last step that the monitor knows; None: nothing yet.
        outcomes: of the job's recoveries, oldest first.

    Returns:
        None where there was none, or a later step or attempt was seen since.
    """
    for outcome in reversed(list(outcomes)):
        if (
            outcome.outcome in DECLINED
            and outcome.symptom is Symptom.HANG
            and same_execution(outcome.attempt, attempt)
            and not _came_further(progress, outcome.lost_from_step)
        ):
            return StandStill(
                since=outcome.times.occurred,
                step=outcome.lost_from_step,
                outcome=outcome.outcome,
                reason=outcome.reason,
                recovery_id=outcome.recovery_id,
            )
    return None


def in_words(found: StandStill) -> str:
    """Since when it stands still, and what became of the plan."""
    since = f" since {clock(found.since, date=True)}" if found.since is not None else ""
    plan = "was rejected" if found.outcome is Outcome.REJECTED else "expired"
    because = f" ({found.reason})" if found.reason else ""
    return f"stands still{since}, its plan {plan}{because}"


def _came_further(progress: Progress | None, hung_at: int | None) -> bool:
    return progress is not None and (hung_at is None or progress.step > hung_at)
