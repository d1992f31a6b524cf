"""How the code of a runbook says that it ends here."""

from relight.contracts import Outcome
from relight.contracts.steps import ATTEMPT_CHANGED
from workflows.steps import StepFailed


class Ended(Exception):
    """The runbook ends with this outcome."""

    def __init__(self, outcome: Outcome, reason: str, *, hands_off: bool = False) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason
        self.hands_off = hands_off
        """Somebody else moved the job: it must not even be held."""


def because_of(failed: StepFailed, outcome: Outcome, reason: str) -> Ended:
    """The end after a step failed for good: `outcome`, unless somebody else moved the job."""
    if failed.kind == ATTEMPT_CHANGED:
        return Ended(Outcome.ABANDONED, failed.text, hands_off=True)
    return Ended(outcome, reason)
