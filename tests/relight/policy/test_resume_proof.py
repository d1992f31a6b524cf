"""The verdict on what a new attempt printed."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.contracts import Policy
from relight.diagnosis.findings import StepLine
from relight.policy.resume_proof import (
    KEPT,
    Goal,
    Seen,
    add_steps,
    baseline,
    divergence,
    ended_wrong,
    gpu_hours,
    in_doubt,
    judge,
    last_good,
)

LIMITS = {"loss_jump": 2.0, "grad_norm_jump": 10.0}


def line(step: int, loss: float | None = 1.0, **fields: Any) -> StepLine:
    return StepLine(step=step, loss=loss, file="f", line=step, offset=step, **fields)


def lines(first: int, last: int, loss: float | None = 1.0, **fields: Any) -> list[StepLine]:
    return [line(step, loss, **fields) for step in range(first, last + 1)]


@pytest.mark.parametrize(
    ("first", "second", "furthest", "failed_at", "resumable", "verdict"),
    [
        (None, None, None, 125, 120, None),
        (121, 122, 125, 125, 120, None),
        (121, 122, 126, 125, 120, "resumed"),
        (121, None, 121, None, 120, "resumed"),
        (120, 121, 126, 125, 120, "resumed"),  # prints the checkpoint's own step
        (119, 120, 126, 125, 120, "resumed"),  # counts from 0
        (1, None, 1, 125, 120, None),
        (1, 2, 2, 125, 120, "from_scratch"),
        (0, 1, 1, 125, 120, "from_scratch"),
        (10, 20, 20, 125, 120, "from_scratch"),  # prints each tenth step
        (111, 112, 112, 125, 120, None),
        (111, 112, 126, 125, 120, "older_checkpoint"),
        (110, 120, 130, 125, 120, "older_checkpoint"),
        (1, 2, 126, 125, 120, "from_scratch"),
        (1, None, 1, None, None, "resumed"),  # no checkpoint is known, no step was ever printed
        (1, 2, 2, 5, None, None),
        (1, 2, 6, 5, None, "resumed"),
        (1, None, 1, None, 0, "resumed"),
        (1, None, 1, None, 120, "older_checkpoint"),
    ],
)
def test_steps_alone(
    first: int | None,
    second: int | None,
    furthest: int | None,
    failed_at: int | None,
    resumable: int | None,
    verdict: str | None,
) -> None:
    seen = Seen(first=first, second=second, furthest=furthest)
    result = judge(seen, Goal(failed_at=failed_at, resumable_from=resumable))
    assert (result.verdict if result else None) == verdict
    if result is not None:
        assert result.first_step == first


@pytest.mark.parametrize(
    ("loaded", "first", "verdict"),
    [
        (120, 121, "resumed"),
        (119, 121, "resumed"),  # counts from 0
        (110, 120, "older_checkpoint"),  # prints each tenth step: the first one alone does not tell
        (0, 121, "resumed"),  # another load, of weights without a step
        (None, 121, "resumed"),
    ],
)
def test_what_it_says_it_loaded(loaded: int | None, first: int, verdict: str) -> None:
    seen = Seen(first=first, second=first + 1, furthest=130, loaded_step=loaded)
    result = judge(seen, Goal(failed_at=125, resumable_from=120))
    assert result is not None
    assert result.verdict == verdict


def test_a_scratch_start_against_its_own_word_is_told() -> None:
    result = judge(
        Seen(first=1, second=2, furthest=2, loaded_step=120), Goal(failed_at=125, resumable_from=120)
    )
    assert result is not None
    assert result.verdict == "from_scratch"
    assert "says that it loaded step 120" in result.summary


def test_an_older_checkpoint_is_told_early_if_it_is_not_accepted() -> None:
    seen = Seen(first=101, second=102, furthest=102)
    assert judge(seen, Goal(failed_at=125, resumable_from=120)) is None
    strict = Goal.of(Policy(on_older_checkpoint="hold"), 125, 120)  # type: ignore[arg-type]
    result = judge(seen, strict)
    assert result is not None
    assert result.verdict == "older_checkpoint"
    assert judge(Seen(first=1, furthest=1), strict) is None  # it may be from scratch


BEFORE = lines(100, 125)
NAN = math.nan


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        (lines(121, 126), "resumed"),
        (lines(121, 126, NAN), "diverged"),
        (lines(121, 126, None, no_loss=True), "diverged"),  # Megatron leaves out a loss that is none
        ([*lines(121, 123), *lines(124, 126, NAN)], "diverged"),
        ([*lines(121, 124), *lines(125, 126, NAN)], None),  # only more steps can tell
        ([*lines(121, 124), *lines(125, 126, NAN), line(127)], "resumed"),
        (lines(121, 126, NAN, skipped=1), "resumed"),  # fp16 looks for its scale
        (lines(121, 126, 1.0, grad_norm=NAN), "diverged"),
        (lines(121, 126, 1.9), "resumed"),
        (lines(121, 126, 2.1), "diverged"),
        ([*lines(121, 124, 9.0), *lines(125, 126)], "resumed"),  # would have been told before
        (lines(126, 127, 9.0), None),
        (lines(126, 128, 9.0), "diverged"),
        (lines(121, 126, 0.1), "resumed"),
        (lines(121, 126, None), "resumed"),  # no loss is printed
    ],
)
def test_numbers(after: list[StepLine], verdict: str | None) -> None:
    seen = add_steps(Seen(before=baseline(BEFORE, 120)), after)
    result = judge(seen, Goal(failed_at=125, resumable_from=120, **LIMITS))
    assert (result.verdict if result else None) == verdict


def test_the_gradient_norm_may_jump_too() -> None:
    before = baseline(lines(100, 125, grad_norm=1.0), 120)
    high = add_steps(Seen(before=before), lines(121, 126, grad_norm=11.0))
    assert "gradient norm is 11" in divergence(high, Goal(**LIMITS))
    assert divergence(high, Goal(loss_jump=2.0)) == ""


def test_a_loss_that_was_high_at_that_step_is_none_that_jumped() -> None:
    falling = [line(step, 100.0 / step) for step in range(1, 61)]
    seen = add_steps(Seen(before=baseline(falling, 20)), [line(step, 101.0 / step) for step in range(21, 30)])
    assert not in_doubt(seen, Goal(**LIMITS))
    weights_are_new = add_steps(
        Seen(before=baseline(falling, 20)), [line(20 + step, 100.0 / step) for step in range(1, 10)]
    )
    assert divergence(weights_are_new, Goal(**LIMITS))
    # Where the log of those steps is gone, nothing is concluded from a loss of earlier steps.
    late = Seen(before=baseline(falling[-5:], 20))
    assert not in_doubt(add_steps(late, [line(step, 100.0 / step) for step in range(21, 30)]), Goal(**LIMITS))


def test_several_ranks_and_several_lines_are_one_step() -> None:
    seen = add_steps(Seen(), [line(1), line(1, None), line(2, None), line(2, 3.0), line(2, NAN)])
    assert [(s.step, s.loss, s.bad) for s in seen.samples] == [(1, 1.0, False), (2, 3.0, True)]
    assert last_good(seen) == 1
    assert "since step 2" in ended_wrong(seen)
    assert ended_wrong(Seen()) == ""


@pytest.mark.parametrize(
    ("seconds", "left", "interval", "gpus", "hours"),
    [
        (3600, 0, None, 8, 8.0),
        (3600, 100, 36.0, 8, 16.0),
        (3600, 100, None, 8, None),
        (3600, 0, 1.0, None, None),
        (-5, -5, 1.0, 8, 0.0),
    ],
)
def test_gpu_hours(
    seconds: float, left: int, interval: float | None, gpus: int | None, hours: float | None
) -> None:
    assert gpu_hours(seconds, left, interval, gpus) == hours


@given(
    st.lists(
        st.lists(
            st.builds(
                line,
                st.integers(0, 300),
                st.floats(),
                grad_norm=st.none() | st.floats(),
                no_loss=st.booleans(),
            ),
            max_size=20,
        ),
        max_size=6,
    )
)
def test_any_numbers_in_any_pieces_are_bounded_and_judged(pieces: list[list[StepLine]]) -> None:
    seen = Seen(before=baseline(BEFORE, 120))
    for piece in pieces:
        seen = add_steps(seen, piece)
        judge(seen, Goal(failed_at=125, resumable_from=120, **LIMITS))
        assert len(seen.samples) <= 2 * KEPT
        assert Seen.model_validate_json(seen.model_dump_json()) == seen
