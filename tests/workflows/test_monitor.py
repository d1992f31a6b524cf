"""What a monitor makes of what it is told."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import WorkflowUpdateFailedError

from relight.contracts import Cause, JobState, Mode, Outcome, Role, Source, Symptom, TrainingJob
from relight.contracts.ids import MEMO_JOB, MODE, NODES, STATE
from relight.contracts.messages import (
    AttemptReport,
    EndReason,
    ModeChange,
    MonitorStatus,
    Note,
    RecoveryEnded,
    RecoveryRecord,
)
from relight.contracts.steps import (
    ATTEMPT_CHANGED,
    RESUME_FAILED,
    ConfirmResult,
    LocateResult,
    PollResult,
    VerifyResult,
)
from tests.workflows import samples
from tests.workflows.conftest import Lab
from tests.workflows.world import error, not_yet


def polling(seconds: float = 0.5, mode: Mode = Mode.ACT) -> TrainingJob:
    return samples.job(mode, samples.QUICK.model_copy(update={"poll": timedelta(seconds=seconds)}))


async def test_a_crash_is_recovered_and_the_new_attempt_watched(lab: Lab) -> None:
    monitor = await lab.watch()
    await monitor.signal("report_anomaly", samples.anomaly())
    status = await lab.until_status(monitor, lambda s: s.job.attempt == samples.attempt(1))
    assert (await lab.recovery().result()).outcome is Outcome.RESUMED
    assert status.recoveries == 1
    await monitor.signal("report_attempt", samples.report("started", restart=1, nodes=("n1", "n2")))
    await monitor.signal("report_attempt", samples.report("ended", restart=1, state="COMPLETED"))
    result = await monitor.result()
    assert (result.end, result.recoveries, result.signals) == (EndReason.COMPLETED, 1, 4)
    assert lab.world.inputs("snapshot_job")[0].job.attempt == samples.attempt(0)
    await lab.save("crash", monitor)


async def test_others_see_the_job_in_memo_and_search_attributes(lab: Lab) -> None:
    monitor = await lab.watch()
    await monitor.signal("report_attempt", samples.report("started", restart=1, nodes=("n7", "n8")))
    await monitor.execute_update("set_mode", ModeChange(mode=Mode.OBSERVE, by="ada"))
    await lab.until_status(monitor, lambda s: s.job.mode is Mode.OBSERVE)
    described = await monitor.describe()
    shown = TrainingJob.model_validate((await described.memo())[MEMO_JOB])
    assert shown.attempt == samples.attempt(1)
    assert (shown.nodes, shown.mode) == (("n7", "n8"), Mode.OBSERVE)
    attributes = described.typed_search_attributes
    assert (attributes[STATE], attributes[MODE], attributes[NODES]) == ("watching", "observe", ["n7", "n8"])


async def test_a_cascade_becomes_one_recovery_with_its_root(lab: Lab) -> None:
    monitor = await lab.watch()
    for n in range(5):
        late = samples.anomaly(
            f"c{n}",
            role=Role.CASCADE,
            cause=Cause.NETWORK_FABRIC,
            occurred_at=samples.T0 + timedelta(hours=1),
        )
        await monitor.signal("report_anomaly", late)
    await monitor.signal("report_anomaly", samples.anomaly("root"))
    outcome = await lab.until(lambda: lab.recovery("root").result(), lambda o: o.outcome is Outcome.RESUMED)
    assert outcome.cause is Cause.USER_CODE
    assert (await lab.status(monitor)).recoveries == 1


async def test_a_cascade_alone_starts_nothing(lab: Lab) -> None:
    monitor = await lab.watch()
    await monitor.signal("report_anomaly", samples.anomaly("c", role=Role.CASCADE))
    await monitor.signal("report_anomaly", samples.anomaly("x", role=Role.CONTEXT))
    await asyncio.sleep(1)
    status = await lab.status(monitor)
    assert (status.state, status.recoveries) == ("watching", 0)


async def test_a_thousand_repeats_are_one_recovery(lab: Lab) -> None:
    monitor = await lab.watch()
    same = samples.anomaly()
    for _ in range(20):
        await asyncio.gather(*(monitor.signal("report_anomaly", same) for _ in range(50)))
    status = await lab.until_status(monitor, lambda s: s.signals >= 1000 and s.state == "watching")
    assert (status.recoveries, status.duplicates) == (1, 999)
    history = await monitor.fetch_history()
    assert len(history.events) < 4000
    assert lab.world.mutations == ["drain_job", "resubmit"]


async def test_anomalies_of_earlier_attempts_are_counted_and_ignored(lab: Lab) -> None:
    monitor = await lab.watch()
    await monitor.signal("report_attempt", samples.report("started", restart=2))
    await monitor.signal("report_anomaly", samples.anomaly("old", restart=1))
    other = samples.attempt(0, submitted=samples.T0 + timedelta(days=9))  # a reused id
    await monitor.signal("report_anomaly", samples.anomaly("reused", attempt=other))
    await lab.until_status(monitor, lambda s: s.signals == 3)
    await asyncio.sleep(0.7)
    status = await lab.status(monitor)
    assert (status.stale, status.recoveries, status.state) == (2, 0, "watching")


@pytest.mark.parametrize(
    ("state", "end"),
    [
        ("COMPLETED", EndReason.COMPLETED),
        ("CANCELLED", EndReason.CANCELLED),
        ("TIMEOUT", EndReason.TIME_LIMIT),
        ("DEADLINE", EndReason.TIME_LIMIT),
    ],
)
async def test_wanted_ends_need_no_recovery(lab: Lab, state: str, end: EndReason) -> None:
    """Ranks that die of the cancelling look like a crash in the log: the scheduler's word comes in time."""
    policy = samples.QUICK.model_copy(update={"settle": timedelta(seconds=2)})
    monitor = await lab.watch(samples.job(policy=policy))
    await monitor.signal("report_anomaly", samples.anomaly())
    await monitor.signal("report_attempt", samples.report("ended", state=state))
    result = await monitor.result()
    assert (result.end, result.recoveries) == (end, 0)
    assert lab.world.mutations == []
    if state == "CANCELLED":
        await lab.save("cancelled", monitor)


