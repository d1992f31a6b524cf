"""Continue-as-new loses nothing: signals, dedupe, open recoveries, memo, counters."""

import asyncio
import random
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from relight.contracts import Anomaly, Mode, Outcome, TrainingJob
from relight.contracts.ids import MEMO_JOB, MONITOR_WORKFLOW
from relight.contracts.messages import EndReason, MonitorInput, MonitorStatus
from tests.workflows import samples
from tests.workflows.conftest import Lab, worker
from tests.workflows.world import World


async def renewed(lab: Lab, monitor: WorkflowHandle[Any, Any], times: int) -> MonitorStatus:
    """Makes the monitor renew itself by many harmless signals."""
    step = 200
    while (status := await lab.status(monitor)).renewals < times:
        for _ in range(10):
            step += 1
            await monitor.signal("report_attempt", samples.report("progress", step=step, restart=1))
            await asyncio.sleep(0.01)
    return status


async def test_a_renewed_monitor_knows_what_it_knew(small_lab: Lab) -> None:
    lab = small_lab
    monitor = await lab.watch()
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until_status(monitor, lambda s: s.job.attempt == samples.attempt(1))
    await monitor.signal("report_attempt", samples.report("started", restart=1, nodes=("n9",)))
    status = await renewed(lab, monitor, 2)
    assert (status.job.attempt, status.job.nodes) == (samples.attempt(1), ("n9",))
    memo = await (await monitor.describe()).memo()
    assert TrainingJob.model_validate(memo[MEMO_JOB]).attempt == samples.attempt(1)
    await monitor.signal("report_anomaly", samples.anomaly())  # seen before the renewals
    status = await lab.until_status(monitor, lambda s: s.duplicates == 1)
    assert status.recoveries == 1
    assert len(lab.world.inputs("snapshot_job")) == 1


async def test_an_open_recovery_outlives_renewals_and_reports_to_the_latest_run(small_lab: Lab) -> None:
    lab = small_lab
    monitor = await lab.watch(samples.job(Mode.OBSERVE))
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until_status(monitor, lambda s: s.state == "awaiting-approval")
    before = await lab.status(monitor)
    for n in range(60):
        await monitor.signal(
            "report_anomaly", samples.anomaly(f"old{n}", attempt=samples.attempt(job_id="1"))
        )
        await asyncio.sleep(0.01)
    await lab.until_status(monitor, lambda s: s.renewals > before.renewals)
    await monitor.signal("approve", {"by": "ada"})
    status = await lab.until_status(monitor, lambda s: s.job.attempt == samples.attempt(1))
    assert (await lab.recovery().result()).outcome is Outcome.RESUMED
    assert (status.lost, status.recoveries) == (0, 1)


@pytest.mark.parametrize("seed", range(2))
async def test_shuffled_duplicated_signals_through_renewals(small_lab: Lab, seed: int) -> None:
    """One failure after another; signals in any order and more than once, as sensors resend them."""
    lab = small_lab
    chaos = random.Random(seed)
    monitor = await lab.watch()
    sent = 0
    for restart in range(5):
        step = 100 * (restart + 1)
        messages = [
            ("report_attempt", samples.report("started", restart=restart, nodes=samples.NODES)),
            *(
                ("report_attempt", samples.report("progress", restart=restart, step=step - n))
                for n in range(5)
            ),
            *(
                ("report_anomaly", samples.anomaly(f"r{restart}.{n}", restart=restart, step=step))
                for n in range(4)
            ),
            *(("report_anomaly", samples.anomaly(f"r{old}.0", restart=old)) for old in range(restart)),
        ]
        messages += chaos.choices(messages, k=len(messages))
        chaos.shuffle(messages)
        for name, message in messages:
            await monitor.signal(name, message)
            sent += 1
            await asyncio.sleep(chaos.choice([0, 0, 0.02]))
        await lab.until_status(monitor, lambda s, n=restart + 1: s.job.attempt == samples.attempt(n))  # type: ignore[misc]
    await monitor.signal("report_attempt", samples.report("ended", restart=5, state="COMPLETED"))
    result = await asyncio.wait_for(monitor.result(), 60)
    assert (result.end, result.recoveries) == (EndReason.COMPLETED, 5)
    assert lab.world.mutations == ["drain_job", "resubmit"] * 5
    # Each recovery tells of its end; those that waited for nobody tell no more.
    assert result.signals == sent + 1 + 5


@pytest.mark.timeout(300)  # 50 s on two cores at rest
async def test_twenty_thousand_signals_none_lost(memory_lab: Lab) -> None:
    """A whole life on a server with Temporal's own limits: 10,000 signals and 4,096 events a run."""
    lab = memory_lab
    monitor = await lab.watch()
    for sent in range(0, 20_000, 500):
        for burst in range(sent, sent + 500, 100):
            told = (stale(f"{(burst + k) // 2}") for k in range(100))
            await asyncio.gather(*(monitor.signal("report_anomaly", one) for one in told))
        await lab.until_status(monitor, lambda s, n=sent + 500: s.signals == n)  # type: ignore[misc]
    status = await lab.status(monitor)
    assert (status.stale, status.duplicates, status.malformed) == (10_000, 10_000, 0)
    assert status.renewals >= 4


async def test_a_worker_that_was_away_catches_up(memory_client: Client, world: World) -> None:
    """Temporal keeps 3,000 signals; a worker must take them in at once, within two seconds, or never."""
    queue = "away"
    monitor = await memory_client.start_workflow(
        MONITOR_WORKFLOW, MonitorInput(job=samples.job()), id="away", task_queue=queue
    )
    for burst in range(30):
        told = (stale(f"{burst}.{k}") for k in range(100))
        await asyncio.gather(*(monitor.signal("report_anomaly", one) for one in told))
    async with worker(memory_client, queue, world):
        lab = Lab(memory_client, queue, world, save=False)
        status = await lab.until_status(monitor, lambda s: s.signals == 3_000)
        assert status.stale == 3_000
        await monitor.terminate()


def stale(name: str) -> Anomaly:
    return samples.anomaly(name, attempt=samples.attempt(job_id="1"))
