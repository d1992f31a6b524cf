"""What people may say to a recovery, in which ways, and what it then does."""

import asyncio
import subprocess
from datetime import timedelta

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.service import RPCError

from relight.cli.devserver import DevServer, find_temporal
from relight.contracts import Cause, Mode, Outcome, Symptom
from relight.contracts.messages import Decision, DecisionResult, ModeChange, Note, RecoveryStatus
from relight.contracts.policy import MayAct, OnExpiry
from relight.contracts.steps import UNREACHABLE, LocateResult
from tests.workflows import samples
from tests.workflows.conftest import Lab
from tests.workflows.world import error, not_yet


def observed() -> samples.TrainingJob:
    return samples.job(Mode.OBSERVE)


async def test_nothing_changes_before_an_approval(lab: Lab) -> None:
    recovery = await lab.recover(job=observed())
    shown = await lab.plan(recovery)
    assert shown.plan is not None
    assert shown.plan.checkpoint_step == 100
    assert shown.approval_deadline is not None
    await asyncio.sleep(0.5)
    assert lab.world.mutations == []
    decision = Decision(by="ada", reason="go", plan_digest=shown.plan_digest)
    answer = await recovery.execute_update("decide", decision, result_type=DecisionResult)
    assert answer == DecisionResult(
        accepted=True, message=f"plan {shown.plan_digest} approved", recovery_id=recovery.id
    )
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.approved_by) == (Outcome.RESUMED, "ada")
    assert outcome.times.approved is not None
    await lab.save("approved_by_update", recovery)


@pytest.mark.parametrize(
    ("options", "by"),
    [
        (["--input", '{"by": "bob", "reason": "fine"}'], "bob"),
        ([], "somebody"),
        (["--input", "null"], "somebody"),
        (["--input", '{"by": "eve", "more": [1], "approved": false}'], "eve"),
        (["--input", '{"by": "bob"}', "--input", '"and another"'], "bob"),
    ],
    ids=["by", "no payload", "null", "the signal's name counts", "two payloads"],
)
async def test_a_plain_temporal_signal_approves(
    lab: Lab, server: DevServer, options: list[str], by: str
) -> None:
    recovery = await lab.recover(job=observed())
    await lab.plan(recovery)
    argv = [
        str(find_temporal()), "workflow", "signal", "--address", server.address, "--workflow-id", recovery.id,
        "--name", "approve", *options,
    ]  # fmt: skip
    await asyncio.to_thread(subprocess.run, argv, check=True, capture_output=True, env=server.environment)
    outcome = await asyncio.wait_for(recovery.result(), 30)
    assert (outcome.outcome, outcome.approved_by) == (Outcome.RESUMED, by)


@pytest.mark.parametrize("payload", ["yes", 7, ["a"], {"approved": "perhaps"}, {"by": {"x": 1}}])
async def test_a_decision_that_cannot_be_read_decides_nothing(lab: Lab, payload: object) -> None:
    recovery = await lab.recover(job=observed())
    await lab.plan(recovery)
    await recovery.signal("approve", payload)
    await recovery.signal("set_mode", payload)
    await recovery.signal("report_attempt", payload)
    await recovery.signal("report_anomaly", payload)
    shown = await lab.until(lambda: lab.plan(recovery), lambda s: "cannot be read" in " ".join(s.log))
    assert shown.state == "awaiting-approval"
    await recovery.signal("reject")
    assert (await recovery.result()).outcome is Outcome.REJECTED


async def test_a_rejection_changes_nothing(lab: Lab) -> None:
    recovery = await lab.recover(job=observed())
    shown = await lab.plan(recovery)
    decision = Decision(approved=False, by="ada", reason="a known bug", plan_digest=shown.plan_digest)
    await recovery.execute_update("decide", decision)
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.reason) == (Outcome.REJECTED, "ada: a known bug")
    assert lab.world.mutations == []
    await lab.save("rejected", recovery)