async def test_a_preempted_job_is_watched_on(lab: Lab) -> None:
    monitor = await lab.watch()
    await monitor.signal("report_attempt", samples.report("ended", state="PREEMPTED"))
    await monitor.signal("report_attempt", samples.report("started", restart=1))
    status = await lab.until_status(monitor, lambda s: s.job.attempt == samples.attempt(1))
    assert (status.state, status.recoveries) == ("watching", 0)


async def test_an_approval_sent_to_the_monitor_reaches_the_recovery(lab: Lab) -> None:
    monitor = await lab.watch(samples.job(Mode.OBSERVE))
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until_status(monitor, lambda s: s.state == "awaiting-approval")
    assert lab.world.mutations == []
    await monitor.signal("approve", {"by": "ada"})
    outcome = await asyncio.wait_for(lab.recovery().result(), 30)
    assert (outcome.outcome, outcome.approved_by) == (Outcome.RESUMED, "ada")


async def test_the_user_cancels_while_a_person_is_asked(lab: Lab) -> None:
    monitor = await lab.watch(samples.job(Mode.OBSERVE))
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until_status(monitor, lambda s: s.state == "awaiting-approval")
    await monitor.signal("report_attempt", samples.report("ended", state="CANCELLED"))
    result = await asyncio.wait_for(monitor.result(), 30)
    assert (result.end, result.recoveries) == (EndReason.CANCELLED, 1)
    assert (await lab.recovery().result()).outcome is Outcome.ABANDONED
    await lab.save("cancelled_while_asked", monitor, lab.recovery())


async def test_the_user_requeues_while_a_person_is_asked(lab: Lab) -> None:
    monitor = await lab.watch(samples.job(Mode.OBSERVE))
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until_status(monitor, lambda s: s.state == "awaiting-approval")
    await monitor.signal("report_attempt", samples.report("started", restart=1, nodes=("n5", "n6")))
    status = await lab.until_status(monitor, lambda s: s.state == "watching")
    assert (status.job.attempt, status.job.nodes) == (samples.attempt(1), ("n5", "n6"))
    assert (await lab.recovery().result()).outcome is Outcome.ABANDONED
    assert lab.world.mutations == []


