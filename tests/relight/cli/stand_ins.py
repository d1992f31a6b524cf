"""Small workflows under relight's names, in the states that the command has to deal with.

The real ones have tests of their own, and meet the command in the integration tests.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from temporalio import workflow
from temporalio.client import Client
from temporalio.common import TypedSearchAttributes
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from relight.contracts import (
    Action,
    Attempt,
    Cause,
    Diagnosis,
    Evidence,
    Mode,
    Outcome,
    Plan,
    PlanStep,
    Progress,
    RecoveryOutcome,
    Source,
    Suspect,
    Symptom,
    Timeline,
    TrainingJob,
)
from relight.contracts.ids import (
    JOB_ID,
    MEMO_JOB,
    MONITOR_WORKFLOW,
    RECOVERY_WORKFLOW,
    STATE,
    recovery_id,
    search_attributes,
)
from relight.contracts.messages import (
    Decision,
    DecisionResult,
    EndReason,
    ModeChange,
    MonitorInput,
    MonitorResult,
    MonitorStatus,
    Note,
    RecoveryInput,
    RecoveryStatus,
)

T0 = datetime(2026, 12, 2, 3, 0, 0, tzinfo=UTC)
HOSTILE = "RuntimeError: [bold]boom[/bold] [/] `x`"
"""Log text that would be markup if it were not escaped."""
HANGS = "it may hang"
"""The reason of a decision that makes the stand-in's recovery one of a hang at the monitor's last step."""
PLAN = Plan(
    action=Action.RESTART_EXCLUDE_NODE,
    steps=(
        PlanStep(name="isolate_nodes", does="keep the job off node02", mutates=True),
        PlanStep(name="verify_resume", does="wait until training passes step 120"),
    ),
    excluded_nodes=("node02",),
    needs_approval_because=("observe mode: relight changes nothing by itself",),
    because="a GPU of node02 is broken",
)


def a_job(job_id: str, cluster: str = "here", mode: Mode = Mode.OBSERVE) -> TrainingJob:
    attempt = Attempt(cluster=cluster, job_id=job_id, submit_time=T0, restart_count=0)
    return TrainingJob(
        cluster=cluster, run="llm-7b", attempt=attempt, user="anna", nodes=("node01", "node02"), mode=mode
    )


def a_diagnosis(job: TrainingJob) -> Diagnosis:
    log = job.log_paths[0] if job.log_paths else "train.log"
    return Diagnosis(
        symptom=Symptom.CRASH,
        cause=Cause.GPU_MEMORY_ECC,
        retryable=True,
        suspects=(Suspect(node="node02"),),
        evidence=(
            Evidence(source=Source.JOB_LOG, observed_at=T0, text=HOSTILE, node="node02", where=f"{log}:77"),
        ),
        explanation="a rank failed first",
        occurred_at=T0,
        detected_at=T0 + timedelta(seconds=1),
        progress=Progress(step=120, at=T0),
    )


@workflow.defn(name=MONITOR_WORKFLOW)
class StandInMonitor:
    """Starts one recovery when told to."""

    @workflow.init
    def __init__(self, start: MonitorInput) -> None:
        self.job = start.job
        self.ended = False
        self.wanted = False
        self.signals = 0
        self.open: list[str] = []
        self.begun = 0

    @workflow.signal
    def recover(self) -> None:
        self.wanted = True

    @workflow.signal
    def unwatch(self, note: Note) -> None:
        self.ended = True

    @workflow.signal
    def resubmitted(self, job_id: str) -> None:
        attempt = self.job.attempt.model_copy(update={"job_id": job_id})
        self.job = self.job.model_copy(update={"attempt": attempt})
        workflow.upsert_memo({MEMO_JOB: self.job.model_dump(mode="json")})
        workflow.upsert_search_attributes([JOB_ID.value_set(job_id)])

    @workflow.signal
    def sensor_speaks(self) -> None:
        self.signals += 1

    @workflow.update(name="set_mode")
    def change_mode(self, change: ModeChange) -> MonitorStatus:
        self.job = self.job.model_copy(update={"mode": change.mode})
        workflow.upsert_memo({MEMO_JOB: self.job.model_dump(mode="json")})
        return self.status()

    @change_mode.validator
    def _may(self, change: ModeChange) -> None:
        if change.by == "mallory":
            raise ApplicationError("mallory may not")

    @workflow.query
    def status(self) -> MonitorStatus:
        return MonitorStatus(
            job=self.job,
            state="recovering" if self.open else "watching",
            progress=Progress(step=121, at=T0, interval=timedelta(seconds=2)),
            open_recoveries=tuple(self.open),
            signals=self.signals,
            recoveries=self.begun,
        )

    @workflow.run
    async def run(self, start: MonitorInput) -> MonitorResult:
        await workflow.wait_condition(lambda: self.wanted or self.ended)
        if self.wanted:
            recovery = recovery_id(self.job.attempt, "anomaly1")
            self.open.append(recovery)
            self.begun += 1
            await workflow.execute_child_workflow(
                RECOVERY_WORKFLOW,
                RecoveryInput(
                    monitor_id=workflow.info().workflow_id, job=self.job, diagnosis=a_diagnosis(self.job)
                ),
                id=recovery,
                result_type=RecoveryOutcome,
                search_attributes=TypedSearchAttributes(search_attributes(self.job, "confirming")),
            )
            self.open.clear()
            await workflow.wait_condition(lambda: self.ended)
        return MonitorResult(end=EndReason.UNWATCHED)


@workflow.defn(name=RECOVERY_WORKFLOW)
class StandInRecovery:
    """Waits for a decision on its plan."""

    @workflow.init
    def __init__(self, start: RecoveryInput) -> None:
        self.start = start
        self.decision: Decision | None = None

    @workflow.update
    def decide(self, decision: Decision) -> DecisionResult:
        self.decision = decision
        word = "approved" if decision.approved else "rejected"
        return DecisionResult(accepted=True, message=f"plan {decision.plan_digest} {word} by {decision.by}")

    @decide.validator
    def _may(self, decision: Decision) -> None:
        if decision.by == "mallory":
            raise ApplicationError("mallory may not")
        if self.decision is not None:
            raise ApplicationError(f"already decided by {self.decision.by}")

    @workflow.query
    def status(self) -> RecoveryStatus:
        return RecoveryStatus(
            recovery_id=workflow.info().workflow_id,
            state="awaiting-approval" if self.decision is None else "draining",
            diagnosis=self.start.diagnosis,
            plan=PLAN,
            plan_digest=PLAN.digest,
            approval_deadline=T0 + timedelta(days=365),
            last_decision=f"plan {PLAN.digest} was approved by {self.decision.by}" if self.decision else "",
            log=("confirmed: the scheduler says FAILED",),
        )

    @workflow.run
    async def run(self, start: RecoveryInput) -> RecoveryOutcome:
        await workflow.wait_condition(lambda: self.decision is not None)
        assert self.decision is not None
        outcome = Outcome.RESUMED if self.decision.approved else Outcome.REJECTED
        workflow.upsert_search_attributes([STATE.value_set(outcome.value)])
        return RecoveryOutcome(
            recovery_id=workflow.info().workflow_id,
            outcome=outcome,
            reason=self.decision.reason,
            symptom=Symptom.HANG if self.decision.reason == HANGS else Symptom.CRASH,
            cause=Cause.GPU_MEMORY_ECC,
            attempt=start.job.attempt,
            approved_by=self.decision.by,
            times=Timeline(
                occurred=T0, detected=T0 + timedelta(seconds=1), productive=T0 + timedelta(seconds=9)
            ),
            lost_from_step=121 if self.decision.reason == HANGS else 120,
            resumed_at_step=100,
        )


@contextmanager
def serving(address: str, task_queue: str) -> Iterator[None]:
    """A worker with the stand-ins, in a thread of its own."""
    started, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        client = await Client.connect(address, data_converter=pydantic_data_converter)
        async with Worker(
            client,
            task_queue=task_queue,
            workflows=[StandInMonitor, StandInRecovery],
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            started.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(30), "the worker did not start"
        yield
    finally:
        stop.set()
        thread.join(30)
