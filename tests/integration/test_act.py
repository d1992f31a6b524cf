"""Act mode: crash, hang and node loss become a resumed run with no person; a pause is left alone."""

import asyncio

import pytest

from relight.contracts import Cause, Outcome, Symptom
from tests.integration.lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(240)]


async def test_a_rank_crash_is_resumed(lab: Lab) -> None:
    training = lab.train(mode="act", wait_step=25)
    training.fault("exception")
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED
    assert outcome.symptom is Symptom.CRASH
    assert outcome.cause is Cause.USER_CODE
    assert training.restarts() == 1
    assert outcome.lost_from_step is not None
    assert training.last_step() > outcome.lost_from_step
    assert outcome.resumed_at_step is not None
    assert outcome.resumed_at_step >= 20  # from the checkpoint, not from scratch
    times = outcome.times
    order = [times.detected, times.confirmed, times.acted, times.running, times.productive]
    assert times.occurred is not None
    assert all(order)
    assert order == sorted(t for t in order if t)


async def test_a_hang_is_found_in_time_and_resumed(lab: Lab) -> None:
    training = lab.train(mode="act", wait_step=60)
    begin = training.fault("hang")
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED
    assert outcome.symptom is Symptom.HANG
    assert outcome.times.detected is not None
    found_after = (outcome.times.detected - begin).total_seconds()
    assert 4 <= found_after <= 4 + 5 + 1  # floor 4 s, at most 5 s later; the fault comes with the next step
    assert outcome.lost_from_step is not None
    assert training.last_step() > outcome.lost_from_step


async def test_a_pause_shorter_than_the_limit_is_left_alone(lab: Lab) -> None:
    training = lab.train(mode="act", wait_step=60)
    before = training.last_step()
    training.fault("pause:2.5")
    await lab.until_async("training goes on", lambda: training.last_step() > before + 15)
    await asyncio.sleep(2)
    assert await lab.recoveries(training) == []
    assert training.restarts() == 0


async def test_after_node_loss_the_job_runs_elsewhere(lab: Lab) -> None:
    training = lab.train(mode="act", wait_step=15)
    info = training.info()
    lost = lab.slurm.nodes_of(training.job_id)[-1]
    assert info["BatchHost"] != lost
    try:
        lab.slurm.kill_node(lost)
        outcome = await lab.outcome(training)
        assert outcome.outcome is Outcome.RESUMED, outcome
        assert training.restarts() >= 1
        assert lost not in lab.slurm.nodes_of(training.job_id)
        assert outcome.lost_from_step is not None
        assert training.last_step() > outcome.lost_from_step
    finally:
        lab.slurm.restore_node(lost)