async def test_its_own_requeue_is_no_cancellation(lab: Lab) -> None:
    """While relight acts, the old attempt is reported as ended, cancelled: that is relight's own doing."""
    lab.world.will(
        "verify_running", not_yet(), not_yet(), not_yet(), not_yet(), error(RESUME_FAILED, "node down")
    )
    monitor = await lab.watch()
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until(lambda: asyncio.sleep(0, lab.world.called()), lambda called: "verify_running" in called)
    await monitor.signal("report_attempt", samples.report("ended", state="CANCELLED"))
    status = await lab.until_status(monitor, lambda s: s.state == "watching")
    assert status.end is None
    assert status.job.attempt == samples.attempt(1)


async def test_a_rejected_job_that_is_over_ends_the_monitor(lab: Lab) -> None:
    lab.world.look = PollResult(
        known=True,
        info=samples.info(JobState.FAILED),
        anomaly=samples.anomaly("poll", source=Source.SCHEDULER),
    )
    monitor = await lab.watch(samples.job(Mode.OBSERVE))
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until_status(monitor, lambda s: s.state == "awaiting-approval")
    await monitor.signal("reject", {"by": "ada", "reason": "a known bug"})
    result = await asyncio.wait_for(monitor.result(), 30)
    assert (result.end, result.recoveries, result.missed) == (EndReason.STOPPED, 1, 0)
    assert "a known bug" in result.detail
    await lab.save("rejected", monitor, lab.recovery())


async def test_a_rejected_job_that_runs_is_watched_on_and_not_asked_about_again(lab: Lab) -> None:
    monitor = await lab.watch(samples.job(Mode.OBSERVE))
    await monitor.signal("report_anomaly", samples.anomaly("a1"))
    await lab.until_status(monitor, lambda s: s.state == "awaiting-approval")
    await monitor.signal("reject", {"by": "ada"})
    await lab.until_status(monitor, lambda s: s.state == "watching")
    await monitor.signal("report_anomaly", samples.anomaly("a2"))
    await asyncio.sleep(1)
    status = await lab.status(monitor)
    assert (status.state, status.recoveries) == ("watching", 1)


async def test_a_held_job_ends_the_monitor(lab: Lab) -> None:
    lab.world.will("locate_checkpoint", LocateResult(name=None, summary="all damaged"))
    monitor = await lab.watch()
    await monitor.signal("report_anomaly", samples.anomaly())
    result = await asyncio.wait_for(monitor.result(), 30)
    assert result.end is EndReason.STOPPED
    assert "all damaged" in result.detail


async def test_the_same_failure_without_progress_is_tried_again_once_then_stopped(lab: Lab) -> None:
    """It fails at the same line and the same step after each restart."""
    lab.world.will("verify_resume", error(RESUME_FAILED, "it ended FAILED"))
    monitor = await lab.watch()
    for restart in range(2):
        await monitor.signal("report_anomaly", samples.anomaly(f"a{restart}", restart=restart))
        if restart == 0:
            await lab.until_status(monitor, lambda s: s.job.attempt == samples.attempt(1))
    result = await asyncio.wait_for(monitor.result(), 30)
    assert (result.end, result.recoveries) == (EndReason.STOPPED, 2)
    assert "no step gained" in result.detail
    assert lab.world.mutations == ["drain_job", "resubmit"]
    await lab.save("crash_loop", monitor, lab.recovery("a0", 0), lab.recovery("a1", 1))


async def test_the_same_failure_further_on_is_tried_again(lab: Lab) -> None:
    monitor = await lab.watch()
    for restart in range(4):
        await monitor.signal(
            "report_anomaly", samples.anomaly(f"a{restart}", restart=restart, step=120 + restart)
        )
        await lab.until_status(monitor, lambda s, n=restart + 1: s.job.attempt == samples.attempt(n))  # type: ignore[misc]
    assert lab.world.mutations == ["drain_job", "resubmit"] * 4


async def test_a_hang_before_the_first_step_is_recovered(lab: Lab) -> None:
    monitor = await lab.watch()
    await monitor.signal("report_anomaly", samples.hang_at_start())
    await lab.until_status(monitor, lambda s: s.job.attempt == samples.attempt(1))
    outcome = await lab.recovery("h1").result()
    assert (outcome.outcome, outcome.symptom, outcome.excluded_nodes) == (Outcome.RESUMED, Symptom.HANG, ())
    assert outcome.lost_from_step is None


