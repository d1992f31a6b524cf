"""A worker starts its cluster's guard, and the guard lives on when the worker is killed."""

import asyncio
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from relight.contracts import Cause, Outcome, RecoveryOutcome
from relight.contracts.guard import BreakerState, GuardStatus, NodeReport, PermitKind, PermitRequest
from relight.contracts.ids import RECOVERY_WORKFLOW, guard_id
from relight.contracts.messages import RecoveryInput
from tests.worker.conftest import WorkerProcess
from tests.worker.test_worker import Training, crash, train  # noqa: F401 - a fixture

pytestmark = pytest.mark.temporal


def cluster(tmp_path: Path) -> str:
    return f"c-{tmp_path.name}"[-60:]


def the_guard(client: Client, tmp_path: Path) -> WorkflowHandle[Any, Any]:
    return client.get_workflow_handle(guard_id(cluster(tmp_path)))


async def until(guard: WorkflowHandle[Any, Any], holds: Any, timeout: float = 40) -> GuardStatus:
    status: GuardStatus | RPCError | None = None
    async with asyncio.timeout(timeout):
        while True:
            try:
                status = await guard.query("status", result_type=GuardStatus)
                if holds(status):
                    return status
            except RPCError as error:  # it is not started yet, or its worker is away
                status = error
            await asyncio.sleep(0.1)


async def test_a_worker_starts_the_guard_with_the_limits_of_its_settings(
    worker: WorkerProcess, client: Client, tmp_path: Path
) -> None:
    guard = the_guard(client, tmp_path)
    worker.start(RELIGHT_CLUSTER=cluster(tmp_path)).serving()
    status = await until(guard, lambda s: True)
    assert (status.limits.recoveries_at_once, status.limits.cluster_nodes) == (50, 4)
    await asyncio.to_thread(worker.stop)
    worker.start(RELIGHT_CLUSTER=cluster(tmp_path), RELIGHT_GUARD_LIMITS__RECOVERIES_AT_ONCE="7").serving()
    await until(guard, lambda s: s.limits.recoveries_at_once == 7)


async def test_without_the_setting_there_is_no_guard(
    worker: WorkerProcess, client: Client, tmp_path: Path
) -> None:
    worker.start(RELIGHT_CLUSTER=cluster(tmp_path), RELIGHT_GUARD="false").serving()
    await asyncio.sleep(1)
    with pytest.raises(RPCError):
        await the_guard(client, tmp_path).describe()


async def test_a_storm_of_faults_and_a_killed_worker(
    worker: WorkerProcess,
    train: Training,  # noqa: F811
    client: Client,
    tmp_path: Path,
) -> None:
    """1,000 nodes report faults within 10 s, and the worker is killed in between.

    No drain is allowed after the trip, before the kill or after it; a recovery goes through.
    """
    guard = the_guard(client, tmp_path)
    named = {"RELIGHT_CLUSTER": cluster(tmp_path), "RELIGHT_GUARD_LIMITS__DRAINS_PER_HOUR": "500"}
    worker.start(**named).serving()
    await until(guard, lambda s: True)
    now = datetime.now(UTC)

    async def tell(n: int) -> None:
        told = NodeReport(nodes=(f"node{n}",), cause=Cause.NVLINK, at=now, partition="gpu", job=f"{n}")
        await guard.signal("report_node", told)

    async def storm(first: int, last: int) -> None:
        for burst in range(first, last, 50):
            await asyncio.gather(*(tell(n) for n in range(burst, min(burst + 50, last))))
            wish = PermitRequest(
                holder=f"drain:{burst}", kind=PermitKind.DRAIN, nodes=(f"node{burst}",), partition="gpu"
            )
            await guard.signal("request_permit", wish)

    await storm(0, 500)
    await asyncio.to_thread(worker.stop, signal.SIGKILL)
    await storm(500, 1000)
    worker.start(**named).serving()
    seen = await until(guard, lambda s: s.counts.reports == 1000)
    assert {view.breaker.state for view in seen.breakers} == {BreakerState.OPEN}
    assert seen.counts.granted == 0
    assert seen.counts.refused == 20

    job, diagnosis = await crash(train)
    recovery = await client.start_workflow(
        RECOVERY_WORKFLOW,
        RecoveryInput(monitor_id="nobody", job=job, diagnosis=diagnosis, guard_id=guard.id),
        id=f"recover:{tmp_path.name}",
        task_queue=f"queue-{tmp_path.name}",
        result_type=RecoveryOutcome,
    )
    outcome = await asyncio.wait_for(recovery.result(), 60)
    assert outcome.outcome is Outcome.RESUMED
    seen = await until(guard, lambda s: s.counts.granted == 1 and not s.permits)
    assert seen.counts.refused == 20
