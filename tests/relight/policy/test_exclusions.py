"""How long relight keeps a job off a node."""

from datetime import timedelta

import pytest

from relight.contracts import Outcome, RecoveryOutcome
from relight.policy.exclusions import MAX_EXCLUDED, after, expired
from tests.workflows import samples

NOW = samples.T0
BEFORE = NOW - timedelta(days=8)
WEEK = timedelta(days=7)


def outcome(**nodes: tuple[str, ...]) -> RecoveryOutcome:
    return RecoveryOutcome(
        recovery_id="r1", outcome=Outcome.RESUMED, attempt=samples.attempt(0), **nodes
    )  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ({}, {"n1": BEFORE, "n2": BEFORE}),
        ({"excluded_nodes": ("n3",), "newly_excluded": ("n3",)}, {"n1": BEFORE, "n2": BEFORE, "n3": NOW}),
        # Its owner had excluded n3 already: it stays the owner's.
        ({"excluded_nodes": ("n3",)}, {"n1": BEFORE, "n2": BEFORE}),
        # Suspected again: it begins anew.
        ({"excluded_nodes": ("n1",)}, {"n2": BEFORE, "n1": NOW}),
        ({"readmitted_nodes": ("n1",)}, {"n2": BEFORE}),
        ({"readmitted_nodes": ("n1", "n2"), "excluded_nodes": ("n2",)}, {"n2": NOW}),
        # Lost between plan and restart.
        ({"newly_excluded": ("n4",)}, {"n1": BEFORE, "n2": BEFORE, "n4": NOW}),
    ],
)
def test_after_a_recovery(nodes: dict[str, tuple[str, ...]], left: dict[str, object]) -> None:
    found = after({"n1": BEFORE, "n2": BEFORE}, outcome(**nodes), NOW)
    assert list(found.items()) == list(left.items())


def test_they_expire_after_their_time() -> None:
    excluded = {"n1": BEFORE, "n2": NOW - WEEK, "n3": NOW - WEEK + timedelta(seconds=1)}
    assert expired(excluded, WEEK, NOW) == ("n1", "n2")


def test_the_number_is_bounded() -> None:
    many = tuple(f"n{k}" for k in range(MAX_EXCLUDED + 5))
    found = after({}, outcome(newly_excluded=many), NOW)
    assert len(found) == MAX_EXCLUDED
    assert "n0" not in found