async def test_a_restart_that_hangs_at_its_start_again_counts_as_no_progress(lab: Lab) -> None:
    """A crash at step 120; then each new attempt hangs before its first step, until the budget is spent."""
    late = VerifyResult(verdict="too_slow", summary="it printed no step")
    lab.world.will("verify_resume", late)
    monitor = await lab.watch()
    await monitor.signal("report_anomaly", samples.anomaly("a0"))
    for restart in range(1, 5):
        await lab.until_status(monitor, lambda s, n=restart: s.job.attempt == samples.attempt(n))  # type: ignore[misc]
        await monitor.signal("report_anomaly", samples.hang_at_start(f"h{restart}", restart))
    result = await asyncio.wait_for(monitor.result(), 30)
    assert (result.end, result.recoveries) == (EndReason.STOPPED, 5)
    assert "unknown came back at step 120 after 3 restarts, no step gained" in result.detail
    assert lab.world.mutations == ["drain_job", "resubmit"] * 4


async def test_a_hang_of_the_new_attempt_does_not_wait_until_the_verification_gives_up(lab: Lab) -> None:
    """Its first steps are waited for half an hour; the sensor may know much earlier that none will come."""
    patient = samples.QUICK.model_copy(update={"verify_window": timedelta(minutes=30)})
    lab.world.will("verify_resume", not_yet("no step yet"))
    monitor = await lab.watch(samples.job(policy=patient))
    await monitor.signal("report_anomaly", samples.anomaly("a0"))
    await lab.until(lambda: asyncio.sleep(0, lab.world.called()), lambda called: "verify_resume" in called)
    await monitor.signal("report_anomaly", samples.hang_at_start("h1", 1))
    first = await asyncio.wait_for(lab.recovery("a0").result(), 30)
    assert first.outcome is Outcome.FAILED_AGAIN
    assert first.reason.startswith("the new attempt hangs, too: ")
    assert first.new_attempt == samples.attempt(1)
    lab.world.will("verify_resume", VerifyResult(verdict="resumed", first_step=101, passed_step=121))
    await lab.until_status(monitor, lambda s: s.job.attempt == samples.attempt(2))
    second = await lab.recovery("h1", 1).result()
    assert (second.outcome, second.symptom) == (Outcome.RESUMED, Symptom.HANG)
    assert lab.world.mutations == ["drain_job", "resubmit"] * 2


async def test_a_newer_attempts_fault_waits_for_the_open_recovery(lab: Lab) -> None:
    lab.world.will("verify_resume", *[not_yet("step 101")] * 4, error(RESUME_FAILED, "it ended"))
    monitor = await lab.watch()
    await monitor.signal("report_anomaly", samples.anomaly("a0"))
    await lab.until(lambda: asyncio.sleep(0, lab.world.called()), lambda called: "verify_resume" in called)
    await monitor.signal(
        "report_anomaly", samples.anomaly("a1", restart=1, cause=Cause.GPU_HARDWARE, node="n2")
    )
    assert (await lab.status(monitor)).recoveries == 1
    lab.world.will("confirm_fault", ConfirmResult(verdict="confirmed", summary="n2"))
    await lab.until_status(monitor, lambda s: s.recoveries == 2)
    assert lab.world.inputs("isolate_nodes") or await lab.until(
        lambda: asyncio.sleep(0, lab.world.inputs("isolate_nodes")), bool
    )
    assert lab.world.inputs("isolate_nodes")[0].attempt == samples.attempt(1)


async def test_a_step_of_the_new_attempt_is_shown_when_the_recovery_has_ended(lab: Lab) -> None:
    lab.world.will("verify_resume", *[not_yet("no step yet")] * 4)
    monitor = await lab.watch()
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until(lambda: asyncio.sleep(0, lab.world.called()), lambda called: "verify_resume" in called)
    await monitor.signal("report_attempt", samples.report("progress", restart=1, step=121))
    status = await lab.until_status(monitor, lambda s: s.job.attempt == samples.attempt(1))
    assert status.progress is not None
    assert status.progress.step == 121