async def test_stale_nameless_and_second_decisions_are_refused_with_the_reason(lab: Lab) -> None:
    recovery = await lab.recover(job=observed())
    shown = await lab.plan(recovery)
    good = Decision(by="ada", plan_digest=shown.plan_digest)

    async def refused(decision: Decision) -> str:
        with pytest.raises(WorkflowUpdateFailedError) as failure:
            await recovery.execute_update("decide", decision)
        return str(failure.value.cause)

    assert "plan 00000000" in await refused(good.model_copy(update={"plan_digest": "00000000"}))
    assert "digest" in await refused(good.model_copy(update={"plan_digest": ""}))
    assert "name" in await refused(good.model_copy(update={"by": ""}))
    lab.world.will("wait_nodes_free", not_yet())  # keeps the recovery open after the approval
    await recovery.execute_update("decide", good)
    try:
        late = await refused(good.model_copy(update={"by": "bob"}))
        assert f"no plan is waiting for a decision: plan {shown.plan_digest} was approved by ada at " in late
        status = await recovery.query("status", result_type=RecoveryStatus)
        assert status.last_decision.startswith(f"plan {shown.plan_digest} was approved by ada at ")
    except RPCError:
        pytest.fail("the recovery ended before the second decision")


async def test_a_stale_signal_is_recorded_and_decides_nothing(lab: Lab) -> None:
    recovery = await lab.recover(job=observed())
    await lab.plan(recovery)
    await recovery.signal("approve", {"by": "ada", "plan_digest": "00000000"})
    shown = await lab.until(lambda: lab.plan(recovery), lambda s: "00000000" in " ".join(s.log))
    assert shown.state == "awaiting-approval"
    assert lab.world.mutations == []


async def test_the_first_of_two_decisions_at_once_counts(lab: Lab) -> None:
    recovery = await lab.recover(job=observed())
    await lab.plan(recovery)
    await recovery.signal("reject", {"by": "ada"})
    await recovery.signal("approve", {"by": "bob"})
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.reason) == (Outcome.REJECTED, "by ada")


async def test_an_approval_before_the_plan_is_shown_approves_nothing(lab: Lab) -> None:
    lab.world.will("confirm_fault", not_yet())
    recovery = await lab.recover(job=observed())
    await recovery.signal("approve", {"by": "ada"})
    shown = await lab.plan(recovery)
    assert any("refused" in line for line in shown.log)
    assert lab.world.mutations == []


async def test_nobody_decides_in_time(lab: Lab) -> None:
    policy = samples.QUICK.model_copy(update={"approval_deadline": timedelta(seconds=1)})
    recovery = await lab.recover(job=samples.job(Mode.OBSERVE, policy))
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.EXPIRED
    assert lab.world.mutations == []
    await lab.save("expired", recovery)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (samples.report("ended", state="CANCELLED"), "cancelled"),
        (samples.report("ended", state="COMPLETED"), "completed"),
        (samples.report("ended", state="TIMEOUT"), "time limit"),
        (samples.report("started", restart=1), "restarted by somebody else"),
    ],
)
async def test_a_job_that_moves_meanwhile_is_left_alone(
    lab: Lab, told: samples.AttemptReport, reason: str
) -> None:
    told = told.model_copy(update={"attempt": samples.attempt(told.attempt.restart_count)})
    recovery = await lab.recover(job=observed())
    await lab.plan(recovery)
    await recovery.signal("report_attempt", told)
    outcome = await asyncio.wait_for(recovery.result(), 30)
    assert outcome.outcome is Outcome.ABANDONED
    assert reason in outcome.reason
    assert lab.world.mutations == []


async def test_what_a_crash_is_expected_to_report_ends_nothing(lab: Lab) -> None:
    recovery = await lab.recover(job=observed())
    await lab.plan(recovery)
    for told in (
        samples.report("ended", state="FAILED"),
        samples.report("started"),
        samples.report("progress", step=130),
        samples.report("started", attempt=samples.attempt(1, job_id="1")),
    ):
        await recovery.signal("report_attempt", told)
    await recovery.signal("approve", {"by": "ada"})
    assert (await recovery.result()).outcome is Outcome.RESUMED


