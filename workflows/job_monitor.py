"""`TrainingJobMonitor`: one long-lived workflow for each training job that relight watches."""

import asyncio
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError
from temporalio.workflow import ContinueAsNewVersioningBehavior, ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from relight.contracts import Anomaly, Model
    from relight.contracts.ids import (
        MEMO_JOB,
        MONITOR_WORKFLOW,
        RECOVERY_WORKFLOW,
        recovery_id,
        search_attributes,
    )
    from relight.contracts.messages import (
        AttemptReport,
        Decision,
        EndReason,
        ModeChange,
        MonitorInput,
        MonitorResult,
        MonitorStatus,
        Note,
        RecoveryEnded,
        RecoveryInput,
        RecoveryNews,
        RecoveryRecord,
        UnknownSignal,
    )
    from relight.contracts.outcome import RecoveryOutcome
    from relight.contracts.steps import PollInput, PollResult
    from workflows.attributes import at_start, show
    from workflows.current_details import CurrentDetails
    from workflows.details import clip, happened
    from workflows.memory import Memory
    from workflows.monitor_details import monitor_details
    from workflows.signals import read, tell

LOOK = timedelta(seconds=30)
"""The longest that the monitor's own look at the scheduler may take; the next look comes anyway."""
SNAPSHOT = timedelta(minutes=2)

_MESSAGES: dict[str, type[Model]] = {
    "report_anomaly": Anomaly,
    "report_attempt": AttemptReport,
    "recovery_ended": RecoveryEnded,
    "recovery_news": RecoveryNews,
    "approve": Decision,
    "reject": Decision,
    "set_mode": ModeChange,
    "pause": Note,
    "unpause": Note,
    "unwatch": Note,
}
_KNOWN = tuple(_MESSAGES)


