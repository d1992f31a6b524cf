"""Parts are killed in the middle: the recovery goes on, and nothing happens twice."""

import asyncio
from collections.abc import Iterator

import pytest

from relight.contracts import Outcome
from relight.contracts.messages import RecoveryStatus
from tests.integration.lab import AWAY, Lab
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(300 + AWAY)]


@pytest.fixture(scope="module")
def mortal(slurm_cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab whose parts these tests kill and start again."""
    with Lab(tmp_path_factory.mktemp("mortal"), slurm_cluster, name="mortal") as started:
        yield started


@pytest.mark.parametrize("state", ["confirming", "draining", "resubmitting", "verifying"])
async def test_the_worker_is_killed(mortal: Lab, state: str) -> None:
    training = mortal.train(mode="act", wait_step=12)
    handle = await mortal.monitor(training)
    training.fault("exception")
    await mortal.recovery_in(training, state, "verifying", "ended")
    mortal.worker.kill()
    await asyncio.sleep(1)
    mortal.worker.start()
    outcome = await mortal.outcome(training)
    assert outcome.outcome is Outcome.RESUMED
    assert training.restarts() == 1
    assert outcome.lost_from_step is not None
    assert training.last_step() > outcome.lost_from_step
    await handle.terminate()


async def test_the_worker_is_killed_again_and_again(mortal: Lab) -> None:
    training = mortal.train(mode="act", wait_step=12)
    handle = await mortal.monitor(training)
    training.fault("exception")
    recovery = await mortal.recovery(training)
    for pause in (0.2, 0.5, 1.0, 1.5):
        await asyncio.sleep(pause)
        mortal.worker.kill()
        mortal.worker.start()
    outcome = await asyncio.wait_for(recovery.result(), 180)
    assert outcome.outcome is Outcome.RESUMED
    assert training.restarts() == 1
    await handle.terminate()


async def test_temporal_is_killed_and_comes_back_on_its_file(mortal: Lab) -> None:
    training = mortal.train(mode="observe", wait_step=12)
    training.fault("exception")
    before = await mortal.recovery_in(training, "awaiting-approval")
    mortal.server.kill()
    await asyncio.sleep(2)
    mortal.server.restart()
    mortal.until("Temporal is back", lambda: mortal.cli("jobs", check=False).returncode == 0)
    after = await mortal.recovery_in(training, "awaiting-approval")
    assert after.plan_digest == before.plan_digest
    mortal.cli("approve", training.job_id, "--yes")
    mortal.server.kill()
    await asyncio.sleep(1)
    mortal.server.restart()
    outcome = await mortal.outcome(training, 180)
    assert outcome.outcome is Outcome.RESUMED
    assert training.restarts() == 1


async def test_slurmctld_is_away_at_rest(mortal: Lab) -> None:
    training = mortal.train(mode="act", wait_step=12)
    before = mortal.slurm.mutations()
    mortal.slurm.stop_ctld()
    await asyncio.sleep(AWAY)
    assert mortal.slurm.mutations() == before
    mortal.slurm.start_ctld()
    at = training.last_step()
    await mortal.until_async("training goes on", lambda: training.last_step() > at + 20)
    await asyncio.sleep(3)
    assert await mortal.recoveries(training) == []
    assert training.restarts() == 0
    training.fault("exception")  # and a real fault after that is still found
    outcome = await mortal.outcome(training)
    assert outcome.outcome is Outcome.RESUMED


async def test_slurmctld_is_away_in_the_middle_of_a_recovery(mortal: Lab) -> None:
    training = mortal.train(mode="observe", wait_step=12)
    training.fault("exception")
    await mortal.recovery_in(training, "awaiting-approval")
    await mortal.until_async("the job has failed", lambda: training.info()["JobState"] == "FAILED")
    mortal.slurm.stop_ctld()
    mortal.cli("approve", training.job_id, "--yes")
    status: RecoveryStatus = await mortal.recovery_in(training, "isolating", "draining")
    await asyncio.sleep(AWAY)
    handle = await mortal.recovery(training)
    status = await handle.query("status", result_type=RecoveryStatus)
    assert status.outcome is None
    mortal.slurm.start_ctld()
    outcome = await mortal.outcome(training)
    assert outcome.outcome is Outcome.RESUMED
    assert training.restarts() == 1


@pytest.mark.parametrize("when", ["before the fault", "after the fault"])
async def test_the_sensor_is_killed(mortal: Lab, when: str) -> None:
    training = mortal.train(mode="observe", wait_step=12)
    if when == "before the fault":
        mortal.sensor.kill()
        training.fault("exception")
        await mortal.until_async("the job has failed", lambda: training.info()["JobState"] == "FAILED")
        mortal.sensor.start()
    else:
        training.fault("exception")
        await mortal.recovery_in(training, "awaiting-approval")
        mortal.sensor.kill()
        mortal.sensor.start()
        await asyncio.sleep(4)  # time enough to report the same again, if it would
    await mortal.recovery_in(training, "awaiting-approval")
    await asyncio.sleep(2)
    assert len(await mortal.recoveries(training)) == 1
    mortal.cli("approve", training.job_id, "--yes")
    outcome = await mortal.outcome(training)
    assert outcome.outcome is Outcome.RESUMED
    assert training.restarts() == 1
    await asyncio.sleep(3)
    assert len(await mortal.recoveries(training)) == 1


async def test_two_workers_and_two_sensors_do_nothing_twice_and_each_can_take_over(mortal: Lab) -> None:
    """A standby on another host has its own state directory, and watches all the while."""
    second_worker = mortal.process("worker", name="worker2").start()
    second_sensor = mortal.process(
        "sensor", name="sensor2", RELIGHT_STATE_DIR=str(mortal.root / "state2")
    ).start()
    try:
        training = mortal.train(mode="act", wait_step=25)
        before = requeues(mortal)
        training.fault("exception")
        outcome = await mortal.outcome(training)
        assert outcome.outcome is Outcome.RESUMED
        assert (training.restarts(), requeues(mortal)) == (1, before + 1)
        await asyncio.sleep(3)  # time enough for the other sensor to report the same
        assert len(await mortal.recoveries(training)) == 1

        mortal.worker.kill()
        mortal.sensor.kill()
        at = training.last_step()
        await mortal.until_async("training goes on", lambda: training.last_step() > at + 10)
        training.fault("exception")
        outcome = await mortal.outcome(training, number=1)
        assert outcome.outcome is Outcome.RESUMED
        assert (training.restarts(), requeues(mortal)) == (2, before + 2)
    finally:
        second_worker.kill()
        second_sensor.kill()
        for process in (mortal.worker, mortal.sensor):
            if not process.alive:
                process.start()


def requeues(lab: Lab) -> int:
    """So often slurmctld was asked to requeue a job."""
    return sum("REQUEST_JOB_REQUEUE" in request for request in lab.slurm.mutations())
