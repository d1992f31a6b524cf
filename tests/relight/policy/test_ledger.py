"""The ledger: what is noted, and that it stays small."""

from datetime import UTC, datetime

import pytest

from relight.contracts import Cause, Outcome, RecoveryOutcome
from relight.contracts.messages import PastFailure
from relight.contracts.outcome import Timeline
from relight.policy.ledger import MAX_FAILURES, MAX_FOLDED, fold, note_failure, unfold
from tests.workflows.samples import attempt


def outcome(*, acted: bool = True, key: str = "k") -> RecoveryOutcome:
    at = datetime(2026, 12, 2, tzinfo=UTC) if acted else None
    return RecoveryOutcome(
        recovery_id="r",
        outcome=Outcome.RESUMED,
        cause=Cause.USER_CODE,
        attempt=attempt(),
        times=Timeline(acted=at),
        lost_from_step=7,
        root_key=key,
        where=("n2",),
    )


def test_a_restart_is_noted_and_nothing_else() -> None:
    noted = PastFailure(
        root_key="k",
        cause=Cause.USER_CODE,
        step=7,
        allocation="n[1-3]",
        where=("n2",),
        at=outcome().times.acted,
    )
    assert note_failure((), outcome(), ("n1", "n2", "n3")) == (noted,)
    assert note_failure((noted,), outcome(acted=False), ("n1",)) == (noted,)


def test_it_is_bounded_and_forgets_the_oldest() -> None:
    ledger: tuple[PastFailure, ...] = ()
    for n in range(MAX_FAILURES + 5):
        ledger = note_failure(ledger, outcome(key=str(n)), tuple(f"gpu{i:04d}" for i in range(2000)))
    assert len(ledger) == MAX_FAILURES
    assert ledger[-1].root_key == str(MAX_FAILURES + 4)
    assert len(ledger[-1].model_dump_json()) < 300


@pytest.mark.parametrize("nodes", [(), ("a",), ("n1", "n2", "n9"), ("gpu-a-01", "gpu-a-02", "login")])
def test_folding(nodes: tuple[str, ...]) -> None:
    assert unfold(fold(nodes)) == set(nodes)


def test_nodes_that_do_not_fold_are_not_remembered() -> None:
    odd = tuple(f"{'x' * (n % 9)}{chr(97 + n % 26)}{n * 7919}" for n in range(5000))
    assert fold(odd) == "" or len(fold(odd)) <= MAX_FOLDED
    assert unfold("n[") == frozenset()