@workflow.defn(name=MONITOR_WORKFLOW)
class TrainingJobMonitor:
    """Watches one training job: takes in what sensors report, starts recoveries, keeps attempts and budgets.

    Signal handlers only put the message into the mail; the run method alone decides, one message at a time.
    """

    @workflow.init
    def __init__(self, start: MonitorInput) -> None:
        self._memory = Memory(start.job, start.state)
        self._details = CurrentDetails()
        self._guard_id = start.guard_id
        self._notify = start.notify
        self._archive = start.archive
        self._mail: deque[tuple[str, Model | None]] = deque()
        self._changed = False
        """An update changed something: it is to be shown and passed on."""
        self._look_task: asyncio.Task[None] | None = None
        self._snapshot_task: asyncio.Task[None] | None = None
        self._alarm: asyncio.Task[None] | None = None
        self._alarm_at: datetime | None = None

    # Signals

    @workflow.signal(description="internal, sent by sensors: something is wrong with this job (Anomaly)")
    def report_anomaly(self, payload: object = None, *_: object) -> None:
        """Records an `Anomaly`."""
        self._post("report_anomaly", payload)

    @workflow.signal(description="internal, sent by the sensor: how an attempt goes (AttemptReport)")
    def report_attempt(self, payload: object = None, *_: object) -> None:
        """Records an `AttemptReport`."""
        self._post("report_attempt", payload)

    @workflow.signal(description="internal, sent by a recovery: it ended (RecoveryEnded)")
    def recovery_ended(self, payload: object = None, *_: object) -> None:
        """Records a `RecoveryEnded`."""
        self._post("recovery_ended", payload)

    @workflow.signal(
        description="internal, sent by a recovery: it began or ended waiting for a person (RecoveryNews)"
    )
    def recovery_news(self, payload: object = None, *_: object) -> None:
        """Records a `RecoveryNews`."""
        self._post("recovery_news", payload)

    @workflow.signal(description="Approve the plan that the open recovery shows (Decision: by, reason)")
    def approve(self, payload: object = None, *_: object) -> None:
        """Records a `Decision`, to be passed on to the open recovery."""
        self._post("approve", payload)

    @workflow.signal(description="Reject the plan that the open recovery shows (Decision: by, reason)")
    def reject(self, payload: object = None, *_: object) -> None:
        """Records a `Decision`, to be passed on to the open recovery."""
        self._post("reject", payload)

    @workflow.signal(description="Change what relight may do by itself (ModeChange: mode, by, reason)")
    def set_mode(self, payload: object = None, *_: object) -> None:
        """Records a `ModeChange`."""
        self._post("set_mode", payload)

    @workflow.signal(
        description="Start no recovery, hold open ones before their next change (Note: by, reason)"
    )
    def pause(self, payload: object = None, *_: object) -> None:
        """Records a `Note`."""
        self._post("pause", payload)

    @workflow.signal(description="Go on after a pause (Note: by, reason)")
    def unpause(self, payload: object = None, *_: object) -> None:
        """Records a `Note`."""
        self._post("unpause", payload)

    @workflow.signal(description="Stop watching this job; open recoveries step back (Note: by, reason)")
    def unwatch(self, payload: object = None, *_: object) -> None:
        """Records a `Note`."""
        self._post("unwatch", payload)

    @workflow.signal(
        dynamic=True, description="No choice: any other name does nothing, and is noted on this page"
    )
    def unknown(self, name: str, _: Sequence[RawValue]) -> None:
        """Records that a signal came that has no handler; its payload is not looked at."""
        self._mail.append(("", UnknownSignal(name=name)))

    def _post(self, name: str, payload: object) -> None:
        self._mail.append((name, read(_MESSAGES[name], payload)))

    # Updates and queries

    @workflow.update(name="set_mode", description="Change what relight may do by itself, and get an answer")
    def change_mode(self, change: ModeChange) -> MonitorStatus:
        """Changes the mode now, for open recoveries too.

        Returns:
            The status with the new mode.
        """
        self._memory.hear_mode(change)
        self._changed = True
        return self._memory.status()

    @change_mode.validator
    def _may_change_mode(self, change: ModeChange) -> None:
        if self._memory.state.end is not None:
            raise ApplicationError(f"the monitor has ended: {self._memory.state.end.value}")
        if not change.by:
            raise ApplicationError("a change of mode needs a name in `by`")

    @workflow.query(description="The job, counters and open recoveries")
    def status(self) -> MonitorStatus:
        """How the job stands."""
        return self._memory.status().model_copy(update={"guard_id": self._guard_id})

    @workflow.query(description="How the latest attempts began and ended")
    def attempts(self) -> tuple[AttemptReport, ...]:
        """The latest reports, oldest first."""
        return self._memory.state.attempts

    @workflow.query(description="Open and ended recoveries")
    def recoveries(self) -> tuple[RecoveryRecord, ...]:
        """Ended ones first, each in the order in which it ended or started."""
        return (*self._memory.state.ended_recoveries, *self._memory.state.active)

    # The life of a monitor

    @workflow.run
    async def run(self, start: MonitorInput) -> MonitorResult:
        """Watches until the job has ended for good.

        Args:
            start: the job, and what an earlier run of this monitor knew.
        """
        memory = self._memory
        if memory.state.next_poll is None and memory.state.end is None:
            memory.poll_at(workflow.now() + memory.job.policy.poll)
        self._save_snapshot()
        while True:
            self._changed = False
            self._read_mail()
            memory.sweep(workflow.now())
            await self._send_forwards()
            if memory.settled(workflow.now()):
                await self._recover()
            self._look_if_due()
            self._show()
            if self._woken():
                continue
            if memory.state.end is not None and not memory.state.active:
                return self._result(memory.state.end)
            if self._may_renew():
                self._renew(start)
            await self._wait()

    async def _wait(self) -> None:
        """Until there is mail, or the next thing is due.

        The alarm is a timer of its own that outlives a wake-up: a new timer for each message would double the
        history of a busy monitor.
        """
        due = self._memory.due()
        if due != self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = None if due is None else asyncio.create_task(self._ring(due))
            self._alarm_at = due
        await workflow.wait_condition(
            lambda: self._woken() or self._alarm_at != self._memory.due() or self._may_renew()
        )

    def _woken(self) -> bool:
        return bool(self._mail or self._memory.forwards or self._changed)

    async def _ring(self, due: datetime) -> None:
        await workflow.sleep(max(due - workflow.now(), timedelta(0)), summary=self._next_thing())
        self._alarm = self._alarm_at = None

    def _next_thing(self) -> str:
        state = self._memory.state
        if state.settle_until is not None and not state.active:
            return "collect what belongs to this fault"
        return "next look at the scheduler"

    def _read_mail(self) -> None:
        self._memory.count_signals(sum(name in _MESSAGES for name, _ in self._mail))
        while self._mail:
            self._hear(*self._mail.popleft())

    def _hear(self, name: str, message: Model | None) -> None:
        memory, now = self._memory, workflow.now()
        match name, message:
            case _, None:
                memory.hear_malformed()
            case _, Anomaly():
                memory.hear_anomaly(message, now)
            case _, AttemptReport():
                memory.hear_attempt(message, now)
            case _, RecoveryEnded():
                before = memory.job.attempt.job_id
                memory.hear_recovery_ended(message.outcome, now)
                if memory.job.attempt.job_id != before:  # the scheduler may forget this one too
                    self._save_snapshot()
            case _, RecoveryNews():
                memory.hear_recovery_news(message)
            case _, ModeChange():
                memory.hear_mode(message)
            case (("approve" | "reject"), Decision()):
                memory.forward_to_all(name, message)
            case (("pause" | "unpause"), Note()):
                memory.hear_pause(name == "pause", message)
            case "unwatch", Note():
                memory.hear_unwatch(message)
            case _, UnknownSignal():
                memory.hear_unknown_signal(message.name, _KNOWN, now)
            case _, PollResult():
                memory.hear_look(message, now)

    async def _send_forwards(self) -> None:
        """Passes messages on to recoveries, in order. One that is gone without a word is lost."""
        memory = self._memory
        while memory.forwards:
            forward = memory.forwards.pop(0)
            if not await tell(forward.recovery_id, forward.signal, forward.message):
                self._read_mail()  # its last word may have come just before
                memory.hear_recovery_lost(forward.recovery_id, workflow.now())

    async def _recover(self) -> None:
        memory, now = self._memory, workflow.now()
        diagnosis, anomalies = memory.diagnose()
        if not memory.needs_recovery(diagnosis):
            memory.set_aside(diagnosis, now)
            return
        job = memory.job
        began = diagnosis.anomaly_ids[0] if diagnosis.anomaly_ids else anomalies[0].anomaly_id
        record = memory.open(recovery_id(job.attempt, began), diagnosis, now)
        try:
            await workflow.start_child_workflow(
                RECOVERY_WORKFLOW,
                RecoveryInput(
                    monitor_id=workflow.info().workflow_id,
                    job=job,
                    diagnosis=diagnosis,
                    anomalies=anomalies,
                    ledger=memory.state.ledger,
                    paused=memory.state.paused,
                    diverged_from=memory.state.diverged_from,
                    readmitted=memory.readmitted(now),
                    guard_id=self._guard_id,
                    notify=self._notify,
                    archive=self._archive,
                ),
                id=record.recovery_id,
                result_type=RecoveryOutcome,
                # The close policy fires when this monitor renews itself, and the recovery must live on.
                parent_close_policy=ParentClosePolicy.ABANDON,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                search_attributes=at_start(search_attributes(job, "confirming", diagnosis.cause)),
                static_details=happened(diagnosis),
                static_summary=clip(
                    f"{diagnosis.symptom.value} ({diagnosis.cause.value}) in {job.attempt.label} of {job.run}"
                ),
            )
        except WorkflowAlreadyStartedError:
            memory.forget(record)

    # Background activities: the run method goes on meanwhile, and the mail brings it what they found

    def _look_if_due(self) -> None:
        memory, now = self._memory, workflow.now()
        if memory.state.next_poll is None or memory.state.next_poll > now:
            return
        memory.poll_at(now + memory.job.policy.poll)
        if _is_over(self._look_task):
            self._look_task = asyncio.create_task(self._look())
        self._save_snapshot()

    async def _look(self) -> None:
        job = self._memory.job
        try:
            found = await workflow.execute_activity(
                "look_at_job",
                PollInput(job=job),
                result_type=PollResult,
                summary=clip(f"Look at job {job.attempt.job_id} in the scheduler"),
                start_to_close_timeout=LOOK,
                schedule_to_close_timeout=LOOK * 2,
                retry_policy=RetryPolicy(maximum_attempts=2),
            )
        except ActivityError as error:
            found = PollResult(known=None, text=f"{error.cause}")
        self._mail.append(("", found))

    def _save_snapshot(self) -> None:
        if not self._memory.state.snapshot_saved and _is_over(self._snapshot_task):
            self._snapshot_task = asyncio.create_task(self._snapshot())

    async def _snapshot(self) -> None:
        """Saves what it takes to submit the job again. After a failure the next look brings the next try."""
        job = self._memory.job
        try:
            await workflow.execute_activity(
                "snapshot_job",
                PollInput(job=job),
                result_type=str,
                summary=clip(f"Save what it takes to submit job {job.attempt.job_id} again"),
                start_to_close_timeout=LOOK,
                schedule_to_close_timeout=SNAPSHOT,
                retry_policy=RetryPolicy(initial_interval=timedelta(seconds=5), maximum_attempts=3),
            )
            self._memory.hear_snapshot_saved()
        except ActivityError as error:
            workflow.logger.warning("the job could not be saved for a later submission: %s", error.cause)

    # What others see

    def _show(self) -> None:
        """Search attributes, memo and details; events are written only for what changed."""
        memory = self._memory
        status = memory.status()
        show(search_attributes(memory.job, status.state))
        shown = memory.job.model_dump(mode="json")
        if workflow.memo_value(MEMO_JOB, default=None) != shown:
            workflow.upsert_memo({MEMO_JOB: shown})
        self._details.show(monitor_details(status, workflow.info().namespace))

    # Ends

    def _may_renew(self) -> bool:
        """A renewal is due, and nothing that a renewal would lose is under way."""
        info = workflow.info()
        return (
            (info.is_continue_as_new_suggested() or info.is_target_worker_deployment_version_changed())
            and _is_over(self._look_task)
            and _is_over(self._snapshot_task)
            and workflow.all_handlers_finished()
        )

    def _renew(self, start: MonitorInput) -> None:
        memory = self._memory
        state = memory.state.model_copy(update={"renewals": memory.state.renewals + 1})
        workflow.continue_as_new(
            start.model_copy(update={"job": memory.job, "state": state}),
            initial_versioning_behavior=ContinueAsNewVersioningBehavior.AUTO_UPGRADE
            if workflow.info().is_target_worker_deployment_version_changed()
            else None,
        )

    def _result(self, end: EndReason) -> MonitorResult:
        state = self._memory.state
        return MonitorResult(
            end=end,
            detail=state.end_detail,
            recoveries=state.recoveries,
            signals=state.signals,
            duplicates=state.duplicates,
            missed=state.missed,
        )


def _is_over(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()
