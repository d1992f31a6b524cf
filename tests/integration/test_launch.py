"""Slurm cannot start the job that relight restarts, and holds it: that is told, and the job started again."""

import pytest

from relight.contracts import Cause, Outcome
from relight.policy.holds import LAUNCH_FAILED
from tests.integration.lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(240)]


async def test_a_job_that_slurm_could_not_start_is_started_again(lab: Lab) -> None:
    training = lab.train(mode="act", wait_step=25)
    training.fault("exception")
    # slurmd makes this directory for the script: a file in its place keeps the job from starting.
    in_the_way = [
        lab.slurm.root / "spool" / node / f"job{int(training.job_id):05d}" for node in lab.slurm.nodes
    ]
    await lab.until_async("its nodes are free", lambda: not any(path.exists() for path in in_the_way))
    for path in in_the_way:
        path.touch()
    await lab.until_async("Slurm holds it", lambda: training.info()["Reason"] == LAUNCH_FAILED)
    for path in in_the_way:
        path.unlink()

    first = await lab.outcome(training)
    assert first.outcome is Outcome.FAILED_AGAIN, first.reason
    assert "could not start the new attempt" in first.reason
    second = await lab.outcome(training, number=1)
    assert (second.outcome, second.cause) == (Outcome.RESUMED, Cause.SCHEDULER), second
    assert second.excluded_nodes == ()
    assert training.last_step() > (second.lost_from_step or 0)
