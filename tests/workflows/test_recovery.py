"""One test for each way in which a recovery can end."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from relight.contracts import Anomaly, Cause, Diagnosis, Mode, Outcome, RecoveryOutcome, Source, TrainingJob
from relight.contracts.messages import PastFailure, RecoveryStatus
from relight.contracts.outcome import CheckpointRef, Timeline
from relight.contracts.plan import Action
from relight.contracts.policy import Steer, Then
from relight.contracts.steps import (
    ATTEMPT_CHANGED,
    NO_CHECKPOINT,
    REFUSED,
    RESUME_FAILED,
    TOO_FEW_NODES,
    UNREACHABLE,
    ConfirmResult,
    DrainResult,
    LocateResult,
    PollResult,
    RejectedCheckpoint,
    ResubmitInput,
    ResubmitResult,
    VerifyResult,
)
from tests.workflows import samples
from tests.workflows.conftest import Lab
from tests.workflows.world import CHECKPOINT, error, not_yet

ALL_BAD = LocateResult(
    name=None,
    rejected=(RejectedCheckpoint(name="iter_0000100", step=100, state="partial", reason="no marker"),),
    summary="1 checkpoint, none complete",
)


async def test_a_crash_in_act_mode_is_resumed(lab: Lab) -> None:
    recovery = await lab.recover()
    outcome = await recovery.result()
    assert outcome == RecoveryOutcome(
        recovery_id=recovery.id,
        outcome=Outcome.RESUMED,
        reason="step 121",
        symptom="crash",
        cause="user_code",
        action=Action.RESTART,
        attempt=samples.attempt(0),
        new_attempt=samples.attempt(1),
        times=Timeline(
            occurred=samples.T0,
            detected=samples.T0,
            confirmed=outcome.times.confirmed,
            acted=samples.T0 + timedelta(minutes=6),
            running=samples.T0 + timedelta(minutes=7),
            productive=samples.T0 + timedelta(minutes=8),
        ),
        lost_from_step=120,
        resumed_at_step=100,
        root_key="train.py:12",
        steps_replayed=20,
        verdict="resumed",
    )
    assert outcome.times.confirmed is not None
    assert lab.world.called() == [
        "confirm_fault", "locate_checkpoint", "drain_job", "wait_nodes_free", "locate_checkpoint", "resubmit",
        "verify_running", "verify_resume",
    ]  # fmt: skip
    verify = lab.world.inputs("verify_resume")[0]
    assert (verify.attempt, verify.failed_at, verify.resumable_from) == (samples.attempt(1), 120, 100)
    await lab.save("crash", recovery)


async def test_a_faulty_node_is_excluded(lab: Lab) -> None:
    broken = samples.diagnosis(cause=Cause.GPU_FALLEN_OFF_BUS, nodes=("n3",))
    recovery = await lab.recover(diagnosis=broken)
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.RESUMED
    assert outcome.action is Action.RESTART_EXCLUDE_NODE
    assert outcome.excluded_nodes == ("n3",)
    assert lab.world.called()[:4] == ["confirm_fault", "locate_checkpoint", "isolate_nodes", "drain_job"]
    assert lab.world.inputs("isolate_nodes")[0].nodes == ("n3",)
    assert lab.world.inputs("resubmit")[0].excluded_nodes == ("n3",)
    assert lab.world.inputs("verify_running")[0].excluded_nodes == ("n3",)
    await lab.save("exclude", recovery)


async def test_a_lost_node_may_be_adopted_and_does_not_keep_the_others(lab: Lab) -> None:
    lab.world.will(
        "confirm_fault", ConfirmResult(verdict="confirmed", summary="n2 is down", nodes_lost=("n2",))
    )
    outcome = await (await lab.recover(diagnosis=samples.diagnosis(cause=Cause.NODE_FAILURE))).result()
    assert outcome.outcome is Outcome.RESUMED
    assert outcome.excluded_nodes == ("n2",)
    assert lab.world.inputs("drain_job")[0].adopt is True
    assert lab.world.inputs("wait_nodes_free")[0].nodes == ("n1", "n3", "n4")


async def test_adopted_too_late_it_is_only_verified(lab: Lab) -> None:
    lab.world.will(
        "confirm_fault", ConfirmResult(verdict="confirmed", summary="n2 is down", nodes_lost=("n2",))
    )
    lab.world.will("drain_job", DrainResult(how="running", attempt=samples.attempt(1)))
    outcome = await (await lab.recover(diagnosis=samples.diagnosis(cause=Cause.NODE_FAILURE))).result()
    assert outcome.outcome is Outcome.RESUMED
    assert outcome.new_attempt == samples.attempt(1)
    assert outcome.times.acted is None
    assert lab.world.mutations == ["drain_job"]
    assert lab.world.inputs("verify_running")[0].excluded_nodes == ()


async def test_a_fault_that_is_refuted_changes_nothing(lab: Lab) -> None:
    lab.world.will("confirm_fault", ConfirmResult(verdict="refuted", summary="step 150 was printed"))
    recovery = await lab.recover()
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.reason) == (Outcome.REFUTED, "step 150 was printed")
    assert lab.world.called() == ["confirm_fault"]
    await lab.save("refuted", recovery)


async def test_a_spent_budget_stops_without_a_change(lab: Lab) -> None:
    recovery = await lab.recover(diagnosis=samples.diagnosis(retryable=False))
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.STOPPED
    assert lab.world.mutations == []
    await lab.save("stopped", recovery)


async def test_the_new_attempt_fails_again(lab: Lab) -> None:
    ended = VerifyResult(verdict="ended", first_step=101, summary="attempt 1 ended FAILED")
    failure = error(RESUME_FAILED, "attempt 1 ended FAILED")
    failure_with_details = type(failure)(failure.message, ended, type=RESUME_FAILED, non_retryable=True)
    lab.world.will("verify_resume", failure_with_details)
    recovery = await lab.recover()
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.reason) == (Outcome.FAILED_AGAIN, "ended: attempt 1 ended FAILED")
    assert outcome.new_attempt == samples.attempt(1)
    assert outcome.resumed_at_step == 100
    assert lab.world.mutations == ["drain_job", "resubmit"]
    await lab.save("failed_again", recovery)


async def test_a_restart_from_scratch_is_no_success(lab: Lab) -> None:
    lab.world.will(
        "verify_resume", VerifyResult(verdict="from_scratch", first_step=1, summary="began at step 1")
    )
    outcome = await (await lab.recover()).result()
    assert (outcome.outcome, outcome.reason) == (Outcome.FAILED_AGAIN, "from_scratch: began at step 1")


async def test_training_that_stays_behind_is_no_success(lab: Lab) -> None:
    lab.world.will("verify_resume", not_yet("step 119 of 121"))
    outcome = await (await lab.recover()).result()
    assert outcome.outcome is Outcome.FAILED_AGAIN
    assert "step 119 of 121" in outcome.reason


async def test_a_job_that_waits_in_the_queue_is_left_there(lab: Lab) -> None:
    lab.world.will("verify_running", not_yet("PENDING (Resources)"))
    outcome = await (await lab.recover()).result()
    assert outcome.outcome is Outcome.FAILED_AGAIN
    assert "PENDING (Resources)" in outcome.reason
    assert "hold_job" not in lab.world.called()


async def test_nodes_that_stay_busy_leave_the_job_held(lab: Lab) -> None:
    lab.world.will("wait_nodes_free", not_yet("n2 is still COMPLETING"))
    recovery = await lab.recover()
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.HELD
    assert "n2 is still COMPLETING" in outcome.reason
    assert lab.world.mutations == ["drain_job", "hold_job"]
    held = lab.world.inputs("hold_job")[0]
    assert held.attempt == samples.attempt(1)
    assert "COMPLETING" in held.reason
    await lab.save("held", recovery)


async def test_no_usable_checkpoint_leaves_the_job_held(lab: Lab) -> None:
    lab.world.will("locate_checkpoint", ALL_BAD)
    outcome = await (await lab.recover()).result()
    assert outcome.outcome is Outcome.HELD
    assert "none complete" in outcome.reason
    assert lab.world.mutations == ["drain_job", "hold_job"]


async def test_checkpoints_that_break_after_the_plan_leave_the_job_held(lab: Lab) -> None:
    lab.world.will(
        "locate_checkpoint", LocateResult(name="iter_0000100", step=100), error(NO_CHECKPOINT, "gone")
    )
    outcome = await (await lab.recover()).result()
    assert outcome.outcome is Outcome.HELD
    assert lab.world.mutations == ["drain_job", "hold_job"]


async def test_without_any_checkpoint_it_restarts_and_says_so(lab: Lab) -> None:
    lab.world.will("locate_checkpoint", LocateResult(name=None, empty=True, summary="the directory is empty"))
    recovery = await lab.recover(job=samples.job(Mode.OBSERVE))
    shown = await lab.plan(recovery)
    assert shown.plan is not None
    assert any("the directory is empty" in step.does for step in shown.plan.steps)
    await recovery.signal("approve")
    assert (await recovery.result()).outcome is Outcome.RESUMED


async def test_somebody_else_moved_the_job_first(lab: Lab) -> None:
    lab.world.will("drain_job", error(ATTEMPT_CHANGED, "the job is in attempt 1 already"))
    recovery = await lab.recover()
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.reason) == (Outcome.ABANDONED, "the job is in attempt 1 already")
    assert lab.world.mutations == ["drain_job"]
    await lab.save("abandoned", recovery)


async def test_somebody_moved_the_held_job(lab: Lab) -> None:
    lab.world.look = PollResult(known=True, info=samples.info(restart=2))
    lab.world.will("resubmit", error(ATTEMPT_CHANGED, "the job was cancelled"))
    outcome = await (await lab.recover()).result()
    assert outcome.outcome is Outcome.ABANDONED
    assert lab.world.mutations == ["drain_job", "resubmit"]


async def test_a_scheduler_that_forgot_the_requeue_is_asked_again(lab: Lab) -> None:
    """Slurm, killed within seconds of a requeue, shows the failed attempt again."""
    lab.world.will("resubmit", error(ATTEMPT_CHANGED, "it runs, restart count 0"), resubmitted)
    recovery = await lab.recover()
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.RESUMED
    assert lab.world.mutations == ["drain_job", "resubmit"] * 2
    status = await recovery.query("status", result_type=RecoveryStatus)
    assert any("forgotten what it accepted" in line for line in status.log)
    await lab.save("forgotten", recovery)


async def test_a_scheduler_that_forgets_again_and_again_is_left_alone(lab: Lab) -> None:
    lab.world.will("resubmit", error(ATTEMPT_CHANGED, "it runs, restart count 0"))
    outcome = await (await lab.recover()).result()
    assert outcome.outcome is Outcome.ABANDONED
    assert lab.world.mutations == ["drain_job", "resubmit"] * 4


async def test_a_hold_of_a_job_whose_requeue_was_forgotten_begins_anew(lab: Lab) -> None:
    lab.world.will("locate_checkpoint", LocateResult(name=None, summary="none is whole"))
    lab.world.will("hold_job", error(ATTEMPT_CHANGED, "it runs, restart count 0"), "held")
    recovery = await lab.recover()
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.HELD
    assert lab.world.mutations == ["drain_job", "hold_job"] * 2
    await lab.save("hold_forgotten", recovery)


def resubmitted(given: ResubmitInput) -> ResubmitResult:
    return ResubmitResult(attempt=given.attempt)


async def test_a_refusal_before_any_change_stops(lab: Lab) -> None:
    lab.world.will("drain_job", error(REFUSED, "access denied"))
    outcome = await (await lab.recover()).result()
    assert outcome.outcome is Outcome.STOPPED
    assert "access denied" in outcome.reason
    assert lab.world.mutations == ["drain_job"]


async def test_a_refusal_after_the_drain_leaves_the_job_held(lab: Lab) -> None:
    lab.world.will("resubmit", error(REFUSED, "invalid node name"))
    outcome = await (await lab.recover()).result()
    assert outcome.outcome is Outcome.HELD
    assert "invalid node name" in outcome.reason
    assert lab.world.mutations == ["drain_job", "resubmit", "hold_job"]


async def test_a_scheduler_that_does_not_answer_is_waited_for(lab: Lab) -> None:
    """Each try of a mutating step is one activity in history, and tells how many came before it."""
    ok = DrainResult(how="already requeue-held", attempt=samples.attempt(1))
    lab.world.will("drain_job", error(UNREACHABLE), error(UNREACHABLE), ok)
    recovery = await lab.recover()
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.RESUMED
    assert [given.tries for given in lab.world.inputs("drain_job")] == [0, 1, 2]
    await lab.save("unreachable", recovery)


async def test_silence_of_the_scheduler_does_not_use_up_the_window_of_a_poll(lab: Lab) -> None:
    policy = samples.QUICK.model_copy(update={"confirm_window": timedelta(seconds=1)})
    silent = [error(UNREACHABLE, final=False)] * 6  # retries within 1 s, then the window is over, and so on
    lab.world.will("confirm_fault", *silent, ConfirmResult(verdict="confirmed", summary="FAILED"))
    outcome = await (await lab.recover(job=samples.job(policy=policy))).result()
    assert outcome.outcome is Outcome.RESUMED


async def test_too_few_nodes_asks_a_person_even_in_act_mode(lab: Lab) -> None:
    broken = samples.diagnosis(cause=Cause.GPU_MEMORY_ECC, nodes=("n3",))
    lab.world.will("isolate_nodes", error(TOO_FEW_NODES, "3 of 4 nodes would remain"))
    recovery = await lab.recover(diagnosis=broken)
    shown = await lab.plan(recovery)
    assert shown.plan is not None
    assert "3 of 4 nodes would remain" in " ".join(shown.plan.needs_approval_because)
    assert shown.plan.excluded_nodes == ()
    assert lab.world.mutations == []
    await recovery.signal("approve", {"by": "ada"})
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.RESUMED
    assert outcome.excluded_nodes == ()


async def test_what_cannot_be_confirmed_in_time_needs_a_person(lab: Lab) -> None:
    lab.world.will("confirm_fault", not_yet("no step for 3 s only"))
    recovery = await lab.recover()
    shown = await lab.plan(recovery)
    assert shown.plan is not None
    assert "no step for 3 s only" in " ".join(shown.plan.needs_approval_because)
    await recovery.signal("reject", {"by": "ada", "reason": "it is slow today"})
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.reason) == (Outcome.REJECTED, "ada: it is slow today")
    assert outcome.times.confirmed is None


async def test_a_cancelled_recovery_leaves_the_job_held(lab: Lab) -> None:
    lab.world.will("wait_nodes_free", not_yet())
    recovery = await lab.recover(
        job=samples.job(policy=samples.QUICK.model_copy(update={"drain_window": timedelta(minutes=5)}))
    )
    await lab.until(lambda: asyncio.sleep(0, lab.world.called()), lambda called: "wait_nodes_free" in called)
    await recovery.cancel()
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.HELD
    assert "cancelled in Temporal" in outcome.reason
    assert lab.world.mutations == ["drain_job", "hold_job"]


async def test_late_evidence_moves_the_plan_to_another_node(lab: Lab) -> None:
    """A kernel line comes after the plan was shown: the plan changes, and with it what people approve."""
    crash = samples.anomaly("a1", cause=Cause.UNKNOWN)
    recovery = await lab.recover(
        job=samples.job(Mode.OBSERVE), diagnosis=samples.diagnosis(cause=Cause.UNKNOWN), anomalies=(crash,)
    )
    before = await lab.plan(recovery)
    late = samples.anomaly(
        "a2", cause=Cause.GPU_FALLEN_OFF_BUS, node="n3", source=Source.KERNEL, text="Xid 79"
    )
    await recovery.signal("report_anomaly", late)
    after = await lab.until(
        lambda: lab.plan(recovery), lambda status: status.plan_digest != before.plan_digest
    )
    assert after.plan.excluded_nodes == ("n3",)
    await recovery.signal("approve", {"by": "ada", "plan_digest": before.plan_digest})
    await recovery.signal("approve", {"by": "bob", "plan_digest": after.plan_digest})
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.approved_by) == (Outcome.RESUMED, "bob")
    assert outcome.excluded_nodes == ("n3",)


async def told_while_drained(
    lab: Lab, found: Diagnosis, first: Anomaly, late: Anomaly, word: str
) -> RecoveryOutcome:
    """The outcome of a recovery that hears `late` while `drain_job` runs, and notes this word of it."""
    told = asyncio.Event()

    async def drains(_: object) -> DrainResult:
        await told.wait()
        return DrainResult(how="requeue-held", attempt=samples.attempt(1))

    lab.world.will("drain_job", drains)
    recovery = await lab.recover(diagnosis=found, anomalies=(first,))
    await lab.until(lambda: asyncio.sleep(0, lab.world.called()), lambda called: "drain_job" in called)
    await recovery.signal("report_anomaly", late)
    await lab.until(
        lambda: recovery.query("status", result_type=RecoveryStatus),
        lambda status: any(word in line for line in status.log),
    )
    told.set()
    return await recovery.result()


async def test_what_the_drain_itself_brings_about_is_no_evidence(lab: Lab) -> None:
    """Slurm writes STEP CANCELLED to the log while `drain_job` still runs: nobody cancelled the job."""
    cancelled = samples.anomaly("a2", cause=Cause.USER_CANCEL, text="*** STEP 1.0 ON n1 CANCELLED AT ***")
    first = samples.anomaly("a1")
    outcome = await told_while_drained(lab, samples.diagnosis(), first, cancelled, "not counted")
    assert (outcome.outcome, outcome.cause) == (Outcome.RESUMED, Cause.USER_CODE)
    assert outcome.action is Action.RESTART


async def test_a_node_that_slurm_gives_up_while_the_job_is_drained_explains_it(lab: Lab) -> None:
    """The ranks of the other nodes fail long before: the survivor is not the node where it failed."""
    lost = samples.anomaly(
        "a2", cause=Cause.NODE_FAILURE, node="n3", source=Source.SCHEDULER, text="node n3 is DOWN"
    )
    unknown = samples.diagnosis(cause=Cause.UNKNOWN)
    first = samples.anomaly("a1", cause=Cause.UNKNOWN)
    outcome = await told_while_drained(lab, unknown, first, lost, "that is why: node n3 is DOWN")
    assert (outcome.cause, outcome.where) == (Cause.NODE_FAILURE, ("n3",))
    assert (outcome.action, outcome.excluded_nodes) == (Action.RESTART, ())


async def test_a_node_that_is_lost_later_does_not_take_the_place_of_a_known_cause(lab: Lab) -> None:
    lost = samples.anomaly("a2", cause=Cause.NODE_FAILURE, node="n3", source=Source.SCHEDULER)
    first = samples.anomaly("a1")
    outcome = await told_while_drained(lab, samples.diagnosis(), first, lost, "not counted")
    assert outcome.cause is Cause.USER_CODE


STALE = LocateResult(
    name="iter_0000100", step=100, layout="megatron", own="iter_0000110", own_problem="corrupt: cut off"
)
DIVERGED = VerifyResult(verdict="diverged", first_step=101, passed_step=104, summary="the loss is no number")


def policy(**fields: object) -> TrainingJob:
    return samples.job(policy=samples.QUICK.model_copy(update=fields))


async def test_the_job_is_led_to_the_checkpoint(lab: Lab) -> None:
    lab.world.will("locate_checkpoint", STALE)
    recovery = await lab.recover(job=policy(steer=Steer.POINTER))
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.RESUMED
    assert lab.world.mutations == ["drain_job", "steer_checkpoint", "resubmit"]
    await lab.save("steered", recovery)
    (steer,) = lab.world.inputs("steer_checkpoint")
    assert (steer.checkpoint.name, steer.attempt, steer.tries) == ("iter_0000100", samples.attempt(1), 0)


async def test_left_to_the_job_a_wrong_choice_needs_a_person(lab: Lab) -> None:
    lab.world.will("locate_checkpoint", STALE)
    recovery = await lab.recover()
    shown = await lab.plan(recovery)
    assert shown.plan is not None
    assert "would load iter_0000110" in " ".join(shown.plan.needs_approval_because)
    assert lab.world.mutations == []
    await recovery.signal("approve")
    assert (await recovery.result()).outcome is Outcome.RESUMED
    assert "steer_checkpoint" not in lab.world.called()


async def test_a_checkpoint_that_breaks_after_the_plan_is_steered_around(lab: Lab) -> None:
    whole = LocateResult(name="iter_0000110", step=110, layout="megatron")
    lab.world.will("locate_checkpoint", whole, STALE)
    outcome = await (await lab.recover(job=policy(steer=Steer.MOVE_ASIDE))).result()
    assert outcome.outcome is Outcome.RESUMED
    assert lab.world.mutations == ["drain_job", "steer_checkpoint", "resubmit"]


async def test_and_in_observe_mode_only_after_a_person_saw_that(lab: Lab) -> None:
    lab.world.will("locate_checkpoint", STALE.model_copy(update={"own": None, "own_problem": ""}), STALE)
    job = policy(steer=Steer.POINTER).model_copy(update={"mode": Mode.OBSERVE})
    recovery = await lab.recover(job=job)
    before = await lab.plan(recovery)
    await recovery.signal("approve")
    after = await lab.until(
        lambda: lab.plan(recovery), lambda status: status.plan_digest != before.plan_digest
    )
    assert lab.world.mutations == ["drain_job"]
    assert [s.name for s in after.plan.steps if s.mutates] == ["drain_job", "steer_checkpoint", "resubmit"]
    await recovery.signal("approve")
    assert (await recovery.result()).outcome is Outcome.RESUMED


async def test_steering_is_tried_again_and_then_leaves_the_job_held(lab: Lab) -> None:
    lab.world.will("locate_checkpoint", STALE)
    lab.world.will("steer_checkpoint", error("CheckpointsUnreadable", final=False), error(REFUSED, "a link"))
    outcome = await (await lab.recover(job=policy(steer=Steer.POINTER))).result()
    assert outcome.outcome is Outcome.HELD
    assert "a link" in outcome.reason
    assert [given.tries for given in lab.world.inputs("steer_checkpoint")] == [0, 1]
    assert lab.world.mutations == ["drain_job", "steer_checkpoint", "steer_checkpoint", "hold_job"]


@pytest.mark.parametrize(
    ("verdict", "field", "usual"),
    [
        ("from_scratch", "on_from_scratch", Outcome.FAILED_AGAIN),
        ("older_checkpoint", "on_older_checkpoint", Outcome.RESUMED),
        ("diverged", "on_divergence", Outcome.FAILED_AGAIN),
        ("too_slow", "on_unproductive", Outcome.FAILED_AGAIN),
    ],
)
async def test_every_verdict_has_a_policy(lab: Lab, verdict: str, field: str, usual: Outcome) -> None:
    lab.world.will("verify_resume", VerifyResult(verdict=verdict, first_step=90, passed_step=121))
    ends = {
        Then.ACCEPT: (Outcome.RESUMED, ["drain_job", "resubmit"]),
        Then.REPORT: (Outcome.FAILED_AGAIN, ["drain_job", "resubmit"]),
        Then.HOLD: (Outcome.HELD, ["drain_job", "resubmit", "drain_job", "hold_job"]),
    }
    for then, (how, mutations) in ends.items():
        with samples.another_job():
            lab.world.calls.clear()
            outcome = await (await lab.recover(job=policy(**{field: then}))).result()
            assert (outcome.outcome, outcome.verdict, lab.world.mutations) == (how, verdict, mutations), then
            if then is Then.HOLD:
                assert lab.world.inputs("drain_job")[1].attempt == samples.attempt(1)
                assert lab.world.inputs("hold_job")[0].attempt == samples.attempt(2)
                assert verdict in outcome.reason
    with samples.another_job():
        assert (await (await lab.recover()).result()).outcome is usual


async def test_a_divergence_is_told_and_the_next_recovery_looks_behind_it(lab: Lab) -> None:
    monitor = await lab.watch()
    lab.world.will("verify_resume", DIVERGED, VerifyResult(verdict="resumed", first_step=81, passed_step=121))
    earlier = LocateResult(name="iter_0000080", step=80)
    lab.world.will("locate_checkpoint", CHECKPOINT, CHECKPOINT, earlier)
    await monitor.signal("report_anomaly", samples.anomaly())
    second = await lab.until(
        lambda: asyncio.sleep(0, lab.world.inputs("locate_checkpoint")), lambda looks: len(looks) >= 4
    )
    assert [look.diverged_from for look in second[:2]] == [None, None]
    assert {look.diverged_from for look in second[2:]} == {CheckpointRef(name="iter_0000100", step=100)}
    status = await lab.until_status(
        monitor, lambda status: status.recoveries == 2 and not status.open_recoveries
    )
    assert status.end is None
    confirmed = lab.world.inputs("confirm_fault")[1]
    assert (confirmed.diagnosis.cause, confirmed.diagnosis.symptom) == (Cause.NUMERICAL, "degraded")
    assert lab.world.inputs("verify_resume")[1].failed_at == 120
    await lab.save("diverged", monitor, lab.recovery())


@pytest.mark.parametrize(
    ("gpus", "interval", "verified", "hours"),
    [
        (8, 36.0, None, 8 * 8 / 60),
        (None, 36.0, None, None),
        (8, None, VerifyResult(verdict="from_scratch", first_step=1, passed_step=2), None),
    ],
)
async def test_what_it_cost(
    lab: Lab, gpus: int | None, interval: float | None, verified: VerifyResult | None, hours: float | None
) -> None:
    info = samples.info(gpus=gpus)
    lab.world.will("confirm_fault", ConfirmResult(verdict="confirmed", summary="FAILED", job_info=info))
    if verified is not None:
        lab.world.will("verify_resume", verified)
    what = samples.diagnosis()
    assert what.progress is not None
    every = timedelta(seconds=interval) if interval else None
    what = what.model_copy(update={"progress": what.progress.model_copy(update={"interval": every})})
    outcome = await (await lab.recover(diagnosis=what)).result()
    assert outcome.gpu_hours_lost == (pytest.approx(hours) if hours is not None else None)


async def test_after_a_cool_down_it_acts_by_itself(lab: Lab) -> None:
    quick = samples.QUICK.model_copy(update={"cool_down": timedelta(seconds=4)})
    past = PastFailure(root_key="x", cause=Cause.STORAGE, step=1, at=datetime.now(UTC))
    recovery = await lab.recover(job=samples.job(policy=quick), ledger=(past,))
    waiting = await lab.plan(recovery)
    assert waiting.plan is not None
    assert "cool-down of 4s" in waiting.plan.needs_approval_because[0]
    assert lab.world.mutations == []
    outcome = await recovery.result()
    assert (outcome.outcome, outcome.approved_by) == (Outcome.RESUMED, "")
