"""The cluster's guard and the recoveries that ask it, on a real Temporal server."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from relight.contracts import Cause, Mode, Outcome
from relight.contracts.guard import (
    BreakerState,
    GuardStatus,
    NodeReport,
    NodeView,
    PermitKind,
    PermitRequest,
)
from relight.contracts.messages import ModeChange, Note, RecoveryStatus
from relight.contracts.steps import DrainResult
from relight.policy import guard as gates
from tests.workflows import samples
from tests.workflows.conftest import Lab
from tests.workflows.world import error

pytestmark = pytest.mark.temporal

PAUSE = Note(by="ada", reason="storage is down")


async def status(recovery: WorkflowHandle[Any, Any]) -> RecoveryStatus:
    found: RecoveryStatus = await recovery.query("status", result_type=RecoveryStatus)
    return found


async def waits_for_permit(lab: Lab, recovery: WorkflowHandle[Any, Any], gate: str) -> RecoveryStatus:
    found: RecoveryStatus = await lab.until(
        lambda: status(recovery), lambda s: (s.state, s.permit_gate) == ("awaiting-permit", gate)
    )
    return found


async def a_holder(lab: Lab, **fields: Any) -> WorkflowHandle[Any, Any]:
    """Somebody else who has a permit: a recovery that waits for a person, and never asks the guard itself."""
    holder = await lab.recover(job=samples.job(Mode.OBSERVE), suffix=":holder")
    guard = lab.client.get_workflow_handle(lab.guard_id)
    await guard.signal("request_permit", PermitRequest(holder=holder.id, **fields))
    await lab.until_guard(guard, lambda s: len(s.permits) == 1)
    return holder


async def test_a_recovery_asks_first_and_gives_the_permit_back(lab: Lab) -> None:
    guard = await lab.guard()
    held: list[GuardStatus] = []

    async def drain(given: Any) -> Any:
        held.append(await guard.query("status", result_type=GuardStatus))
        raise error("Refused", "no")

    lab.world.will("drain_job", drain)
    recovery = await lab.recover(guard_id=lab.guard_id)
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.STOPPED
    assert [permit.request.holder for permit in held[0].permits] == [recovery.id]
    after = await lab.until_guard(guard, lambda s: not s.permits)
    assert after.counts.granted == 1
    assert "the guard gave a permit" in (await status(recovery)).log


async def test_a_second_recovery_waits_and_says_so(lab: Lab) -> None:
    """First come first served; a place that is given back goes to the next within a second."""
    guard = await lab.guard(recoveries_at_once=1)
    holder = await a_holder(lab, user="bob")
    recovery = await lab.recover(guard_id=lab.guard_id)
    told = await waits_for_permit(lab, recovery, gates.AT_ONCE)
    assert told.permit == "waiting"
    assert any(line.startswith("waits for a permit: recoveries at once") for line in told.log)
    assert lab.world.mutations == []
    seen = await lab.until_guard(guard, lambda s: s.queued == 1)
    assert seen.waiting[0].request.user == "ada"
    await guard.signal("release_permit", {"holder": holder.id})
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.RESUMED
    await lab.until_guard(guard, lambda s: not s.permits)
    await lab.save("permit_waited_for", guard, recovery)


async def test_cancelled_while_it_waits_it_changes_nothing(lab: Lab) -> None:
    guard = await lab.guard(recoveries_at_once=1)
    await a_holder(lab)
    recovery = await lab.recover(guard_id=lab.guard_id)
    await waits_for_permit(lab, recovery, gates.AT_ONCE)
    await recovery.cancel()
    assert (await recovery.result()).outcome is Outcome.ABANDONED
    await lab.until_guard(guard, lambda s: s.queued == 0)
    assert lab.world.mutations == []


async def test_many_recoveries_at_once_never_hold_more_permits_than_allowed(lab: Lab) -> None:
    """First come first served, also far beyond the ten requests that an update could take at a time."""
    guard = await lab.guard(recoveries_at_once=3)
    at_once: list[int] = []
    order: list[str] = []

    async def drain(given: Any) -> DrainResult:
        status = await guard.query("status", result_type=GuardStatus)
        held = [permit.request.holder for permit in status.permits]
        assert given.recovery_id in held
        at_once.append(len(held))
        order.append(given.recovery_id)
        return DrainResult(how="requeue-held", attempt=samples.attempt(1))

    lab.world.will("drain_job", drain)
    recoveries = [await lab.recover(guard_id=lab.guard_id, suffix=f":{n}") for n in range(25)]
    outcomes = await asyncio.gather(*(recovery.result() for recovery in recoveries))
    assert {outcome.outcome for outcome in outcomes} == {Outcome.RESUMED}
    assert max(at_once) <= 3
    assert len(set(order)) == 25
    await lab.until_guard(guard, lambda s: s.counts.granted == 25 and not s.permits)


async def test_a_refusal_stops_before_any_change(lab: Lab) -> None:
    guard = await lab.guard()
    recovery_id = f"recover:{lab.queue}"
    await guard.signal("release_permit", {"holder": recovery_id})
    recovery = await lab.recover(guard_id=lab.guard_id)
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.STOPPED
    assert "the guard refuses a permit" in outcome.reason
    assert lab.world.mutations == []
    await lab.save("permit_refused", recovery)


async def test_without_a_guard_it_waits_says_what_to_do_and_goes_on(lab: Lab) -> None:
    recovery = await lab.recover(guard_id=lab.guard_id)
    told = await waits_for_permit(lab, recovery, "guard")
    assert "does not run" in told.permit_reason
    assert lab.world.mutations == []
    await lab.guard()
    outcome = await asyncio.wait_for(recovery.result(), 20)
    assert outcome.outcome is Outcome.RESUMED
    assert lab.world.mutations == ["drain_job", "resubmit"]


async def test_no_permit_in_time_changes_nothing(lab: Lab) -> None:
    policy = samples.QUICK.model_copy(update={"approval_deadline": timedelta(seconds=1)})
    recovery = await lab.recover(job=samples.job(policy=policy), guard_id=lab.guard_id)
    outcome = await asyncio.wait_for(recovery.result(), 20)
    assert outcome.outcome is Outcome.EXPIRED
    assert outcome.reason.startswith("no permit in time: guard:")
    assert lab.world.mutations == []


async def test_a_pause_of_the_cluster_stops_a_recovery_in_flight_within_seconds(lab: Lab) -> None:
    guard = await lab.guard()
    drained = asyncio.Event()

    async def wait(given: Any) -> str:
        await drained.wait()
        return "no process is left"

    lab.world.will("wait_nodes_free", wait)
    policy = samples.QUICK.model_copy(update={"drain_window": timedelta(minutes=5)})
    recovery = await lab.recover(job=samples.job(policy=policy), guard_id=lab.guard_id)
    await lab.until(lambda: asyncio.sleep(0, lab.world.called()), lambda c: "wait_nodes_free" in c)
    began = time.monotonic()
    await guard.signal("pause", PAUSE)
    await lab.until(lambda: status(recovery), lambda s: s.cluster_paused)
    assert time.monotonic() - began < 3
    drained.set()
    told = await waits_for_permit(lab, recovery, gates.PAUSED)
    assert "nothing may be changed now: cluster paused, ada: storage is down" in told.log
    await asyncio.sleep(0.5)
    assert lab.world.mutations == ["drain_job"]
    await guard.signal("unpause", {})
    assert (await recovery.result()).outcome is Outcome.RESUMED
    assert lab.world.mutations == ["drain_job", "resubmit"]
    await lab.save("cluster_paused_in_flight", guard, recovery)


async def test_while_the_cluster_is_paused_no_recovery_begins_to_change_anything(lab: Lab) -> None:
    guard = await lab.guard()
    await guard.signal("pause", PAUSE)
    monitor = await lab.watch(guard_id=lab.guard_id)
    await monitor.signal("report_anomaly", samples.anomaly())
    recovery = lab.recovery()
    told = await waits_for_permit(lab, recovery, gates.PAUSED)
    assert told.permit_reason == "paused by ada: storage is down"
    assert (await lab.status(monitor)).guard_id == lab.guard_id
    assert lab.world.mutations == []
    await guard.signal("unpause", {})
    assert (await recovery.result()).outcome is Outcome.RESUMED


async def test_a_person_is_asked_before_the_guard_is(lab: Lab) -> None:
    guard = await lab.guard()
    recovery = await lab.recover(job=samples.job(Mode.OBSERVE), guard_id=lab.guard_id)
    await lab.plan(recovery)
    assert (await lab.until_guard(guard, lambda s: True)).counts.granted == 0
    await recovery.signal("approve", {"by": "ada"})
    assert (await recovery.result()).outcome is Outcome.RESUMED
    await lab.until_guard(guard, lambda s: s.counts.granted == 1 and not s.permits)


async def test_faulty_nodes_get_strikes_by_distinct_jobs(lab: Lab) -> None:
    guard = await lab.guard()
    broken = samples.diagnosis(cause=Cause.GPU_FALLEN_OFF_BUS, nodes=("n3",))
    for n in range(2):
        recovery = await lab.recover(diagnosis=broken, guard_id=lab.guard_id, suffix=f":{n}")
        assert (await recovery.result()).excluded_nodes == ("n3",)
    await lab.until_guard(guard, lambda s: s.counts.reports == 2)
    (node,) = await guard.query("nodes", result_type=tuple[NodeView, ...])
    assert (node.node, node.jobs, node.lemon) == ("n3", 1, False)
    assert not node.strikes[0].trusted, "only the job's own log names the node"


@pytest.mark.parametrize("signal", ["request_permit", "report_node", "reset_breaker", "set_limits", "pause"])
@pytest.mark.parametrize("payload", [None, "?", {"holder": 3}, ["a"], {"nodes": []}])
async def test_what_cannot_be_read_does_no_harm(lab: Lab, signal: str, payload: object) -> None:
    guard = await lab.guard()
    await guard.signal(signal, payload)
    await guard.signal("release_permit", {"holder": "somebody"})
    assert await lab.until_guard(guard, lambda s: True)


async def test_a_holder_that_is_gone_does_not_keep_its_permit(lab: Lab) -> None:
    guard = await lab.guard(recoveries_at_once=1)
    await guard.signal("request_permit", PermitRequest(holder="nobody"))
    await lab.until_guard(guard, lambda s: s.counts.granted == 1)
    seen = await lab.until_guard(guard, lambda s: not s.permits)
    assert seen.counts.expired == 1


async def test_a_renewed_guard_knows_what_it_knew(small_lab: Lab) -> None:
    lab = small_lab
    guard = await lab.guard(recoveries_at_once=1)
    recovery = await lab.recover(job=samples.job(Mode.OBSERVE), guard_id=lab.guard_id)
    await lab.plan(recovery)
    await guard.signal("request_permit", PermitRequest(holder=recovery.id, user="ada"))
    await lab.until_guard(guard, lambda s: len(s.permits) == 1)
    sent = 0
    while (seen := await lab.until_guard(guard, lambda s: True)).counts.renewals < 2:
        for _ in range(10):
            told = NodeReport(nodes=(f"n{sent % 2}",), cause=Cause.NVLINK, at=samples.T0, job="7")
            await guard.signal("report_node", told)
            sent += 1
            await asyncio.sleep(0.01)
    assert [permit.request.holder for permit in seen.permits] == [recovery.id]
    await lab.until_guard(guard, lambda s: s.counts.reports == sent)


async def test_a_thousand_faulty_nodes_trip_the_breaker_and_recoveries_still_pass(lab: Lab) -> None:
    """Every report comes with a wish to drain that node; after the trip not one is granted."""
    guard = await lab.guard(cluster_nodes=1000, drains_per_hour=500, drain_share=1.0)
    now = datetime.now(UTC)
    began = time.monotonic()

    async def tell(n: int) -> None:
        told = NodeReport(nodes=(f"node{n}",), cause=Cause.NVLINK, at=now, partition="gpu", job=f"{n}")
        await guard.signal("report_node", told)

    await asyncio.gather(*(tell(n) for n in range(100)))
    tripped = await lab.until_guard(guard, lambda s: s.counts.reports == 100)
    assert {view.breaker.state for view in tripped.breakers} == {BreakerState.OPEN}
    for burst in range(100, 1000, 100):
        await asyncio.gather(*(tell(n) for n in range(burst, burst + 100)))
        wish = PermitRequest(
            holder=f"drain:{burst}", kind=PermitKind.DRAIN, nodes=(f"node{burst}",), partition="gpu"
        )
        await guard.signal("request_permit", wish)
    seen = await lab.until_guard(guard, lambda s: s.counts.reports == 1000 and s.counts.refused == 9)
    assert time.monotonic() - began < 30  # a few seconds on a quiet machine
    assert (seen.permits, seen.counts.granted) == ((), 0)
    outcome = await (await lab.recover(guard_id=lab.guard_id)).result()
    assert outcome.outcome is Outcome.RESUMED
    await guard.signal("reset_breaker", {"by": "ada"})
    await lab.until_guard(guard, lambda s: all(v.breaker.state is BreakerState.CLOSED for v in s.breakers))


OBSERVE = ModeChange(mode=Mode.OBSERVE, by="ada", reason="a bad rule")


async def test_when_the_cluster_observes_a_recovery_in_flight_asks_before_its_next_change(lab: Lab) -> None:
    guard = await lab.guard()
    drained = asyncio.Event()

    async def wait(given: Any) -> str:
        await drained.wait()
        return "no process is left"

    lab.world.will("wait_nodes_free", wait)
    policy = samples.QUICK.model_copy(update={"drain_window": timedelta(minutes=5)})
    recovery = await lab.recover(job=samples.job(policy=policy), guard_id=lab.guard_id)
    await lab.until(lambda: asyncio.sleep(0, lab.world.called()), lambda c: "wait_nodes_free" in c)
    await guard.signal("set_mode", OBSERVE)
    await lab.until(lambda: status(recovery), lambda s: s.cluster_observes)
    drained.set()
    told = await lab.until(lambda: status(recovery), lambda s: s.state == "awaiting-approval")
    assert told.plan.needs_approval_because == ("observe mode: relight changes nothing by itself",)
    assert any(line.startswith("the whole cluster observes now") for line in told.log)
    assert lab.world.mutations == ["drain_job"]
    await recovery.signal("approve", {"by": "ada"})
    assert (await recovery.result()).outcome is Outcome.RESUMED
    assert lab.world.mutations == ["drain_job", "resubmit"]
    await lab.save("cluster_observes_in_flight", guard, recovery)


async def test_a_job_in_act_mode_acts_again_when_the_cluster_does(lab: Lab) -> None:
    guard = await lab.guard()
    await guard.signal("set_mode", OBSERVE)
    recovery = await lab.recover(guard_id=lab.guard_id)
    await lab.until(lambda: status(recovery), lambda s: s.state == "awaiting-approval")
    assert lab.world.mutations == []
    await guard.signal("set_mode", ModeChange(mode=Mode.ACT, by="ada"))
    assert (await recovery.result()).outcome is Outcome.RESUMED
    assert "the cluster does not observe any more" in (await status(recovery)).log
