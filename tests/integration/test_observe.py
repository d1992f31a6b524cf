"""A rank crashes in observe mode: a plan is shown and nothing is changed until a person says so."""

import json

import pytest

from relight.contracts import Outcome
from tests.integration.lab import Lab, Training

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(240)]


async def _crash_and_wait_for_the_plan(lab: Lab, **options: object) -> tuple[Training, int]:
    training = lab.train(**options)  # type: ignore[arg-type]
    changed = len(lab.slurm.mutations())
    training.fault("exception")
    status = await lab.recovery_in(training, "awaiting-approval")
    assert status.plan is not None
    assert status.plan.needs_approval_because
    return training, changed


async def test_nothing_changes_before_approval_and_the_command_approves(lab: Lab) -> None:
    training, changed = await _crash_and_wait_for_the_plan(lab)
    failed_at = training.last_step()
    await lab.until_async("the job has failed", lambda: training.info()["JobState"] == "FAILED")
    assert lab.slurm.mutations()[changed:] == []
    assert training.restarts() == 0

    shown = json.loads(lab.cli("show", training.job_id, "--json").stdout)
    assert "exception" in json.dumps(shown).lower()
    lab.cli("approve", training.job_id, "--yes", "--reason", "seen", "--by", "anna")
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED
    assert outcome.approved_by == "anna"
    assert outcome.times.approved is not None
    assert training.restarts() == 1
    assert training.last_step() > failed_at
    assert lab.slurm.mutations()[changed:]  # and the log that proved "nothing" does show what was done


async def test_a_plain_temporal_signal_approves(lab: Lab) -> None:
    training, changed = await _crash_and_wait_for_the_plan(lab)
    assert lab.slurm.mutations()[changed:] == []
    handle = await lab.recovery(training)
    lab.temporal(
        "workflow", "signal", "--workflow-id", handle.id, "--name", "approve",
        "--input", '{"by": "bob", "reason": "looks right"}',
    )  # fmt: skip
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED
    assert outcome.approved_by == "bob"
    assert training.restarts() == 1


async def test_rejecting_leaves_the_job_as_it_was(lab: Lab) -> None:
    training, changed = await _crash_and_wait_for_the_plan(lab)
    lab.cli("reject", training.job_id, "--yes", "--reason", "known bug")
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.REJECTED
    assert "known bug" in outcome.reason
    assert training.info()["JobState"] == "FAILED"
    assert training.restarts() == 0
    assert lab.slurm.mutations()[changed:] == []
