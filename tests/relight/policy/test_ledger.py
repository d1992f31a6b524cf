"""Retry budgets: what counts, what resets them, and what is free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.contracts import Cause, Policy
from relight.contracts.messages import RetryLedger
from relight.policy.ledger import FREE_CAUSES, MAX_LEDGERS, count_try, spent
from tests.workflows.samples import diagnosis

POLICY = Policy(retries_general=3, retries_confirmation=1)


def ledger(
    tried: int, step: int | None, key: str = "train.py:12", cause: Cause = Cause.USER_CODE
) -> RetryLedger:
    return RetryLedger(root_key=key, cause=cause, tried=tried, step=step)


@pytest.mark.parametrize(
    ("ledgers", "cause", "key", "step", "is_spent"),
    [
        ((), Cause.USER_CODE, "train.py:12", 100, False),
        ((ledger(1, 100),), Cause.USER_CODE, "train.py:12", 100, True),
        ((ledger(1, 100),), Cause.USER_CODE, "train.py:12", 99, True),
        ((ledger(1, 100),), Cause.USER_CODE, "train.py:12", 101, False),
        ((ledger(1, 100),), Cause.USER_CODE, "train.py:12", None, True),
        ((ledger(1, None),), Cause.USER_CODE, "train.py:12", None, True),
        ((ledger(1, None),), Cause.USER_CODE, "train.py:12", 5, False),
        ((ledger(1, 100),), Cause.USER_CODE, "other.py:3", 100, False),
        # Three restarts for one cause are the end, also when it names another line each time.
        (tuple(ledger(1, 100, f"{n}.py:1") for n in range(3)), Cause.USER_CODE, "new.py:1", 100, True),
        (tuple(ledger(1, 100, f"{n}.py:1") for n in range(3)), Cause.USER_CODE, "new.py:1", 101, False),
        # A cause that a replay does not meet again has the general budget.
        ((ledger(2, 100, "nccl", Cause.NETWORK_FABRIC),), Cause.NETWORK_FABRIC, "nccl", 100, False),
        ((ledger(3, 100, "nccl", Cause.NETWORK_FABRIC),), Cause.NETWORK_FABRIC, "nccl", 100, True),
        ((ledger(3, 100, "unknown", Cause.UNKNOWN),), Cause.UNKNOWN, "", 100, True),
        # A replay-stable cause that names nothing has it too.
        ((ledger(2, 100, "user_code"),), Cause.USER_CODE, "", 100, False),
        ((ledger(9, 100, "n1", Cause.NODE_FAILURE),), Cause.NODE_FAILURE, "n1", 100, False),
        ((ledger(9, 100, "", Cause.PREEMPTION),), Cause.PREEMPTION, "", 100, False),
    ],
)
def test_spent(
    ledgers: tuple[RetryLedger, ...], cause: Cause, key: str, step: int | None, is_spent: bool
) -> None:
    found = spent(ledgers, POLICY, diagnosis(cause=cause, root_key=key, step=step))
    assert bool(found) is is_spent
    if is_spent:
        assert "no step gained" in found


def test_no_retries_at_all() -> None:
    assert spent((), Policy(retries_general=0), diagnosis(cause=Cause.UNKNOWN))


def test_counting() -> None:
    one = count_try((), "k", Cause.USER_CODE, 100)
    assert one == (ledger(1, 100, "k"),)
    assert count_try(one, "k", Cause.USER_CODE, 100) == (ledger(2, 100, "k"),)
    assert count_try(one, "k", Cause.USER_CODE, 90) == (ledger(2, 100, "k"),)
    assert count_try(one, "k", Cause.USER_CODE, 101) == (ledger(1, 101, "k"),)
    assert count_try(one, "k", Cause.NUMERICAL, 100) == (
        ledger(1, 100, "k"),
        ledger(1, 100, "k", Cause.NUMERICAL),
    )
    assert count_try((), "", Cause.UNKNOWN, None) == (ledger(1, None, "unknown", Cause.UNKNOWN),)
    for cause in FREE_CAUSES:
        assert count_try(one, "k", cause, 100) == one


@given(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 3)), min_size=1, max_size=40))
def test_a_crash_loop_always_ends(failures: list[tuple[str, int]]) -> None:
    """Whatever fails in turn, in whatever order: restarts end where training no longer gets further."""
    ledgers: tuple[RetryLedger, ...] = ()
    restarts_at_furthest, furthest = 0, -1
    for key, step in failures:
        if step > furthest:
            restarts_at_furthest, furthest = 0, step
        failure = diagnosis(cause=Cause.USER_CODE, root_key=key, step=step)
        if spent(ledgers, POLICY, failure):
            break
        ledgers = count_try(ledgers, key, Cause.USER_CODE, step)
        restarts_at_furthest += 1
        # Each of the keys may gain a step of its own while the others stay behind.
        assert restarts_at_furthest <= 3 * POLICY.retries_general


def test_ledgers_are_bounded_and_forget_the_oldest() -> None:
    ledgers: tuple[RetryLedger, ...] = ()
    for n in range(MAX_LEDGERS + 5):
        ledgers = count_try(ledgers, f"k{n}", Cause.USER_CODE, 1)
    assert len(ledgers) == MAX_LEDGERS
    assert ledgers[-1].root_key == f"k{MAX_LEDGERS + 4}"
