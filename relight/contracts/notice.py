"""What people are told through the webhook of the settings `notify`."""

from enum import StrEnum

from relight.contracts.base import CleanText, Model


class Event(StrEnum):
    """What people are told of."""

    APPROVAL = "approval"
    """A plan waits for a person."""
    ENDED = "ended"
    """A recovery ended."""
    BREAKER = "breaker"
    """A circuit breaker tripped: no node is drained any more."""
    INCIDENT = "incident"
    """Many jobs fail alike: recoveries wait."""


class Notice(Model):
    """One message to people; the input of the activity `notify`. It holds no secret and no log text."""

    event: Event
    cluster: CleanText = ""
    text: CleanText
    """What happened, in a sentence."""
    workflow_id: CleanText = ""
    """Where to look in Temporal: a recovery, or the guard."""
    job: CleanText = ""
    """The attempt: `4243.1`."""
    run: CleanText = ""
    user: CleanText = ""
    cause: CleanText = ""
    state: CleanText = ""
    plan: CleanText = ""
    """Digest of the plan that waits."""
    command: CleanText = ""
    """What to type."""
