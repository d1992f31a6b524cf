"""Observe mode under every kind of fault: slurmctld is asked for no change, whatever goes wrong."""

import asyncio

import pytest

from bench.reliability import broken
from relight.contracts import Mode, Source
from relight.demo.trainer import KINDS
from tests.integration.lab import Lab, Training

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(400)]

NO_FAULT = {"pause", "ignore-checkpoints"}
"""Of the demo trainer's: those that are none, or only make another one worse."""
FAULTS = ["exit:7" if kind == "exit" else kind for kind in KINDS if kind not in NO_FAULT]
AT_ONCE = 4


async def judged(lab: Lab, training: Training) -> str:
    """Waits until relight has made up its mind about the job: a person is asked, or it is over."""
    status = await lab.recovery_in(training, "awaiting-approval", "ended", timeout=90)
    assert status.mode is Mode.OBSERVE
    return status.state


async def test_no_fault_of_a_job_makes_it_change_anything(lab: Lab) -> None:
    for wave in (FAULTS[at : at + AT_ONCE] for at in range(0, len(FAULTS), AT_ONCE)):
        jobs = [lab.train(nodes=1, mode="observe", wait_step=12) for _ in wave]
        before = lab.slurm.mutations()
        for kind, training in zip(wave, jobs, strict=True):
            training.fault(kind)
        states = await asyncio.gather(*(judged(lab, training) for training in jobs))
        await asyncio.sleep(2)
        assert lab.slurm.mutations() == before, dict(zip(wave, states, strict=True))
        assert [training.restarts() for training in jobs] == [0] * len(jobs)
        lab.slurm.run("scancel", "--user", "root")
        await asyncio.to_thread(lab.slurm.wait_idle)


async def test_neither_does_broken_hardware(lab: Lab) -> None:
    """Two trusted sources against a node: in act mode it would be drained for everyone."""
    training = lab.train(nodes=1, mode="observe", wait_step=12)
    [node] = lab.slurm.nodes_of(training.job_id)
    before = lab.slurm.mutations()
    handle = await lab.monitor(training)
    attempt = (await lab.status(training)).job.attempt
    for source in (Source.KERNEL, Source.NVML):
        await handle.signal("report_anomaly", broken(attempt, node, source))
    training.fault("sigkill")
    status = await lab.recovery_in(training, "awaiting-approval", timeout=90)
    assert status.plan is not None
    assert status.plan.drained_nodes == (node,)
    await asyncio.sleep(2)
    assert lab.slurm.mutations() == before
