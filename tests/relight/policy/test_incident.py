"""When many failing jobs are one incident, what waits then, and when it is over."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relight.contracts import Cause
from relight.contracts.guard import BreakerReset, FaultReport, GuardLimits, GuardState
from relight.contracts.notice import Event
from relight.policy import guard as gates
from relight.policy import incident as incidents
from tests.relight.policy.test_guard import MINUTE, NOW, Desk


def fail(
    desk: Desk, *jobs: str, cause: Cause = Cause.STORAGE, at: datetime | None = None, user: str = ""
) -> None:
    for job in jobs:
        desk.guard.report_fault(FaultReport(job=job, user=user, cause=cause, at=at or desk.now), desk.now)
    desk.tick()


@pytest.mark.parametrize(
    ("faults", "begins"),
    [
        ([("1", Cause.STORAGE), ("2", Cause.STORAGE), ("3", Cause.STORAGE)], True),
        ([("1", Cause.NETWORK_FABRIC), ("2", Cause.NETWORK_FABRIC), ("3", Cause.NETWORK_FABRIC)], True),
        ([("1", Cause.STORAGE), ("2", Cause.STORAGE)], False),
        ([("1", Cause.STORAGE)] * 5, False),
        ([("1", Cause.STORAGE), ("2", Cause.STORAGE), ("3", Cause.NETWORK_FABRIC)], False),
        ([("1", Cause.USER_CODE), ("2", Cause.USER_CODE), ("3", Cause.USER_CODE)], False),
        ([("1", Cause.GPU_HARDWARE), ("2", Cause.GPU_HARDWARE), ("3", Cause.GPU_HARDWARE)], False),
    ],
)
def test_what_begins_an_incident(faults: list[tuple[str, Cause]], begins: bool) -> None:
    desk = Desk()
    for job, cause in faults:
        fail(desk, job, cause=cause)
    assert bool(desk.guard.state.incidents) is begins
    assert [notice.event for notice in desk.guard.news] == ([Event.INCIDENT] if begins else [])


def test_faults_far_apart_are_none() -> None:
    desk = Desk()
    for job in "123":
        fail(desk, job)
        desk.tick(9 * MINUTE)
    assert not desk.guard.state.incidents


def test_zero_turns_it_off() -> None:
    desk = Desk(incident_jobs=0)
    fail(desk, "1", "2", "3", "4")
    assert not desk.guard.state.incidents


def test_recoveries_from_that_cause_wait_and_no_node_is_drained() -> None:
    desk = Desk()
    assert desk.drain("d0").granted
    fail(desk, "1", "2", "3", user="ada")
    held = desk.answer("d0")
    assert (held.granted, held.paused, held.gate) == (True, True, gates.INCIDENT)
    waits = desk.recover("r1", cause=Cause.STORAGE)
    assert (waits.granted, waits.waits, waits.gate) == (False, True, gates.INCIDENT)
    assert "3 jobs failed by storage within 0:10:00" in waits.reason
    refused = desk.drain("d1", cause=Cause.GPU_HARDWARE)
    assert (refused.granted, refused.waits, refused.gate) == (False, False, gates.INCIDENT)
    assert desk.recover("r2", cause=Cause.GPU_HARDWARE).granted  # behind it in the queue, and not held up
    (shown,) = desk.guard.status(desk.now).incidents
    assert shown.jobs == ("1", "2", "3")


def test_it_is_over_when_it_has_been_quiet() -> None:
    desk = Desk()
    fail(desk, "1", "2", "3")
    desk.recover("r1", cause=Cause.STORAGE)
    desk.tick(20 * MINUTE)
    fail(desk, "4")
    assert desk.guard.due() == desk.now + 30 * MINUTE
    desk.tick(29 * MINUTE)
    assert not desk.answer("r1").granted
    desk.tick(MINUTE)
    assert desk.answer("r1").granted
    assert not desk.guard.state.incidents
    assert len(desk.guard.news) == 1


def test_a_short_cool_down_does_not_begin_it_again() -> None:
    desk = Desk(breaker_cool_down=MINUTE)
    fail(desk, "1", "2", "3")
    desk.tick(MINUTE)
    assert not desk.guard.state.incidents


def test_a_person_ends_it_and_late_word_of_it_counts_no_more() -> None:
    desk = Desk()
    seen = desk.now
    fail(desk, "1", "2", "3")
    desk.recover("r1", cause=Cause.STORAGE)
    desk.tick(MINUTE)
    desk.guard.reset(BreakerReset(by="ada"), desk.now)
    desk.tick()
    assert desk.answer("r1").granted
    fail(desk, "4", "5", "6", at=seen)
    assert not desk.guard.state.incidents
    assert desk.guard.state.counts.stale == 3
    desk.tick(MINUTE)
    fail(desk, "7", "8", "9")
    assert desk.guard.state.incidents


def test_a_reset_of_one_partition_does_not_end_it() -> None:
    desk = Desk()
    fail(desk, "1", "2", "3")
    desk.guard.reset(BreakerReset(partition="gpu", by="ada"), desk.now)
    assert desk.guard.state.incidents


def test_a_flood_of_faults_stays_bounded() -> None:
    desk = Desk()
    fail(desk, *(str(n) for n in range(incidents.MAX_FAULTS * 2)))
    state = desk.guard.state
    assert len(state.faults) == incidents.MAX_FAULTS
    assert len(state.incidents["storage"].jobs) == incidents.MAX_NAMED


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["1", "2", "3", "4"]),
        st.sampled_from([Cause.STORAGE, Cause.NETWORK_FABRIC, Cause.GPU_HARDWARE]),
        st.integers(-20, 5),
    ),
    max_size=30,
)


def _told(events: Any) -> GuardState:
    state, limits = GuardState(), GuardLimits()
    for job, cause, minutes in events:
        incidents.note(limits, state, FaultReport(job=job, cause=cause, at=NOW + minutes * MINUTE), NOW)
    incidents.tick(limits, state, NOW)
    return state


@given(EVENTS, st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_only_what_came_counts_not_its_order_nor_repeats(events: Any, random: Any) -> None:
    again = [*events, *events]
    random.shuffle(again)
    assert _told(events).incidents == _told(again).incidents


@given(EVENTS)
@settings(max_examples=200, deadline=None)
def test_an_incident_is_so_many_different_jobs_within_the_window(events: Any) -> None:
    state = _told(events)
    for cause in incidents.SHARED:
        jobs = {job for job, found, minutes in events if found is cause and minutes > -10}
        assert (cause.value in state.incidents) is (len(jobs) >= GuardLimits().incident_jobs)


@given(EVENTS)
@settings(max_examples=100, deadline=None)
def test_it_always_ends_and_survives_a_renewal(events: Any) -> None:
    state, limits = _told(events), GuardLimits()
    state = GuardState.model_validate_json(state.model_dump_json())
    assert state == _told(events)
    incidents.tick(limits, state, NOW + limits.breaker_cool_down)
    assert not state.incidents
