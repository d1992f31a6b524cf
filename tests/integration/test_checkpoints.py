"""The checkpoint gate, steering and the proof of resume, on real Slurm with the demo's training."""

import asyncio
from pathlib import Path

import pytest

from relight.contracts import Action, Outcome
from relight.contracts.outcome import CheckpointRef
from tests.integration.lab import Lab, Training

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(240)]

MEGATRON = "--layout megatron"
TRACKER = "latest_checkpointed_iteration.txt"


def cut(checkpoint: Path) -> None:
    """Cuts off the end of every file of weights."""
    for path in checkpoint.rglob("*"):
        if path.is_file() and path.stat().st_size > 100:
            with path.open("r+b") as file:
                file.truncate(path.stat().st_size // 2)


def checkpoints(training: Training) -> list[Path]:
    """Oldest first."""
    return sorted(
        p for p in (training.dir / "checkpoints").iterdir() if p.name.startswith(("iter_", "step_"))
    )


def comment(training: Training) -> str:
    return training.lab.slurm.run("squeue", "-h", "-t", "all", "-O", "Comment:1100", "-j", training.job_id)


async def crash_with_a_cut_checkpoint(lab: Lab, training: Training, at: int = 30) -> Path:
    """Cuts the newest checkpoint off, and crashes before there is another."""
    newest = checkpoints(training)[-1]
    assert newest.name.endswith(str(at))
    cut(newest)
    training.fault("exception")
    return newest


async def test_the_plan_says_beforehand_that_the_pointer_will_be_set(lab: Lab) -> None:
    training = lab.train(MEGATRON, policy="pointer", wait_step=31, step_time=0.4)
    await crash_with_a_cut_checkpoint(lab, training)
    shown = await lab.recovery_in(training, "awaiting-approval")
    assert shown.plan is not None
    assert (shown.plan.checkpoint, shown.plan.checkpoint_step) == ("iter_0000020", 20)
    (steer,) = [step for step in shown.plan.steps if step.name == "steer_checkpoint"]
    assert steer.mutates
    assert "iter_0000020" in steer.does
    assert "iter_0000030" in steer.does
    tracker = training.dir / "checkpoints" / TRACKER
    assert tracker.read_text() == "30"

    lab.cli("approve", training.job_id, "--yes")
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED, outcome
    assert (outcome.verdict, outcome.resumed_at_step) == ("resumed", 20)
    assert outcome.lost_from_step is not None
    assert outcome.steps_replayed == outcome.lost_from_step - 20
    assert training.last_step() > outcome.lost_from_step
    (kept,) = tracker.parent.glob(f"{TRACKER}.relight-*")
    assert kept.read_text() == "30"


async def test_in_act_mode_the_bad_one_is_moved_aside(lab: Lab) -> None:
    training = lab.train(policy="aside", mode="act", wait_step=31, step_time=0.4)
    bad = await crash_with_a_cut_checkpoint(lab, training)
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED, outcome
    assert outcome.resumed_at_step == 20
    assert outcome.lost_from_step is not None
    assert training.last_step() > outcome.lost_from_step
    (aside,) = bad.parent.glob(f"relight-*/{bad.name}")
    assert (aside / "model.json").exists()


async def test_the_new_attempt_is_told_its_checkpoint_by_a_variable(lab: Lab) -> None:
    echo = """sh -c 'echo "RESUME_FROM=$RESUME_FROM"; exec "$@"' sh"""
    training = lab.train(policy="variable", wait_step=31, step_time=0.4, wrap=echo)
    bad = await crash_with_a_cut_checkpoint(lab, training)
    shown = await lab.recovery_in(training, "awaiting-approval")
    assert shown.plan is not None
    assert "steer_checkpoint" not in [step.name for step in shown.plan.steps]
    (step,) = [step for step in shown.plan.steps if step.name == "resubmit"]
    good = bad.with_name("step_00000020")
    assert f"anew with RESUME_FROM naming the newest usable checkpoint (now {good})" in step.does
    assert training.info()["JobState"] != "CANCELLED"

    lab.cli("approve", training.job_id, "--yes")
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED, outcome
    assert (outcome.verdict, outcome.resumed_at_step) == ("resumed", 20)
    assert outcome.new_attempt is not None
    assert outcome.new_attempt.job_id != training.job_id
    lines = training.log.read_text().splitlines()
    assert lines.count("RESUME_FROM=") == 4  # the four ranks of the first attempt
    assert lines.count(f"RESUME_FROM={good}") == 4
    assert training.info()["JobState"] == "CANCELLED"
    assert lab.slurm.job(outcome.new_attempt.job_id)["JobState"] == "RUNNING"
    assert (bad / "model.json").exists()


async def test_left_to_the_job_a_person_is_asked_even_in_act_mode(lab: Lab) -> None:
    training = lab.train(MEGATRON, mode="act", wait_step=31, step_time=0.4)
    await crash_with_a_cut_checkpoint(lab, training)
    shown = await lab.recovery_in(training, "awaiting-approval")
    assert shown.plan is not None
    (why,) = shown.plan.needs_approval_because
    assert "iter_0000030" in why
    assert training.restarts() == 0
    lab.cli("reject", training.job_id, "--yes")


async def test_with_no_usable_checkpoint_the_job_is_held(lab: Lab) -> None:
    training = lab.train(MEGATRON, policy="pointer", mode="act", wait_step=31, step_time=0.4)
    for checkpoint in checkpoints(training):
        cut(checkpoint)
    training.fault("exception")
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.HELD
    assert "no checkpoint can be used" in outcome.reason
    await asyncio.sleep(2)
    info = training.info()
    assert (info["JobState"], info["Reason"]) == ("PENDING", "job_requeued_in_held_state")
    assert "no checkpoint" in comment(training)
    assert training.log.read_text().count("starting on") == 4  # the four ranks of the first attempt


@pytest.mark.parametrize(("policy", "how"), [("test", Outcome.FAILED_AGAIN), ("strict", Outcome.HELD)])
async def test_a_script_that_ignores_checkpoints_is_found_out(lab: Lab, policy: str, how: Outcome) -> None:
    training = lab.train("--fault ignore-checkpoints@10", policy=policy, mode="act", wait_step=25)
    training.fault("exception")
    outcome = await lab.outcome(training)
    assert (outcome.outcome, outcome.verdict) == (how, "from_scratch"), outcome
    assert "started from scratch" in outcome.reason
    if how is Outcome.HELD:
        await lab.until_async("it is off its nodes", lambda: training.info()["JobState"] == "PENDING")
        assert "from_scratch" in comment(training)
    else:
        assert training.info()["JobState"] == "RUNNING"


async def test_after_a_nan_the_next_recovery_goes_one_checkpoint_further_back(lab: Lab) -> None:
    training = lab.train(MEGATRON, policy="pointer", wait_step=35, step_time=0.2)
    training.fault("exception", step=37)
    first = await lab.recovery_in(training, "awaiting-approval")
    assert first.plan is not None
    assert first.plan.checkpoint_step == 30
    training.fault("nan", step=32)
    lab.cli("mode", training.job_id, "act")
    failed = await lab.outcome(training)
    assert (failed.outcome, failed.verdict) == (Outcome.FAILED_AGAIN, "diverged"), failed
    assert failed.diverged_from == CheckpointRef(name="iter_0000030", step=30)

    second = await lab.outcome(training, number=1)
    assert second.outcome is Outcome.RESUMED, second
    assert second.action is Action.RESTART_PREVIOUS_CHECKPOINT
    assert second.resumed_at_step == 20
    assert second.lost_from_step is not None
    assert training.last_step() > second.lost_from_step
    assert training.restarts() == 2
