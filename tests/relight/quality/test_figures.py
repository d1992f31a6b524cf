"""A history with known truth gives exactly its figures."""

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.contracts import Cause, Symptom
from relight.quality.case import Case, Truth
from relight.quality.figures import Verdict, figures, judge_precision, rate, wilson
from tests.relight.audit.making import T0

NONE = timedelta(0)


def cases(count: int, truth: Truth = Truth.RIGHT, **fields: Any) -> list[Case]:
    defaults: dict[str, Any] = {
        "recovery_id": "r", "cause": Cause.USER_CODE, "symptom": Symptom.CRASH, "detector": "job_end",
        "partition": "gpu", "at": T0, "would_act": True, "would_act_at": T0, "truth": truth,
    }  # fmt: skip
    return [Case(**(defaults | fields))] * count


def test_a_known_history_gives_its_known_figures() -> None:
    history = [
        *cases(37), *cases(3, Truth.WRONG), *cases(2, Truth.OPEN),
        *cases(5, Truth.WRONG, would_act=False),
        *cases(4, missed=True, detector="poll"),
        *cases(6, would_act=False),  # stopped by policy: a real fault, and nothing to do
        *cases(7, Truth.RIGHT, cause=Cause.STORAGE, happened_at=T0 + timedelta(minutes=10)),
    ]  # fmt: skip
    storage, user = figures(history, days=10.0)
    assert user.group == ("user_code",)
    assert (user.detected, user.would_act) == (57, 46)
    assert (user.right, user.wrong, user.open, user.withdrawn) == (41, 3, 2, 5)
    assert user.precision.value == float(Fraction(41, 44))
    assert user.missed == 4
    assert user.recall.value == float(Fraction(43, 47))
    assert user.false_alarms_per_day == 0.3
    assert (user.gained, user.gained_cases) == (NONE, 0)
    assert storage.group == ("storage",)
    assert (storage.precision.value, storage.recall.value) == (1.0, 1.0)
    assert (storage.gained, storage.gained_cases) == (timedelta(minutes=70), 7)


def test_groups_by_more_than_one_name() -> None:
    history = [*cases(2), *cases(1, detector="poll"), *cases(3, partition="")]
    groups = figures(history, ("detector", "partition"), days=1)
    assert [(one.group, one.detected) for one in groups] == [
        (("job_end", "-"), 3), (("job_end", "gpu"), 2), (("poll", "gpu"), 1),
    ]  # fmt: skip
    assert figures([], days=1) == []


@pytest.mark.parametrize(
    ("successes", "total", "low", "high"),
    [  # R. G. Newcombe, Statistics in Medicine 17 (1998), table I, the score method
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson(successes: int, total: int, low: float, high: float) -> None:
    found = wilson(successes, total)
    assert found == pytest.approx((low, high), abs=5e-5)
    assert rate(successes, total).value == successes / total


def test_no_cases_have_no_rate() -> None:
    assert rate(0, 0).value is None
    with pytest.raises(ValueError, match="no proportion"):
        wilson(0, 0)
    with pytest.raises(ValueError, match="no proportion"):
        wilson(3, 2)


@pytest.mark.parametrize(
    ("right", "wrong", "minimum", "verdict", "needs"),
    [
        (73, 0, 0.95, Verdict.READY, None),
        (72, 0, 0.95, Verdict.NOT_YET, 1),
        (0, 0, 0.95, Verdict.NOT_YET, 73),
        (35, 0, 0.9, Verdict.READY, None),
        (34, 0, 0.9, Verdict.NOT_YET, 1),
        (100, 2, 0.95, Verdict.NOT_YET, 40),
        (0, 1, 0.95, Verdict.NOT_SAFE, None),
        (50, 50, 0.95, Verdict.NOT_SAFE, None),
    ],
)
def test_verdict(right: int, wrong: int, minimum: float, verdict: Verdict, needs: int | None) -> None:
    assert judge_precision(right, wrong, minimum) == (verdict, needs)


@given(st.integers(0, 300), st.integers(0, 20), st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99]))
def test_what_is_needed_is_just_enough(right: int, wrong: int, minimum: float) -> None:
    verdict, needs = judge_precision(right, wrong, minimum)
    if needs is not None:
        assert verdict is Verdict.NOT_YET
        assert judge_precision(right + needs, wrong, minimum)[0] is Verdict.READY
        assert needs == 1 or judge_precision(right + needs - 1, wrong, minimum)[0] is not Verdict.READY


@given(st.integers(1, 500), st.data())
def test_the_interval_holds_the_rate(total: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, total))
    low, high = wilson(successes, total)
    assert 0 <= low <= successes / total + 1e-12
    assert successes / total - 1e-12 <= high <= 1