async def test_late_evidence_joins_the_open_recovery(lab: Lab) -> None:
    monitor = await lab.watch(samples.job(Mode.OBSERVE))
    await monitor.signal("report_anomaly", samples.anomaly("a1", cause=Cause.UNKNOWN))
    before = await lab.plan(lab.recovery())
    late = samples.anomaly("a2", cause=Cause.GPU_FALLEN_OFF_BUS, node="n3", source=Source.KERNEL)
    await monitor.signal("report_anomaly", late)
    after = await lab.until(lambda: lab.plan(lab.recovery()), lambda s: s.plan_digest != before.plan_digest)
    assert after.plan.excluded_nodes == ("n3",)
    records = await monitor.query("recoveries", result_type=tuple[RecoveryRecord, ...])
    assert records[0].anomaly_ids == ("a1", "a2")
    await lab.save("late_evidence", monitor, lab.recovery())


async def test_its_own_look_finds_what_no_sensor_told(lab: Lab) -> None:
    monitor = await lab.watch(polling())
    lab.world.look = PollResult(
        known=True,
        info=samples.info(JobState.FAILED),
        anomaly=samples.anomaly("poll", source=Source.SCHEDULER),
    )
    status = await lab.until_status(monitor, lambda s: s.job.attempt == samples.attempt(1))
    assert (status.missed, status.recoveries) == (1, 1)
    lab.world.look = PollResult(known=True, info=samples.info(JobState.COMPLETED, restart=1))
    result = await asyncio.wait_for(monitor.result(), 30)
    assert (result.end, result.missed) == (EndReason.COMPLETED, 1)
    await lab.save("missed", monitor, lab.recovery("poll"))


async def test_no_answer_concludes_nothing_and_no_such_job_is_believed_when_said_twice(lab: Lab) -> None:
    monitor = await lab.watch(polling(0.3))
    lab.world.look = PollResult(known=None, text="slurmctld does not answer")
    looked = len(lab.world.inputs("look_at_job"))
    await lab.until(lambda: asyncio.sleep(0, len(lab.world.inputs("look_at_job"))), lambda n: n >= looked + 3)
    gone = PollResult(known=False, text="invalid job id")
    lab.world.will("look_at_job", gone, PollResult(known=True, info=samples.info()), gone, gone, gone)
    assert (await lab.status(monitor)).end is None
    result = await asyncio.wait_for(monitor.result(), 30)
    assert (result.end, result.detail) == (EndReason.GONE, "invalid job id")


async def test_a_look_that_fails_is_no_answer(lab: Lab) -> None:
    lab.world.will("look_at_job", error("Boom"))
    lab.world.will("snapshot_job", error("Boom"), "saved")
    monitor = await lab.watch(polling(0.3))
    await lab.until(lambda: asyncio.sleep(0, len(lab.world.inputs("look_at_job"))), lambda n: n >= 3)
    assert (await lab.status(monitor)).state == "watching"
    assert len(lab.world.inputs("snapshot_job")) == 2  # tried again, and not after it was saved


async def test_paused_it_starts_nothing_and_forgets_nothing(lab: Lab) -> None:
    monitor = await lab.watch()
    await monitor.signal("pause", Note(by="ada"))
    await monitor.signal("report_anomaly", samples.anomaly())
    await asyncio.sleep(1)
    status = await lab.status(monitor)
    assert (status.state, status.recoveries) == ("paused", 0)
    await monitor.signal("unpause")
    await lab.until_status(monitor, lambda s: s.job.attempt == samples.attempt(1))


async def test_revoking_the_mode_stops_an_open_recovery(lab: Lab) -> None:
    lab.world.will(
        "confirm_fault", not_yet(), not_yet(), not_yet(), ConfirmResult(verdict="confirmed", summary="!")
    )
    monitor = await lab.watch()
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until(lambda: asyncio.sleep(0, lab.world.called()), bool)
    await monitor.execute_update("set_mode", ModeChange(mode=Mode.OBSERVE, by="ada"))
    await lab.until_status(monitor, lambda s: s.state == "awaiting-approval")
    assert lab.world.mutations == []


