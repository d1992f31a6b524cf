"""Ends that are no faults: relight does nothing, and says why it stopped watching."""

import asyncio

import pytest

from relight.contracts.messages import EndReason
from tests.integration.lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(240)]


async def test_normal_completion(lab: Lab) -> None:
    training = lab.train(mode="act", steps=120)
    result = await asyncio.wait_for((await lab.monitor(training)).result(), 60)
    assert result.end is EndReason.COMPLETED
    assert await lab.recoveries(training) == []


async def test_scancel_by_the_user(lab: Lab) -> None:
    training = lab.train(mode="act")
    handle = await lab.monitor(training)
    lab.slurm.run("scancel", training.job_id)
    result = await asyncio.wait_for(handle.result(), 60)
    assert result.end is EndReason.CANCELLED
    assert await lab.recoveries(training) == []
    assert training.restarts() == 0


async def test_time_limit(lab: Lab) -> None:
    training = lab.train(mode="act", sbatch=("--time=0:01",), wait_step=3)
    handle = await lab.monitor(training)
    # Slurm looks at time limits every 30 s or so: bring it forward.
    lab.slurm.run("scontrol", "update", f"JobId={training.job_id}", "TimeLimit=0:05")
    result = await asyncio.wait_for(handle.result(), 150)
    assert result.end is EndReason.TIME_LIMIT
    assert await lab.recoveries(training) == []


async def test_the_user_requeues_in_the_middle_of_a_recovery(lab: Lab) -> None:
    training = lab.train(mode="observe")
    training.fault("exception")
    await lab.recovery_in(training, "awaiting-approval")
    await lab.until_async("the job has failed", lambda: training.info()["JobState"] == "FAILED")
    lab.slurm.run("scontrol", "requeue", training.job_id)
    outcome = await lab.outcome(training)
    assert outcome.outcome == "abandoned"
    assert training.restarts() == 1
    await asyncio.sleep(2)
    assert training.restarts() == 1
    status = await lab.status(training)
    assert status.end is None  # it goes on watching the user's new attempt
