"""The drain of a node, the guard that permits it, and the recovery that planned it, on a real Temporal."""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from relight.contracts import Cause, Mode, Outcome, Sign, Source
from relight.contracts.guard import NodeReport
from relight.contracts.ids import NODE_DRAIN_WORKFLOW, node_drain_id
from relight.contracts.messages import Decision, Note, RecoveryStatus
from relight.contracts.node_drain import (
    DrainEnd,
    NodeCheck,
    NodeDrainInput,
    NodeDrainResult,
    NodeDrainStatus,
    NodeHow,
    NodeLook,
)
from relight.contracts.steps import ConfirmResult
from relight.policy import guard as gates
from tests.workflows import samples
from tests.workflows.conftest import Lab
from tests.workflows.world import OURS, error

pytestmark = pytest.mark.temporal

BROKEN = samples.diagnosis(
    cause=Cause.GPU_FALLEN_OFF_BUS,
    nodes=("n2",),
    signs=(Sign(node="n2", source=Source.KERNEL), Sign(node="n2", source=Source.NVML)),
)
NODE_STEPS = ("drain_node", "check_node", "release_node")

Drain = WorkflowHandle[Any, NodeDrainResult]


async def drain(lab: Lab, node: str = "n2", guard_id: str | None = None, **fields: Any) -> Drain:
    """Starts a drain by itself, with no recovery that would listen."""
    return await lab.client.start_workflow(
        NODE_DRAIN_WORKFLOW,
        NodeDrainInput(
            cluster="lab",
            node=node,
            cause=Cause.NVLINK,
            recovery_id=f"recover:nobody:{lab.queue}",
            evidence_at=samples.T0,
            guard_id=lab.guard_id if guard_id is None else guard_id,
            **fields,
        ),
        id=f"drain:{lab.queue}:{node}",
        task_queue=lab.queue,
        result_type=NodeDrainResult,
    )


async def until(lab: Lab, handle: Drain, state: str) -> NodeDrainStatus:
    found: NodeDrainStatus = await lab.until(
        lambda: handle.query("status", result_type=NodeDrainStatus), lambda s: s.state == state
    )
    return found


async def test_a_recovery_starts_the_drain_of_its_plan_and_does_not_wait_for_it(lab: Lab) -> None:
    guard = await lab.guard()
    recovery = await lab.recover(diagnosis=BROKEN, guard_id=lab.guard_id)
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.RESUMED
    assert outcome.excluded_nodes == ("n2",)
    handle: Drain = lab.client.get_workflow_handle(
        node_drain_id("lab", "n2", recovery.id), result_type=NodeDrainResult
    )
    drained = await until(lab, handle, "drained")
    assert drained.drained_at is not None
    await lab.until_guard(guard, lambda s: [p.request.nodes for p in s.permits] == [("n2",)])
    [given] = lab.world.inputs("drain_node")
    assert (given.node, given.recovery_id, given.cause) == ("n2", recovery.id, Cause.GPU_FALLEN_OFF_BUS)

    await handle.signal("release", Note(by="ada", reason="new board"))
    result = await handle.result()
    assert (result.end, result.text) == (DrainEnd.RELEASED, "by ada: new board")
    assert lab.world.called(*NODE_STEPS) == ["drain_node", "check_node", "release_node"]
    await lab.until_guard(guard, lambda s: not s.permits)
    await lab.save("drained", recovery, guard, handle)


async def test_in_observe_mode_nothing_is_drained_before_a_person_agreed_to_that_plan(lab: Lab) -> None:
    await lab.guard()
    job = samples.job(Mode.OBSERVE)
    recovery = await lab.recover(job=job, diagnosis=BROKEN, guard_id=lab.guard_id)
    status = await lab.plan(recovery)
    assert status.plan is not None
    assert status.plan.drained_nodes == ("n2",)
    assert lab.world.called(*NODE_STEPS) == []
    await recovery.signal("reject", Decision(by="ada"))
    assert (await recovery.result()).outcome is Outcome.REJECTED
    assert lab.world.called(*NODE_STEPS) == []
    again = await lab.recover(job=job, diagnosis=BROKEN, guard_id=lab.guard_id, suffix=":again")
    await lab.plan(again)
    await again.signal("approve", Decision(by="ada"))
    assert (await again.result()).outcome is Outcome.RESUMED
    await lab.until(lambda: _given(lab, "drain_node"), lambda given: len(given) == 1)


async def _given(lab: Lab, step: str) -> list[Any]:
    return lab.world.inputs(step)