async def test_a_change_of_mode_needs_a_name(lab: Lab) -> None:
    monitor = await lab.watch()
    with pytest.raises(WorkflowUpdateFailedError) as failure:
        await monitor.execute_update("set_mode", {"mode": "observe"})
    assert "name" in str(failure.value.cause)
    with pytest.raises(WorkflowUpdateFailedError):
        await monitor.execute_update("set_mode", {"mode": "whatever", "by": "ada"})
    answer = await monitor.execute_update(
        "set_mode", {"mode": "observe", "by": "ada"}, result_type=MonitorStatus
    )
    assert answer.job.mode is Mode.OBSERVE


async def test_unwatched_it_ends_after_the_open_recovery_stepped_back(lab: Lab) -> None:
    monitor = await lab.watch(samples.job(Mode.OBSERVE))
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until_status(monitor, lambda s: s.state == "awaiting-approval")
    await monitor.signal("unwatch", Note(by="ada", reason="not mine"))
    result = await asyncio.wait_for(monitor.result(), 30)
    assert (result.end, result.detail) == (EndReason.UNWATCHED, "ada: not mine")
    assert (await lab.recovery().result()).outcome is Outcome.ABANDONED


async def test_a_terminated_recovery_is_noticed_when_it_is_spoken_to(lab: Lab) -> None:
    monitor = await lab.watch(samples.job(Mode.OBSERVE))
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until_status(monitor, lambda s: s.state == "awaiting-approval")
    await lab.recovery().terminate("by hand")
    await monitor.signal("approve", {"by": "ada"})
    status = await lab.until_status(monitor, lambda s: s.state == "watching")
    assert (status.lost, status.open_recoveries) == (1, ())


async def test_an_abandoned_recovery_is_followed_by_another_if_the_job_fails_again(lab: Lab) -> None:
    lab.world.will(
        "confirm_fault",
        error(ATTEMPT_CHANGED, "attempt 1 runs"),
        ConfirmResult(verdict="confirmed", summary="!"),
    )
    monitor = await lab.watch()
    await monitor.signal("report_anomaly", samples.anomaly("a0"))
    assert (await lab.until(lambda: lab.recovery("a0").result(), bool)).outcome is Outcome.ABANDONED
    await monitor.signal("report_anomaly", samples.anomaly("a1", restart=1))
    status = await lab.until_status(monitor, lambda s: s.job.attempt == samples.attempt(2))
    assert status.recoveries == 2


@pytest.mark.parametrize("name", [
    "report_anomaly", "report_attempt", "recovery_ended", "recovery_news", "approve", "reject", "set_mode",
    "pause", "unpause", "unwatch", "no_such_signal",
])  # fmt: skip
async def test_no_payload_can_wedge_it(lab: Lab, name: str) -> None:
    monitor = await lab.watch()
    for payload in ("text", 7, [1], {"by": [1]}, {"at": "0001-01-01T00:00:00+14:00", "by": [1]}):
        await monitor.signal(name, payload)
    await monitor.signal(name, args=[{"by": [1]}, {"by": "b"}])
    if name != "unwatch":  # which needs no more than its name
        await monitor.signal(name)
    await monitor.signal("report_attempt", samples.report("ended", state="COMPLETED"))
    result = await asyncio.wait_for(monitor.result(), 30)
    assert result.end is EndReason.COMPLETED


async def test_the_end_of_a_recovery_it_does_not_know_changes_nothing(lab: Lab) -> None:
    monitor = await lab.watch()
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until_status(monitor, lambda s: s.job.attempt == samples.attempt(1))
    outcome = await lab.recovery().result()
    await monitor.signal("recovery_ended", RecoveryEnded(outcome=outcome))  # once more
    await monitor.signal(
        "recovery_ended",
        RecoveryEnded(outcome=outcome.model_copy(update={"recovery_id": "x", "outcome": "held"})),
    )
    await asyncio.sleep(0.3)
    status = await lab.status(monitor)
    assert (status.state, status.end, status.recoveries) == ("watching", None, 1)


async def test_reports_of_attempts_can_be_read_back(lab: Lab) -> None:
    monitor = await lab.watch()
    told = samples.report("started", restart=1)
    for _ in range(3):
        await monitor.signal("report_attempt", told)
    await monitor.signal("report_attempt", samples.report("progress", restart=1, step=140))
    status = await lab.until_status(monitor, lambda s: s.progress is not None)
    assert status.progress is not None
    assert status.progress.step == 140
    assert await monitor.query("attempts", result_type=tuple[AttemptReport, ...]) == (told,)