async def test_a_hang_that_goes_on_is_refuted(lab: Lab) -> None:
    hang = samples.diagnosis(symptom=Symptom.HANG, cause=Cause.UNKNOWN)
    recovery = await lab.recover(job=observed(), diagnosis=hang)
    await lab.plan(recovery)
    await recovery.signal("report_attempt", samples.report("progress", step=120))  # the old step again
    await recovery.signal("report_attempt", samples.report("progress", step=121))
    outcome = await asyncio.wait_for(recovery.result(), 30)
    assert (outcome.outcome, outcome.reason) == (Outcome.REFUTED, "training went on by itself")


async def test_a_hang_before_the_first_step_is_refuted_by_any_step_of_the_attempt(lab: Lab) -> None:
    """It goes on from its checkpoint, before the step that an earlier attempt reached."""
    hang = samples.diagnosis(symptom=Symptom.HANG, cause=Cause.UNKNOWN, rules=(("no-first-step",),))
    recovery = await lab.recover(job=observed(), diagnosis=hang)
    await lab.plan(recovery)
    await recovery.signal("report_attempt", samples.report("progress", step=101))
    outcome = await asyncio.wait_for(recovery.result(), 30)
    assert (outcome.outcome, outcome.reason) == (Outcome.REFUTED, "training went on by itself")


async def test_the_mode_is_revoked_in_flight(lab: Lab) -> None:
    """Already off its nodes, the job is not started again before a person approves; a no leaves it held."""
    lab.world.will("wait_nodes_free", not_yet(), not_yet(), not_yet(), "free")
    recovery = await lab.recover()
    await lab.until(lambda: asyncio.sleep(0, lab.world.called()), lambda called: "wait_nodes_free" in called)
    await recovery.signal("set_mode", ModeChange(mode=Mode.OBSERVE, by="ada"))
    shown = await lab.plan(recovery)
    assert lab.world.mutations == ["drain_job"]
    assert shown.mode is Mode.OBSERVE
    await recovery.signal("reject", {"by": "ada", "reason": "not tonight"})
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.HELD
    assert "not tonight" in outcome.reason
    assert lab.world.mutations == ["drain_job", "hold_job"]
    await lab.save("mode_revoked", recovery)


async def test_the_mode_is_granted_while_a_person_is_asked(lab: Lab) -> None:
    recovery = await lab.recover(job=observed())
    await lab.plan(recovery)
    await recovery.signal("set_mode", {"mode": "act", "by": "ada"})
    outcome = await asyncio.wait_for(recovery.result(), 30)
    assert (outcome.outcome, outcome.approved_by) == (Outcome.RESUMED, "")


async def test_the_mode_is_revoked_between_two_tries(lab: Lab) -> None:
    lab.world.will("drain_job", error(UNREACHABLE))
    recovery = await lab.recover()
    await lab.until(lambda: asyncio.sleep(0, lab.world.called()), lambda called: "drain_job" in called)
    await recovery.signal("set_mode", {"mode": "observe", "by": "ada"})
    await lab.plan(recovery)
    tries = len(lab.world.mutations)
    await asyncio.sleep(1.5)
    assert len(lab.world.mutations) == tries


async def test_paused_it_waits_and_then_goes_on(lab: Lab) -> None:
    recovery = await lab.recover(paused=True)
    await lab.until(
        lambda: asyncio.sleep(0, lab.world.called()), lambda called: "locate_checkpoint" in called
    )
    await asyncio.sleep(0.7)
    assert lab.world.mutations == []
    await recovery.signal("unpause", Note(by="ada"))
    assert (await asyncio.wait_for(recovery.result(), 30)).outcome is Outcome.RESUMED


async def test_unwatched_it_steps_back(lab: Lab) -> None:
    recovery = await lab.recover(job=observed())
    await lab.plan(recovery)
    await recovery.signal("unwatch", Note(by="ada"))
    outcome = await asyncio.wait_for(recovery.result(), 30)
    assert (outcome.outcome, outcome.reason) == (Outcome.ABANDONED, "unwatched by ada")


