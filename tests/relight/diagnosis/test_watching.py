"""Watching step lines: slowdowns, numerics, and the bounded trail that keeps it all."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relight.contracts import Cause
from relight.diagnosis.findings import Finding, PhaseKind, PhaseLine, Sighting, StepLine
from relight.diagnosis.numbers import Numbers, Trouble
from relight.diagnosis.pace import Pace
from relight.diagnosis.trail import MAX_SIGHTINGS, Trail
from tests.relight.diagnosis.making import NOW, findings

NAN, INF = float("nan"), float("inf")


def step(n: int, seconds: float | None = None, **more: object) -> StepLine:
    return StepLine(step=n, file="a", line=n, offset=n * 100, step_seconds=seconds, **more)  # type: ignore[arg-type]


def pace_of(seconds: list[float]) -> Pace:
    pace = Pace()
    for n, s in enumerate(seconds, start=10):
        pace.observe(step(n, s), None)
    return pace


@pytest.mark.parametrize(
    ("seconds", "since"),
    [
        ([1.0] * 20, None),
        ([1.0, 1.0, 3.0, 3.1, 3.0], 12),
        ([1.0, 1.0, 3.0, 3.1], None),
        ([1.0, 1.0, 3.0, 3.1, 3.0, 1.0], None),
        ([1.0] * 3 + [60.0] + [1.0] * 3, None),
        ([1.0] * 100 + [3.0] * 9, None),
        ([1.0] * 100 + [3.0] * 10, 110),
        ([1.0, 1.4] * 20, None),
        ([3.0, 3.0, 1.0, 1.0, 1.0], None),
        ([], None),
    ],
)
def test_a_slowdown_must_last(seconds: list[float], since: int | None) -> None:
    slowdown = pace_of(seconds).slowdown()
    assert (slowdown.since.step if slowdown else None) == since


def test_the_first_step_and_what_follows_a_pause_are_no_measure() -> None:
    pace = Pace()
    for n, s in enumerate([0.6, 10.0, 10.0, 10.0, 10.0, 10.0], start=1):
        pace.observe(step(n, s), None)
    assert pace.slowdown() is None
    pace = pace_of([1.0] * 5)
    for n in range(20, 26):
        pace.pause()
        pace.observe(step(n, 50.0), None)
    assert pace.slowdown() is None


def test_time_stamps_give_the_pace_where_lines_do_not() -> None:
    pace, at = Pace(), NOW
    for n, gap in enumerate([60, 60, 60, 137, 138, 137]):
        at += timedelta(seconds=gap)
        pace.observe(step(2000 + 10 * n), at)
    slowdown = pace.slowdown()
    assert slowdown is not None
    assert (slowdown.since.step, slowdown.before, slowdown.waits_for_data) == (2030, 6.0, False)


@pytest.mark.parametrize(
    ("data", "waits"), [([0.1, 0.1, 2.1, 2.2, 2.1], True), ([0.1, 0.1, 0.2, 0.2, 0.2], False)]
)
def test_waiting_for_data_explains_a_slowdown(data: list[float], waits: bool) -> None:
    pace = Pace()
    for n, (s, d) in enumerate(zip([1.0, 1.0, 3.0, 3.1, 3.0], data, strict=True), start=10):
        pace.observe(step(n, s, data_seconds=d), None)
    slowdown = pace.slowdown()
    assert slowdown is not None
    assert slowdown.waits_for_data is waits


def numbers_of(losses: list[float], **more: object) -> Numbers:
    numbers = Numbers()
    for n, loss in enumerate(losses):
        numbers.observe(step(n, loss=loss, **more))
    return numbers


@pytest.mark.parametrize(
    ("losses", "trouble"),
    [
        ([2.0] * 10, None),
        ([2.0, 2.0, NAN, NAN, NAN], Trouble.NOT_A_NUMBER),
        ([2.0, 2.0, INF, INF, INF], Trouble.NOT_A_NUMBER),
        ([2.0, NAN, NAN, 2.0], None),
        ([NAN, NAN, NAN], Trouble.NOT_A_NUMBER),
        ([2.31, 2.30, 4.9, 7.2, 9.8, 10.9, 10.9], Trouble.SPIKE),
        ([2.11, 2.12, 3.9, 3.1, 2.4, 2.13], None),
        ([0.0101, 0.0069, 0.0163, 0.0142, 0.0151], None),  # the noise of a small model, just after its start
        ([11.0, 9.0, 7.0, 5.0, 4.0], None),
        ([2.0] * 80 + [4.0] * 19, None),
        ([2.0] * 80 + [4.0] * 20, Trouble.SPIKE),
        ([2.0, 0.0, 0.0, 0.0], Trouble.ZERO),
        ([0.0] * 10, None),
        ([-1.0, -1.0, 3.0, 3.0, 3.0], None),
    ],
)
def test_numerics(losses: list[float], trouble: Trouble | None) -> None:
    found = numbers_of(losses).divergence()
    assert (found.what if found else None) == trouble


def test_a_gradient_that_is_not_a_number_counts_and_a_skipped_step_does_not() -> None:
    bad = numbers_of([2.0] * 4, grad_norm=NAN).divergence()
    assert bad is not None
    assert bad.what is Trouble.NOT_A_NUMBER
    assert bad.from_start
    assert numbers_of([NAN] * 4, skipped=10, loss_scale=8388608.0).divergence() is None
    floor = numbers_of([2.0] * 4, skipped=1, loss_scale=0.001).divergence()
    assert floor is not None
    assert floor.what is Trouble.SKIPPING


ECC = "[rank{}]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"


def test_a_trail_is_bounded() -> None:
    trail = Trail()
    for f in findings(
        "".join(ECC.format(r) for r in range(3000)), nodes=[f"n{n}" for n in range(400)], per_node=8
    ):
        trail.add(f, NOW)
    assert len(trail.sightings) <= MAX_SIGHTINGS
    assert sum(trail.alike.values()) == 3000


def test_steps_after_a_finding_are_counted() -> None:
    trail = Trail()
    (found,) = findings(ECC.format(1))
    trail.add(found.model_copy(update={"file": "a", "offset": 150}), NOW)
    trail.add(step(1), NOW)
    assert trail.sightings[0].outlived == 0
    for n in (2, 2, 3):
        trail.add(step(n), NOW)
    assert trail.sightings[0].outlived == 2


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 30), st.sampled_from(["save", "ecc"])), max_size=40), st.integers(0, 40)
)
def test_a_stored_trail_goes_on_as_if_it_had_not_been_stored(seen: list[int | str], at: int) -> None:
    straight, stored = Trail(), Trail()
    (ecc,) = findings(ECC.format(1))
    for n, what in enumerate(seen):
        now = NOW + timedelta(seconds=n)
        if n == at:
            stored = Trail.model_validate_json(stored.model_dump_json())
        event: StepLine | PhaseLine = (
            step(what, 1.0, loss=NAN if what % 5 == 0 else 2.0)
            if isinstance(what, int)
            else PhaseLine(phase=PhaseKind.CHECKPOINT_SAVE, begins=True, file="a", line=n, offset=n)
        )
        for trail in (straight, stored):
            trail.add(ecc if what == "ecc" else event, now)
    end = NOW + timedelta(hours=1)
    assert stored.model_dump_json() == straight.model_dump_json()
    assert [s.finding.signature for s in stored.seen(end)] == [
        s.finding.signature for s in straight.seen(end)
    ]


def test_a_slow_trail_says_what_it_waits_for() -> None:
    trail = Trail()
    for n, s in enumerate([1.0, 1.0, 3.0, 3.0, 3.0], start=10):
        trail.add(step(n, s, data_seconds=s - 0.9), NOW + timedelta(seconds=n))
    (sighting,) = trail.slow(NOW)
    assert isinstance(sighting, Sighting)
    assert sighting.finding.cause is Cause.DATA_LOADER
    assert trail.seen(NOW) == []


def ecc(offset: int, **more: object) -> Finding:
    (found,) = findings(ECC.format(1))
    return found.model_copy(update={"file": "a", "offset": offset, **more})


def test_a_live_trail_forgets_what_training_outlived_and_hears_of_the_same_again() -> None:
    trail = Trail(live=True)
    at = 0
    for _ in range(40):
        at += 1
        trail.add(ecc(at * 100 + 1), NOW)
        for _ in range(10):
            at += 1
            trail.add(step(at), NOW + timedelta(seconds=at))
    assert trail.sightings == []
    trail.add(ecc(at * 100 + 1), NOW)
    assert len(trail.sightings) == 1


def test_a_live_trail_is_bounded_whatever_the_log_names() -> None:
    trail = Trail(live=True)
    for n in range(20_000):
        trail.add(ecc(n, node=f"n{n}", ends_rank=n < 10), NOW)
    assert len(trail.sightings) <= MAX_SIGHTINGS
    assert len(trail.alike) <= 5000
    assert sum(s.finding.ends_rank for s in trail.sightings) == 10


def test_an_announced_attempt_ends_what_the_file_said_before() -> None:
    trail = Trail(live=True)
    trail.add(ecc(1), NOW)
    trail.add(ecc(2, file="other"), NOW)
    trail.add(step(5, attempt=1), NOW)
    assert [s.finding.file for s in trail.sightings] == ["other"]
