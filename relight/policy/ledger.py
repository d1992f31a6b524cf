"""A run's ledger: the failures that a restart followed. The run keeps it, whatever id its job has now."""

from collections.abc import Sequence

from hostlist import BadHostlist, collect_hostlist, expand_hostlist

from relight.contracts import RecoveryOutcome
from relight.contracts.messages import PastFailure

MAX_FAILURES = 20
MAX_FOLDED = 4096
"""Characters of an allocation; one that is longer, of nodes with odd names, is not remembered."""


def note_failure(
    ledger: Sequence[PastFailure], outcome: RecoveryOutcome, allocation: Sequence[str]
) -> tuple[PastFailure, ...]:
    """The ledger after a recovery: one entry more if it restarted the job.

    Args:
        ledger: the entries so far, oldest first.
        outcome: how the recovery ended.
        allocation: the nodes of the attempt that had failed.
    """
    if outcome.times.acted is None:
        return tuple(ledger)
    failure = PastFailure(
        root_key=outcome.root_key,
        cause=outcome.cause,
        step=outcome.lost_from_step,
        allocation=fold(allocation),
        where=outcome.where,
        at=outcome.times.acted,
    )
    return (*ledger, failure)[-MAX_FAILURES:]


def fold(nodes: Sequence[str]) -> str:
    """Node names as Slurm folds them: `node[001-064]`; empty when they cannot be folded to a short text."""
    try:
        folded = str(collect_hostlist(list(nodes)))
    except BadHostlist:
        return ""
    return folded if len(folded) <= MAX_FOLDED else ""


def unfold(folded: str) -> frozenset[str]:
    """The nodes of a folded list; none if it is none."""
    try:
        return frozenset(expand_hostlist(folded)) if folded else frozenset()
    except BadHostlist:
        return frozenset()