async def test_the_recovery_says_what_came_of_it(lab: Lab) -> None:
    await lab.guard()

    async def not_at_once(given: Any) -> Any:
        await lab.until(lambda: _given(lab, "drain_node"), bool)
        return await lab.until(lambda: _status(recovery), lambda s: any("is drained" in x for x in s.log))

    async def verify(given: Any) -> Any:
        await not_at_once(given)
        raise error("Refused", "enough seen")

    lab.world.will("verify_running", verify)
    recovery = await lab.recover(diagnosis=BROKEN, guard_id=lab.guard_id)
    outcome = await recovery.result()
    assert outcome.drained_nodes == ("n2",)


async def test_the_guard_learns_how_large_the_partition_is(lab: Lab) -> None:
    guard = await lab.guard()
    confirmed = ConfirmResult(verdict="confirmed", summary="the scheduler says FAILED", partition_nodes=640)
    lab.world.will("confirm_fault", confirmed)
    job = samples.job(partition="gpu")
    await (await lab.recover(job=job, diagnosis=BROKEN, guard_id=lab.guard_id)).result()
    await lab.until_guard(guard, lambda s: any((b.partition, b.threshold) == ("gpu", 32) for b in s.breakers))


async def _status(recovery: WorkflowHandle[Any, Any]) -> RecoveryStatus:
    found: RecoveryStatus = await recovery.query("status", result_type=RecoveryStatus)
    return found


@pytest.mark.parametrize(
    "how", [NodeHow.OTHERS, NodeHow.ANOTHER, NodeHow.KILL_FAILED, NodeHow.LOST, NodeHow.UNKNOWN]
)
async def test_a_node_that_is_not_relights_to_drain_is_left_alone(lab: Lab, how: NodeHow) -> None:
    guard = await lab.guard()
    lab.world.will("drain_node", NodeLook(how=how, summary="not ours"))
    result = await (await drain(lab)).result()
    assert (result.end, result.drained_at) == (DrainEnd.NOT_DRAINED, None)
    assert lab.world.called(*NODE_STEPS) == ["drain_node"]
    await lab.until_guard(guard, lambda s: not s.permits)


async def test_what_others_take_over_is_theirs(lab: Lab) -> None:
    await lab.guard()
    lab.world.will("look_at_node", NodeLook(how=NodeHow.OTHERS, idle=True, summary="bad fan, says bob"))
    result = await (await drain(lab)).result()
    assert (result.end, result.text) == (DrainEnd.TAKEN_BACK, "bad fan, says bob")
    assert lab.world.called(*NODE_STEPS) == ["drain_node"]


async def test_a_drain_that_the_scheduler_forgot_is_given_again(lab: Lab) -> None:
    """slurmctld, killed within seconds of the drain, shows the node as it was before."""
    await lab.guard()
    lab.world.will("look_at_node", _free(since=timedelta(seconds=1)), OURS)
    handle = await drain(lab)
    await until(lab, handle, "drained")
    assert lab.world.called(*NODE_STEPS)[:2] == ["drain_node", "drain_node"]
    status = await handle.query("status", result_type=NodeDrainStatus)
    assert any("has forgotten the drain" in line for line in status.log)
    await handle.signal("release", Note(by="ada"))
    assert (await handle.result()).end is DrainEnd.RELEASED
    await lab.save("drain_forgotten", handle)


async def test_a_node_that_somebody_gave_back_is_not_drained_again(lab: Lab) -> None:
    await lab.guard()
    lab.world.will("look_at_node", _free(since=timedelta(days=-1)))
    result = await (await drain(lab)).result()
    assert result.end is DrainEnd.TAKEN_BACK
    assert lab.world.called(*NODE_STEPS) == ["drain_node"]


async def test_a_drain_that_is_forgotten_again_and_again_is_left_to_people(lab: Lab) -> None:
    await lab.guard()
    lab.world.will("look_at_node", _free(since=timedelta(seconds=1)))
    result = await (await drain(lab)).result()
    assert result.end is DrainEnd.TAKEN_BACK
    assert lab.world.called(*NODE_STEPS) == ["drain_node"] * 3


def _free(since: timedelta) -> NodeLook:
    return NodeLook(how=NodeHow.FREE, summary="n2 is not drained", scheduler_since=OURS.at + since)  # type: ignore[operator]


async def test_without_a_permit_nothing_is_drained_and_a_pause_holds_it_back(lab: Lab) -> None:
    guard = await lab.guard()
    await guard.signal("pause", Note(by="ada", reason="storage"))
    await lab.until_guard(guard, lambda s: s.paused)
    handle = await drain(lab)
    status = await lab.until(
        lambda: handle.query("status", result_type=NodeDrainStatus), lambda s: s.gate == gates.PAUSED
    )
    assert status.state == "awaiting-permit"
    assert lab.world.called(*NODE_STEPS) == []
    await handle.signal("release", Note(by="bob", reason="it is fine"))
    result = await handle.result()
    assert (result.end, result.text) == (DrainEnd.WITHDRAWN, "by bob: it is fine")
    assert lab.world.called(*NODE_STEPS) == []
    await lab.until_guard(guard, lambda s: s.queued == 0)


