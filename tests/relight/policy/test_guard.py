"""The guard's budgets, leases, breakers and ledger: tables, and properties over any order of messages."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relight.contracts import Cause, Mode
from relight.contracts.guard import (
    BreakerReset,
    BreakerState,
    GuardInput,
    GuardLimits,
    GuardState,
    NodeReport,
    PermitDecision,
    PermitKind,
    PermitRelease,
    PermitRequest,
)
from relight.contracts.messages import ModeChange, Note
from relight.policy import guard as gates
from relight.policy.guard import Guard
from relight.policy.node_ledger import MAX_NODES, MAX_STRIKES

NOW = datetime(2026, 12, 2, 5, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
DRAIN, RECOVERY = PermitKind.DRAIN, PermitKind.RECOVERY


class Desk:
    """A guard with a clock, and the latest answer to each holder."""

    def __init__(self, state: GuardState | None = None, **limits: Any) -> None:
        self.guard = Guard("lab", GuardLimits(**limits), state or GuardState())
        self.now = NOW
        self.answers: list[PermitDecision] = []

    def tick(self, after: timedelta = timedelta(0)) -> None:
        self.now += after
        self.guard.tick(self.now)
        self.answers += self.guard.outbox
        self.guard.outbox.clear()

    def recover(self, holder: str, user: str = "ada", **fields: Any) -> PermitDecision:
        return self.ask(PermitRequest(holder=holder, user=user, **fields))

    def drain(self, holder: str, *nodes: str, **fields: Any) -> PermitDecision:
        named = nodes or (f"n-{holder}",)
        return self.ask(PermitRequest(holder=holder, kind=DRAIN, nodes=named, partition="gpu", **fields))

    def ask(self, request: PermitRequest) -> PermitDecision:
        self.guard.request(request, self.now)
        self.tick()
        return self.answer(request.holder)

    def answer(self, holder: str) -> PermitDecision:
        return [answer for answer in self.answers if answer.holder == holder][-1]

    def release(self, holder: str, kind: PermitKind = RECOVERY) -> None:
        self.guard.release(PermitRelease(holder=holder, kind=kind), self.now)
        self.tick()

    def fault(self, *nodes: str, **fields: Any) -> None:
        told: dict[str, Any] = {"cause": Cause.NVLINK, "at": self.now, "partition": "gpu", "job": "1"}
        self.guard.report(NodeReport(nodes=nodes, **(told | fields)), self.now)
        self.tick()

    def breaker(self, partition: str = "gpu") -> BreakerState:
        found = self.guard.state.breakers.get(partition)
        return found.state if found else BreakerState.CLOSED

    @property
    def holders(self) -> list[str]:
        return [permit.request.holder for permit in self.guard.state.permits.values()]


# Recoveries


def test_recoveries_at_once_first_come_first_served() -> None:
    desk = Desk(recoveries_at_once=2)
    said = [desk.recover(name, user=name) for name in "abcd"]
    assert [answer.granted for answer in said] == [True, True, False, False]
    assert said[2].waits
    assert (said[2].gate, said[2].reason) == (
        gates.AT_ONCE, "2 recoveries are under way, and no more than that may be at once",
    )  # fmt: skip
    desk.release("b")
    assert desk.holders == ["a", "c"]
    assert desk.answer("c").granted
    desk.release("a")
    assert desk.holders == ["c", "d"]


def test_recoveries_per_hour() -> None:
    desk = Desk(recoveries_per_hour=2)
    for name in "ab":
        desk.recover(name)
        desk.release(name)
        desk.tick(MINUTE)
    assert desk.recover("c").gate == gates.PER_HOUR
    assert desk.guard.due() == NOW + HOUR
    desk.tick(58 * MINUTE)
    assert desk.answer("c").granted


def test_one_users_limit_holds_nobody_else_back() -> None:
    desk = Desk(recoveries_per_user=1)
    assert desk.recover("a1", user="ada").granted
    assert desk.recover("a2", user="ada").gate == gates.PER_USER
    assert desk.recover("b1", user="bob").granted
    desk.release("a1")
    assert desk.answer("a2").granted


def test_asking_again_is_answered_and_takes_no_second_permit_or_place() -> None:
    desk = Desk(recoveries_at_once=1)
    assert desk.recover("a").granted
    assert desk.recover("a").granted
    desk.recover("b", user="bob")
    desk.recover("c", user="eve")
    assert desk.recover("b", user="bob").waits
    assert desk.guard.state.counts.granted == 1
    desk.release("a")
    assert desk.holders == ["b"]


def test_a_permit_given_back_is_not_given_again() -> None:
    desk = Desk()
    desk.recover("a")
    desk.release("a")
    late = desk.recover("a")
    assert (late.granted, late.waits, late.gate) == (False, False, gates.ENDED)
    assert desk.holders == []


def test_a_lease_ends_and_a_word_of_the_holder_renews_it() -> None:
    desk = Desk(recoveries_at_once=1, lease=HOUR)
    desk.recover("a")
    desk.recover("b")
    desk.tick(50 * MINUTE)
    desk.recover("a")
    desk.tick(59 * MINUTE)
    assert desk.holders == ["a"]
    desk.tick(MINUTE)
    assert desk.holders == ["b"]
    assert desk.guard.state.counts.expired == 1


def test_a_holder_that_is_gone_frees_its_place() -> None:
    desk = Desk(recoveries_at_once=1)
    desk.recover("a")
    desk.recover("b")
    desk.guard.forget("a", desk.now)
    desk.tick()
    assert desk.holders == ["b"]


def test_a_full_queue_is_told() -> None:
    desk = Desk(recoveries_at_once=1)
    for n in range(gates.MAX_QUEUE + 1):
        desk.guard.request(PermitRequest(holder=f"r{n}"), NOW)
    desk.tick()
    answer = desk.recover("late")
    assert answer.granted is False
    assert desk.recover("later").gate == gates.QUEUE
    assert desk.answer("later").waits
    assert len(desk.guard.state.queue) == gates.MAX_QUEUE


# Pause


def test_a_pause_grants_nothing_and_is_told_to_every_holder() -> None:
    desk = Desk()
    desk.recover("a")
    desk.guard.pause(Note(by="ada", reason="storage is down"), desk.now)
    desk.tick()
    told = desk.answer("a")
    assert (told.granted, told.paused, told.reason) == (True, True, "ada: storage is down")
    waiting = desk.recover("b")
    assert (waiting.waits, waiting.gate) == (True, gates.PAUSED)
    assert "storage is down" in waiting.reason
    desk.guard.unpause()
    desk.tick()
    assert desk.answer("b").granted
    assert not desk.answer("a").paused


# Drains


def test_drains_per_hour_counts_nodes_and_keeps_the_order() -> None:
    desk = Desk(drains_per_hour=3, drain_share=1, partition_nodes={"gpu": 100})
    assert desk.drain("a", "n1", "n2").granted
    assert desk.drain("b", "n3", "n4").gate == gates.DRAINS
    assert desk.drain("c", "n5").waits, "it fits, but came later"
    desk.tick(HOUR)
    assert desk.answer("b").granted
    assert desk.answer("c").granted


@pytest.mark.parametrize(
    ("size", "share", "granted"), [(100, 0.02, 2), (10, 0.02, 1), (None, 0.5, 1), (40, 0.1, 4)]
)
def test_share_of_a_partition(size: int | None, share: float, granted: int) -> None:
    sizes = {} if size is None else {"gpu": size}
    desk = Desk(drains_per_hour=50, drain_share=share, partition_nodes=sizes)
    said = [desk.drain(f"d{n}") for n in range(granted + 1)]
    assert [answer.granted for answer in said] == [True] * granted + [False]
    assert said[-1].gate == gates.SHARE
    other = PermitRequest(holder="x", kind=DRAIN, nodes=("m1",), partition="cpu")
    assert desk.ask(other).granted, "another partition is not held back"
    desk.release("d0", DRAIN)
    assert desk.answer(f"d{granted}").granted


@pytest.mark.parametrize(
    ("nodes", "limits", "gate"),
    [
        (("n1", "n2"), {"drains_per_hour": 1}, gates.DRAINS),
        (("n1", "n2"), {"drains_per_hour": 9}, gates.SHARE),
        (("n1",), {"drains_per_hour": 0}, gates.DRAINS),
    ],
)
def test_what_waiting_cannot_help_is_refused(
    nodes: tuple[str, ...], limits: dict[str, Any], gate: str
) -> None:
    answer = Desk(**limits).drain("a", *nodes)
    assert (answer.granted, answer.waits, answer.gate) == (False, False, gate)


# The breaker


@pytest.mark.parametrize(("size", "trips_at"), [(None, 3), (10, 3), (60, 3), (61, 4), (1000, 50)], ids=str)
def test_the_breaker_trips_at_three_nodes_or_five_percent(size: int | None, trips_at: int) -> None:
    desk = Desk(partition_nodes={"gpu": size} if size else {}, cluster_nodes=100_000)
    for n in range(trips_at - 1):
        desk.fault(f"n{n}")
        desk.fault(f"n{n}", job="another")
    assert desk.breaker() is BreakerState.CLOSED
    desk.fault("one more")
    assert desk.breaker() is BreakerState.OPEN
    assert "nvlink" in desk.guard.state.breakers["gpu"].reason
    assert desk.breaker("") is BreakerState.CLOSED, "the cluster is larger"


def test_faults_of_several_partitions_trip_the_clusters_breaker() -> None:
    desk = Desk()
    for n in range(3):
        desk.fault(f"n{n}", partition=f"p{n}")
    assert desk.breaker("") is BreakerState.OPEN
    assert desk.breaker("p1") is BreakerState.CLOSED
    assert desk.drain("a").gate == gates.BREAKER


def test_faults_far_apart_do_not_trip() -> None:
    desk = Desk()
    for n in range(10):
        desk.fault(f"n{n}")
        desk.tick(6 * MINUTE)
    assert desk.breaker() is BreakerState.CLOSED
    desk.fault("late", at=desk.now - 11 * MINUTE)
    assert "late" not in desk.guard.state.sightings


def test_a_tripped_breaker_refuses_drains_and_lets_recoveries_pass() -> None:
    desk = Desk(drains_per_hour=1)
    desk.drain("before")
    assert desk.drain("queued").waits
    desk.fault("n1", "n2", "n3")
    refused = desk.answer("queued")
    assert (refused.granted, refused.waits, refused.gate) == (False, False, gates.BREAKER)
    assert desk.drain("after").gate == gates.BREAKER
    assert desk.recover("r").granted


def test_a_drain_that_was_allowed_just_before_is_held_back() -> None:
    desk = Desk(drains_per_hour=5)
    assert not desk.drain("early").paused
    desk.recover("r")
    desk.fault("n1", "n2", "n3")
    told = desk.answer("early")
    assert (told.granted, told.paused, told.gate) == (True, True, gates.BREAKER)
    assert not desk.answer("r").paused
    assert desk.drain("early").paused, "also when it asks again"
    desk.tick(30 * MINUTE)
    assert desk.answer("early").paused, "half open: another one tries"
    desk.guard.reset(BreakerReset(by="ada"), desk.now)
    desk.tick()
    assert not desk.answer("early").paused


def test_half_open_one_drain_tries_and_quiet_closes() -> None:
    desk = Desk(drains_per_hour=50, drain_share=1, partition_nodes={"gpu": 20})
    desk.fault("n1", "n2", "n3")
    desk.tick(10 * MINUTE)
    desk.fault("n4")  # it goes on: the cool-down begins anew
    desk.tick(29 * MINUTE)
    assert desk.breaker() is BreakerState.OPEN
    desk.tick(MINUTE)
    assert desk.breaker() is BreakerState.HALF_OPEN
    assert desk.drain("two", "n1", "n2").gate == gates.BREAKER
    desk.release("two", DRAIN)
    assert desk.drain("probe").granted
    assert desk.drain("next").waits
    desk.release("probe", DRAIN)
    assert desk.breaker() is BreakerState.HALF_OPEN
    assert desk.answer("next").waits
    desk.tick(10 * MINUTE)
    assert desk.breaker() is BreakerState.CLOSED
    assert desk.answer("next").granted


def test_half_open_a_new_fault_trips_it_again() -> None:
    desk = Desk()
    desk.fault("n1", "n2", "n3")
    desk.tick(30 * MINUTE)
    assert desk.drain("probe").granted
    desk.tick(MINUTE)
    desk.fault("n9")
    assert desk.breaker() is BreakerState.OPEN
    assert desk.guard.state.breakers["gpu"].trips == 2


def test_half_open_and_unused_it_closes_after_another_quiet_time() -> None:
    desk = Desk()
    desk.fault("n1", "n2", "n3")
    desk.tick(30 * MINUTE)
    assert desk.guard.due() == desk.now + 30 * MINUTE
    desk.tick(30 * MINUTE)
    assert desk.breaker() is BreakerState.CLOSED


@pytest.mark.parametrize("partition", ["gpu", ""])
def test_after_a_reset_what_was_seen_before_does_not_act(partition: str) -> None:
    desk = Desk(drains_per_hour=50, drain_share=1, partition_nodes={"gpu": 20})
    if partition:  # the cluster's own breaker stays closed: it is large
        desk.guard.configure(desk.guard.limits.model_copy(update={"cluster_nodes": 1000}))
    before = desk.now
    desk.fault("n1", "n2", "n3")
    desk.tick(MINUTE)
    desk.guard.reset(BreakerReset(partition=partition, by="ada"), desk.now)
    desk.tick()
    assert desk.breaker() is BreakerState.CLOSED
    assert desk.guard.state.breakers["gpu"].reason == "reset by ada"
    desk.fault("n4", "n5", "n6", "n7", at=before)
    assert desk.breaker() is BreakerState.CLOSED
    assert desk.guard.state.counts.stale == 1
    stale = desk.drain("old", evidence_at=before)
    assert (stale.granted, stale.waits, stale.gate) == (False, False, gates.STALE)
    desk.tick(MINUTE)
    assert desk.drain("new", evidence_at=desk.now).granted
    desk.fault("n4", "n5", "n6")
    assert desk.breaker() is BreakerState.OPEN


def test_a_clock_that_is_ahead_does_not_count_for_longer() -> None:
    desk = Desk()
    desk.fault("n1", "n2", at=NOW + DAY)
    desk.tick(11 * MINUTE)
    desk.fault("n3")
    assert desk.breaker() is BreakerState.CLOSED


def test_a_thousand_faulty_nodes_within_ten_seconds() -> None:
    desk = Desk(cluster_nodes=1000, drains_per_hour=500, drain_share=1)
    began = time.process_time()
    granted_after_the_trip = []
    for n in range(1000):
        desk.now = NOW + timedelta(seconds=n / 100)
        desk.fault(f"node{n}", partition_nodes=1000, job=f"{n}")
        answer = desk.drain(f"drain:{n}", f"node{n}")
        if desk.breaker() is not BreakerState.CLOSED:
            granted_after_the_trip.append(answer.granted)
    assert time.process_time() - began < 5
    assert desk.guard.state.counts.granted < 50
    assert len(granted_after_the_trip) > 900
    assert not any(granted_after_the_trip)
    assert desk.recover("r").granted


def test_what_a_message_costs_does_not_grow_with_their_number() -> None:
    """Thousands may wait for a worker that was away, and a workflow may think for two seconds at most."""

    def seconds(messages: int) -> float:
        desk = Desk(cluster_nodes=20_000)
        began = time.process_time()
        for n in range(messages):
            told = NodeReport(nodes=(f"n{n}",), cause=Cause.NVLINK, at=NOW, partition="gpu", job=f"{n}")
            desk.guard.report(told.model_copy(update={"partition_nodes": 20_000}), NOW)
            desk.guard.request(PermitRequest(holder=f"h{n}", user=f"u{n % 50}"), NOW)
        desk.tick()
        spent = time.process_time() - began
        assert desk.breaker() is BreakerState.OPEN
        return spent

    assert seconds(9000) < 4 * 9 * seconds(1000)


# The ledger of nodes


def test_strikes_count_distinct_jobs_and_causes() -> None:
    desk = Desk()
    for _ in range(3):
        desk.fault("n1", job="7")
        desk.tick(HOUR)
    desk.fault("n1", job="7", cause=Cause.GPU_HARDWARE)
    (node,) = desk.guard.nodes(desk.now)
    assert (node.jobs, len(node.strikes), node.lemon) == (1, 2, False)
    assert {strike.count for strike in node.strikes} == {1, 3}


def test_a_lemon_failed_different_jobs_lately() -> None:
    desk = Desk()
    for job in "123":
        desk.fault("bad", job=job, evidence="Xid 79")
        desk.fault(f"good{job}", job=job)
        desk.tick(DAY)
    worst, *others = desk.guard.nodes(desk.now)
    assert (worst.node, worst.lemon, worst.jobs) == ("bad", True, 3)
    assert worst.strikes[0].evidence == "Xid 79"
    assert not any(other.lemon for other in others)
    assert desk.guard.status(desk.now).lemons == ("bad",)
    desk.tick(7 * DAY)
    assert not desk.guard.nodes(desk.now)[0].lemon, "three strikes, half forgotten"
    desk.tick(19 * DAY)
    assert [len(node.strikes) for node in desk.guard.nodes(desk.now)] == [1, 1]
    desk.tick(DAY)
    assert desk.guard.nodes(desk.now) == ()
    assert desk.guard.state.nodes == {}


def test_job_logs_alone_make_no_lemon() -> None:
    desk = Desk()
    for job in "1234":
        desk.fault("n1", job=job, trusted=False)
    (node,) = desk.guard.nodes(desk.now)
    assert not node.lemon
    assert "only job logs" in node.why
    desk.fault("n1", job="5", trusted=True)
    assert desk.guard.nodes(desk.now)[0].lemon


def test_other_hardware_is_another_node() -> None:
    desk = Desk()
    for job in "123":
        desk.fault("n1", job=job, hardware="serial-1")
    desk.fault("n1", job="4")  # nobody told: it is the same
    assert desk.guard.nodes(desk.now)[0].jobs == 4
    desk.fault("n1", job="5", hardware="serial-2")
    assert desk.guard.nodes(desk.now)[0].jobs == 1


# Bounds and properties


def test_a_full_state_fits_into_one_message() -> None:
    """Temporal refuses an input above 2 MiB; a guard that cannot renew itself would be stuck."""
    desk = Desk(recoveries_at_once=500, recoveries_per_user=500, recoveries_per_hour=1000)
    guard, text = desk.guard, "\u00e9" * 300
    for n in range(3000):
        request = PermitRequest(holder=f"{n}:{'h' * 90}", user=text, partition=text, job=text)
        guard.request(request, NOW)
        if n % 500 == 0:
            guard.tick(NOW)
        guard.release(PermitRelease(holder=f"gone{n}:{'h' * 90}"), NOW)
        told = NodeReport(
            nodes=(f"node{n % 1500}", f"other{n % 1500}"), cause=Cause.GPU_FALLEN_OFF_BUS, at=NOW,
            partition=f"p{n}", partition_nodes=9, job=f"{n}:{text}", evidence=text,
        )  # fmt: skip
        guard.report(told, NOW)
    guard.tick(NOW)
    state = guard.state
    assert len(state.nodes) <= MAX_NODES
    assert sum(len(node.strikes) for node in state.nodes.values()) <= MAX_STRIKES
    assert len(state.breakers) <= gates.MAX_PARTITIONS + 1
    assert len(GuardInput(cluster="lab", limits=guard.limits, state=state).model_dump_json()) < 1_900_000


HOLDERS = st.sampled_from("abcdef")
NODES = st.lists(st.sampled_from([f"n{i}" for i in range(8)]), min_size=1, max_size=3, unique=True)
MESSAGES = st.one_of(
    st.tuples(st.just("recover"), HOLDERS, st.sampled_from(["ada", "bob"])),
    st.tuples(st.just("drain"), HOLDERS, NODES),
    st.tuples(st.just("release"), HOLDERS, st.sampled_from([DRAIN, RECOVERY])),
    st.tuples(st.just("forget"), HOLDERS, st.none()),
    st.tuples(st.just("fault"), NODES, st.sampled_from([0, 5, 20])),
    st.tuples(st.just("pause"), st.booleans(), st.none()),
    st.tuples(st.just("reset"), st.sampled_from(["gpu", ""]), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([1, 11, 31, 61]), st.none()),
)
LIMITS: dict[str, Any] = {
    "recoveries_at_once": 3, "recoveries_per_hour": 5, "recoveries_per_user": 2, "drains_per_hour": 3,
    "drain_share": 0.25, "partition_nodes": {"gpu": 8}, "lease": timedelta(hours=2),
}  # fmt: skip


def play(desk: Desk, message: tuple[str, Any, Any]) -> None:
    guard, (what, first, second) = desk.guard, message
    match what:
        case "recover":
            guard.request(PermitRequest(holder=first, user=second), desk.now)
        case "drain":
            request = PermitRequest(holder=first, kind=DRAIN, nodes=tuple(second), partition="gpu")
            guard.request(request, desk.now)
        case "release":
            guard.release(PermitRelease(holder=first, kind=second), desk.now)
        case "forget":
            guard.forget(first, desk.now)
        case "fault":
            at = desk.now - second * MINUTE
            report = NodeReport(nodes=tuple(first), cause=Cause.NVLINK, at=at, partition="gpu", job="1")
            guard.report(report, desk.now)
        case "pause":
            guard.pause(Note(by="ada"), desk.now) if first else guard.unpause()
        case "reset":
            guard.reset(BreakerReset(partition=first), desk.now)
        case "wait":
            desk.now += first * MINUTE
    desk.tick()


@settings(deadline=None)
@given(st.lists(MESSAGES, max_size=60))
def test_no_order_of_messages_breaks_a_limit(messages: list[tuple[str, Any, Any]]) -> None:
    desk = Desk(**LIMITS)
    state = desk.guard.state
    granted: list[tuple[datetime, PermitKind, int]] = []
    for message in messages:
        before = dict(state.permits)
        was_open = BreakerState.OPEN in {desk.breaker(), desk.breaker("")}
        play(desk, message)
        state = desk.guard.state
        new = [permit for key, permit in state.permits.items() if key not in before]
        granted += [(p.granted_at, p.request.kind, len(p.request.nodes)) for p in new]
        if state.paused:
            assert not new
        if was_open and message[0] not in {"reset", "wait"}:
            assert all(permit.request.kind is RECOVERY for permit in new)
        held = [permit.request for permit in state.permits.values()]
        users = [request.user for request in held if request.kind is RECOVERY]
        assert len(users) <= 3
        assert max(map(users.count, users), default=0) <= 2
        assert len({node for r in held if r.kind is DRAIN for node in r.nodes}) <= 2
        lately = [(kind, nodes) for at, kind, nodes in granted if at > desk.now - HOUR]
        assert sum(kind is RECOVERY for kind, _ in lately) <= 5
        assert sum(nodes for kind, nodes in lately if kind is DRAIN) <= 3
        assert not set(state.permits) & set(state.queue)
        assert all(permit.until > desk.now for permit in state.permits.values())
        due = desk.guard.due()
        assert due is None or due > desk.now


@settings(deadline=None)
@given(st.lists(MESSAGES, max_size=40), st.integers(0, 40))
def test_a_renewal_anywhere_changes_nothing(messages: list[tuple[str, Any, Any]], renew_at: int) -> None:
    one, other = Desk(**LIMITS), Desk(**LIMITS)
    for n, message in enumerate(messages):
        if n == renew_at:
            text = GuardInput(cluster="lab", limits=other.guard.limits, state=other.guard.state)
            again = GuardInput.model_validate_json(text.model_dump_json())
            other.guard = Guard("lab", again.limits, again.state)
        play(one, message)
        play(other, message)
    assert one.answers == other.answers
    assert one.guard.state == other.guard.state
    assert list(one.guard.state.queue) == list(other.guard.state.queue)


def test_what_a_node_needs_is_kept_until_it_is_mended() -> None:
    guard = Desk().guard
    report = NodeReport(nodes=("n1",), cause=Cause.GPU_MEMORY_ECC, at=NOW, needs="reset", faulty=False)
    guard.report(report, NOW)
    guard.tick(NOW)
    (view,) = guard.nodes(NOW)
    assert (view.needs, view.needs_since, view.strikes, view.lemon) == ("reset", NOW, (), False)
    assert guard.status(NOW).breakers[0].nodes == 0
    worse = {"needs": "reboot", "faulty": True, "job": "1", "at": NOW + MINUTE}
    guard.report(report.model_copy(update=worse), NOW + MINUTE)
    guard.report(report.model_copy(update={"at": NOW + 2 * MINUTE}), NOW + 2 * MINUTE)
    (view,) = guard.nodes(NOW)
    assert (view.needs, view.needs_since, view.jobs) == ("reboot", NOW + MINUTE, 1)
    late = NOW + timedelta(days=60)
    guard.tick(late)
    assert [v.needs for v in guard.nodes(late)] == ["reboot"]
    guard.clear_node("n1")
    assert guard.nodes(late) == ()


# A cluster that observes

OBSERVE, ACT = ModeChange(mode=Mode.OBSERVE, by="ada", reason="a bad rule"), ModeChange(mode=Mode.ACT)


def test_a_cluster_that_observes_permits_recoveries_that_a_person_approved() -> None:
    desk = Desk()
    desk.guard.set_mode(OBSERVE, desk.now)
    said = desk.recover("a")
    assert (said.granted, said.observe, said.paused) == (True, True, False)
    shown = desk.guard.status(desk.now)
    assert (shown.observes, shown.observes_at, shown.observes_by, shown.observes_reason) == (
        True, NOW, "ada", "a bad rule",
    )  # fmt: skip


def test_holders_hear_at_once_that_the_cluster_observes_and_when_it_ends() -> None:
    desk = Desk()
    assert not desk.recover("a").observe
    desk.guard.set_mode(OBSERVE, desk.now)
    desk.tick(MINUTE)
    assert desk.answer("a").observe
    desk.guard.set_mode(OBSERVE, desk.now)
    assert desk.guard.status(desk.now).observes_at == NOW
    desk.guard.set_mode(ACT, desk.now)
    desk.tick()
    assert not desk.answer("a").observe
    assert not desk.guard.status(desk.now).observes_by


def test_no_node_is_drained_while_the_cluster_observes() -> None:
    desk = Desk()
    assert desk.drain("held").granted
    desk.guard.set_mode(OBSERVE, desk.now)
    desk.tick()
    held = desk.answer("held")
    assert (held.granted, held.paused, held.gate) == (True, True, gates.OBSERVES)
    waiting = desk.drain("new")
    assert (waiting.granted, waiting.waits, waiting.gate) == (False, True, gates.OBSERVES)
    desk.guard.set_mode(ACT, desk.now)
    desk.tick()
    assert not desk.answer("held").paused
    desk.release("held", DRAIN)
    assert desk.answer("new").granted


def test_the_word_survives_a_renewal() -> None:
    desk = Desk()
    desk.guard.set_mode(OBSERVE, desk.now)
    state = GuardState.model_validate_json(desk.guard.state.model_dump_json())
    assert Desk(state).recover("a").observe