async def test_another_checkpoint_than_the_approved_one_is_asked_about_again(lab: Lab) -> None:
    lab.world.will(
        "locate_checkpoint",
        LocateResult(name="iter_0000100", step=100),
        LocateResult(name="iter_0000050", step=50, summary="iter_0000100 is damaged"),
    )
    recovery = await lab.recover(job=observed())
    first = await lab.plan(recovery)
    await recovery.signal("approve", {"by": "ada"})
    second = await lab.until(lambda: lab.plan(recovery), lambda s: s.plan_digest != first.plan_digest)
    assert (first.plan.checkpoint_step if first.plan else None, second.plan.checkpoint_step) == (100, 50)
    assert lab.world.mutations == ["drain_job"]
    await recovery.signal("approve", {"by": "bob"})
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.approved_by) == (Outcome.RESUMED, "bob")
    assert lab.world.inputs("verify_resume")[0].resumable_from == 50


async def test_a_newer_checkpoint_needs_no_new_approval(lab: Lab) -> None:
    lab.world.will(
        "locate_checkpoint",
        LocateResult(name="iter_0000100", step=100),
        LocateResult(name="iter_0000110", step=110),
    )
    recovery = await lab.recover(job=observed())
    await lab.plan(recovery)
    await recovery.signal("approve", {"by": "ada"})
    assert (await asyncio.wait_for(recovery.result(), 30)).outcome is Outcome.RESUMED
    assert lab.world.inputs("verify_resume")[0].resumable_from == 110


def with_rules(mode: Mode = Mode.OBSERVE, **rules: object) -> samples.TrainingJob:
    job = samples.job(mode)
    return job.model_copy(update={"policy": job.policy.model_copy(update=rules)})


async def test_two_people_must_approve_where_the_policy_says_so(lab: Lab) -> None:
    recovery = await lab.recover(job=with_rules(approvals=2, approvers=("ada", "bob", "cy")))
    shown = await lab.plan(recovery)
    word = Decision(by="ada@head1", reason="seen", plan_digest=shown.plan_digest)
    answer = await recovery.execute_update("decide", word, result_type=DecisionResult)
    assert "1 of 2, by ada@head1; another person must approve too" in answer.message
    for by, why in (("ada@head2", "somebody else"), ("eve", "may not decide: the policy names ada, bob, cy")):
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await recovery.execute_update("decide", word.model_copy(update={"by": by}))
        assert why in str(refused.value.cause)
    await recovery.signal("approve", {"by": "eve"})
    shown = await lab.until(lambda: lab.plan(recovery), lambda s: "by eve: eve may not" in " ".join(s.log))
    assert (shown.approvals, shown.approvals_needed) == (("ada@head1",), 2)
    assert lab.world.mutations == []
    await recovery.signal("approve", {"by": "bob"})
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.approved_by) == (Outcome.RESUMED, "ada@head1 and bob")


async def test_one_rejection_ends_what_one_person_approved(lab: Lab) -> None:
    recovery = await lab.recover(job=with_rules(approvals=2))
    await lab.plan(recovery)
    await recovery.signal("approve", {"by": "ada"})
    await recovery.signal("reject", {"by": "bob", "reason": "not now"})
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.reason) == (Outcome.REJECTED, "bob: not now")
    assert lab.world.mutations == []


@pytest.mark.parametrize(
    ("mode", "ends"), [(Mode.ACT, Outcome.RESUMED), (Mode.OBSERVE, Outcome.EXPIRED)], ids=["act", "observe"]
)
async def test_silence_counts_as_consent_only_in_act_mode_and_by_policy(
    lab: Lab, mode: Mode, ends: Outcome
) -> None:
    rules = with_rules(
        mode, on_expiry=OnExpiry.PROCEED, act=MayAct.APPROVAL, approval_deadline=timedelta(seconds=1)
    )
    outcome = await (await lab.recover(job=rules)).result()
    assert outcome.outcome is ends
    assert ("nobody within" in outcome.approved_by) is (ends is Outcome.RESUMED)
    assert bool(lab.world.mutations) is (ends is Outcome.RESUMED)