async def test_a_tripped_breaker_refuses_and_the_job_is_recovered_all_the_same(lab: Lab) -> None:
    guard = await lab.guard(breaker_nodes=2, breaker_share=0)
    report = NodeReport(nodes=("n1", "n2", "n3"), cause=Cause.NVLINK, at=samples.T0, partition="gpu")
    now = samples.T0.now(samples.T0.tzinfo)
    await guard.signal("report_node", report.model_copy(update={"at": now}))
    await lab.until_guard(guard, lambda s: any(b.breaker.state.value == "open" for b in s.breakers))
    job = samples.job(partition="gpu")
    recovery = await lab.recover(
        job=job, diagnosis=BROKEN.model_copy(update={"occurred_at": now}), guard_id=lab.guard_id
    )
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.drained_nodes) == (Outcome.RESUMED, ())
    handle: Drain = lab.client.get_workflow_handle(
        node_drain_id("lab", "n2", recovery.id), result_type=NodeDrainResult
    )
    result = await handle.result()
    assert result.end is DrainEnd.REFUSED
    assert gates.BREAKER in result.text
    assert lab.world.called(*NODE_STEPS) == []


async def test_it_tries_again_and_then_gives_up(lab: Lab) -> None:
    await lab.guard()
    lab.world.will("drain_node", error("SchedulerUnreachable", "no answer", final=False), OURS)
    handle = await drain(lab)
    await until(lab, handle, "drained")
    assert lab.world.called(*NODE_STEPS).count("drain_node") == 2
    await handle.signal("release", Note(by="ada"))
    lab.world.will("release_node", error("Refused", "not permitted"))
    result = await handle.result()
    assert result.end is DrainEnd.FAILED
    assert "stays drained: not permitted" in result.text


@pytest.mark.parametrize(
    ("checks", "end", "calls"),
    [
        ([NodeCheck(configured=True, passed=True, may_release=True)], DrainEnd.RELEASED, 1),
        (
            [
                NodeCheck(configured=True, most=3, again_in_seconds=0.1),
                NodeCheck(configured=True, passed=True, may_release=True),
            ],
            DrainEnd.RELEASED,
            2,
        ),
        ([NodeCheck(configured=True, passed=True, may_release=False)], None, 1),
        ([NodeCheck(configured=True, passed=False, most=1, again_in_seconds=0.1)], None, 1),
        ([NodeCheck(configured=True, passed=False, most=2, again_in_seconds=0.1)], None, 2),
    ],
)
async def test_the_sites_check_gives_it_back_or_leaves_it_to_a_person(
    lab: Lab, checks: list[NodeCheck], end: DrainEnd | None, calls: int
) -> None:
    await lab.guard()
    lab.world.will("check_node", *checks)
    handle = await drain(lab)
    await lab.until(lambda: _given(lab, "check_node"), lambda given: len(given) == calls)
    if end is None:
        await until(lab, handle, "drained")
        assert lab.world.called("release_node") == []
        await handle.signal("release", Note(by="ada"))
    assert (await handle.result()).end is (end or DrainEnd.RELEASED)
    assert lab.world.called("check_node") == ["check_node"] * calls


async def test_draining_is_not_drained(lab: Lab) -> None:
    """Jobs of others are still on it: nothing is checked or mended before they are gone."""
    await lab.guard()
    busy = OURS.model_copy(update={"idle": False})
    lab.world.will("look_at_node", busy)
    handle = await drain(lab)
    await lab.until(lambda: _given(lab, "look_at_node"), lambda given: len(given) >= 1)
    status = await until(lab, handle, "draining")
    assert status.drained_at is not None
    assert lab.world.called("check_node") == []


async def test_it_renews_itself_and_drains_only_once(small_lab: Lab) -> None:
    lab = small_lab
    await lab.guard()
    failing = NodeCheck(configured=True, most=10, again_in_seconds=0.01)
    lab.world.will("check_node", *[failing] * 9, NodeCheck(configured=True, passed=True, may_release=True))
    handle = await drain(lab)
    assert (await handle.result()).end is DrainEnd.RELEASED
    assert lab.world.called("drain_node") == ["drain_node"]
    first = await lab.client.get_workflow_handle(handle.id, run_id=handle.result_run_id).describe()
    last = await lab.client.get_workflow_handle(handle.id).describe()
    assert first.run_id != last.run_id
    assert last.close_time is not None
    assert last.close_time - first.start_time < timedelta(minutes=1)
