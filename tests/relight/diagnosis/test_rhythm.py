"""The learned pace, and when silence becomes suspicious."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.diagnosis.findings import PhaseKind
from relight.diagnosis.rhythm import FIRST_STEP_FACTOR, RECENT, Rhythm
from tests.relight.diagnosis.making import NOW

FLOOR = timedelta(seconds=60)


def after(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def learned(interval: float, count: int = 10) -> Rhythm:
    rhythm = Rhythm()
    for n in range(count):
        assert rhythm.observe(n, NOW + after(n * interval))
    return rhythm


def test_before_any_step_there_is_no_deadline() -> None:
    rhythm = Rhythm()
    assert (rhythm.deadline(FLOOR, 3), rhythm.interval, rhythm.last) == (None, None, None)
    rhythm.enter(PhaseKind.CHECKPOINT_LOAD, NOW)
    assert rhythm.deadline(FLOOR, 3) is None


@pytest.mark.parametrize(("interval", "allowed"), [(1, 60), (10, 60), (20, 60), (30, 90), (600, 1800)])
def test_the_longer_of_floor_and_factor_counts(interval: float, allowed: float) -> None:
    rhythm = learned(interval)
    assert rhythm.interval == after(interval)
    assert rhythm.deadline(FLOOR, 3) == NOW + after(9 * interval) + after(allowed)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_unknown_pace_gets_more_patience(steps: int) -> None:
    rhythm = learned(1, steps)
    assert rhythm.interval is None
    assert rhythm.deadline(FLOOR, 3) == NOW + after(steps - 1) + FLOOR * FIRST_STEP_FACTOR


def test_the_same_step_again_is_no_progress() -> None:
    rhythm = learned(10)
    before = rhythm.model_copy(deep=True)
    assert not rhythm.observe(9, NOW + after(1000))
    assert rhythm == before


@pytest.mark.parametrize(
    ("step", "progress"), [(8, False), (7, False), (6, False), (5, True), (0, True), (10, True)]
)
def test_a_rank_that_is_late_is_no_progress_and_going_back_is(step: int, progress: bool) -> None:
    assert learned(10).observe(step, NOW + after(100)) is progress


def test_one_long_pause_does_not_change_the_pace() -> None:
    rhythm = learned(10)
    rhythm.observe(10, NOW + after(5000))
    assert rhythm.interval == after(10)


def test_a_change_of_pace_is_followed() -> None:
    rhythm = learned(10)
    at = NOW + after(90)
    for n in range(RECENT):
        at += after(40)
        rhythm.observe(10 + n, at)
    assert rhythm.interval == after(40)


def test_a_phase_has_its_own_tolerance_and_is_kept_out_of_the_pace() -> None:
    rhythm = learned(10)
    start = NOW + after(90)
    rhythm.enter(PhaseKind.CHECKPOINT_SAVE, start + after(1))
    unknown = rhythm.deadline(FLOOR, 3)
    assert unknown == start + after(1) + FLOOR * 10
    rhythm.leave(PhaseKind.CHECKPOINT_SAVE, start + after(301))
    rhythm.observe(10, start + after(311))
    assert rhythm.interval == after(10)
    rhythm.enter(PhaseKind.CHECKPOINT_SAVE, start + after(320))
    assert rhythm.deadline(FLOOR, 3) == start + after(320) + after(900)
    rhythm.observe(11, start + after(600))
    assert rhythm.deadline(FLOOR, 3) == start + after(600) + FLOOR


def test_a_phase_that_never_says_that_it_ended_ends_with_the_next_step() -> None:
    rhythm = learned(10)
    rhythm.enter(PhaseKind.EVALUATION, NOW + after(91))
    rhythm.observe(10, NOW + after(191))
    assert rhythm.phase is None
    assert rhythm.phase_lengths[PhaseKind.EVALUATION] == [100.0]


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 1e5)), max_size=60), st.integers(0, 60))
def test_a_stored_rhythm_goes_on_as_if_it_had_not_been_stored(seen: list[tuple[int, float]], at: int) -> None:
    straight, stored = Rhythm(), Rhythm()
    now = NOW
    for n, (step, seconds) in enumerate(seen):
        now += after(seconds)
        if n == at:
            stored = Rhythm.model_validate_json(stored.model_dump_json())
        if step % 7 == 0:
            straight.enter(PhaseKind.EVALUATION, now)
            stored.enter(PhaseKind.EVALUATION, now)
        assert straight.observe(step, now) == stored.observe(step, now)
    assert stored == straight
    assert len(straight.intervals) <= RECENT
    deadline = straight.deadline(FLOOR, 3)
    assert (deadline is None) == (straight.at is None)
    if deadline is not None and straight.at is not None:
        assert deadline >= straight.at + FLOOR
