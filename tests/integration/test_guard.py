"""The cluster's guard over real Slurm: a pause of the cluster stops every change, killed worker or not."""

import json

import pytest

from relight.contracts import Outcome
from relight.contracts.guard import GuardStatus
from tests.integration.lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(240)]


def guard(lab: Lab) -> GuardStatus:
    return GuardStatus.model_validate_json(lab.cli("guard", "--json").stdout)


async def test_while_the_cluster_is_paused_slurm_is_told_nothing(lab: Lab) -> None:
    """`relight why` names the gate; the pause outlives its worker; after it the job is resumed."""
    training = lab.train(mode="act", wait_step=25)
    assert guard(lab).limits.cluster_nodes == len(lab.slurm.nodes)
    lab.cli("pause", "--cluster", "--reason", "storage is down", "--by", "ada")
    training.fault("exception")
    await lab.recovery_in(training, "awaiting-permit")
    lab.worker.kill()
    lab.worker.start()
    status = await lab.recovery_in(training, "awaiting-permit")
    assert status.permit_reason == "paused by ada: storage is down"
    (gate,) = json.loads(lab.cli("why", training.job_id, "--json").stdout)["closed"]
    assert (gate["gate"], gate["opens"]) == ("cluster paused", "relight unpause --cluster")
    assert training.restarts() == 0
    assert "relight" not in training.info().get("Comment", "")
    lab.cli("unpause", "--cluster")
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED
    assert training.restarts() == 1
    assert not guard(lab).permits
