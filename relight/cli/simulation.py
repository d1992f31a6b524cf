"""One simulation: a small training job of relight's own, a fault in it, and what relight makes of that.

No job is touched that was not submitted here: one is cancelled only if it runs in the simulation's own
directory.
"""

import asyncio
import contextlib
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from relight.cli.decide import WAITING, whoami
from relight.cli.demo_story import Story
from relight.cli.demo_training import TRAINER, Proof, Training, prove, read_attempts
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.output import complain
from relight.cli.shapes import SimulationView
from relight.cli.simulated_faults import EXPECTED, SimulatedFault, judge, kind_of
from relight.cli.watch import read_job, start_monitor
from relight.cli.watched import (
    list_recoveries,
    monitor_status,
    no_worker,
    recovery_outcome,
    recovery_status,
    worker_polls,
)
from relight.config import Settings
from relight.contracts import JobInfo, Mode, Outcome, RecoveryOutcome, Symptom, TrainingJob
from relight.contracts.ids import monitor_id
from relight.contracts.messages import Note, RecoveryStatus
from relight.scheduler.port import NoSuchJob, Scheduler, SchedulerError

FIRST_STEPS = 30
"""The fault comes after so many steps: late enough for a checkpoint, and for relight to know the rhythm."""
SENSOR_SIGNALS = 2
"""A sensor that follows the job has told of the attempt's start, and of its first step."""
SENSOR_SECONDS = 60.0
STEPS_AFTER_A_PAUSE = 50
TICK = 0.3
CLEAN_UP_SECONDS = 60.0
LAST_WORDS = 600
WHO = "simulate"


@dataclass(frozen=True)
class Wanted:
    """What is to be simulated."""

    fault: SimulatedFault
    mode: Mode
    policy: str
    partition: str
    """Empty: the `local` scheduler's."""
    python: str
    """On the nodes."""
    timeout: float
    """Seconds, for all of it."""


@dataclass
class Course:
    """How far it has come."""

    job_id: str = ""
    job: TrainingJob | None = None
    node: str = ""
    """Where the last rank runs, in which the fault is injected."""
    fault_at: datetime | None = None
    status: RecoveryStatus | None = None
    outcome: RecoveryOutcome | None = None
    proof: Proof | None = None
    doing: str = "the job runs and trains"

    @property
    def monitor(self) -> str:
        """The id of its monitor; empty before there is one."""
        return monitor_id(self.job.attempt) if self.job is not None else ""


class Simulation:
    """Submits, watches, breaks and follows one job.

    Args:
        client: Temporal.
        settings: of this site.
        scheduler: where the job runs.
        directory: for its files; the nodes must see it.
        wanted: what to simulate.
        story: is told what happens.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        scheduler: Scheduler,
        directory: Path,
        wanted: Wanted,
        story: Story,
    ) -> None:
        self._client, self._settings, self._scheduler = client, settings, scheduler
        self._wanted, self._story = wanted, story
        self._training = Training(directory)
        self._course = Course()
        self._told: set[str] = set()

    async def run(self) -> SimulationView:
        """Plays it, and takes away what it made in the cluster.

        Raises:
            CommandError: relight is not there, or the job does not come up.
            SchedulerError: the scheduler refuses the job, or does not answer.
        """
        if not await worker_polls(self._client, self._settings.task_queue):
            raise no_worker(self._settings.task_queue)
        why = ""
        try:
            async with asyncio.timeout(self._wanted.timeout):
                await self._prepare()
                await self._break()
        except TimeoutError:
            why = f"gave up after {self._wanted.timeout:.0f} s, before {self._course.doing}"
            if self._course.fault_at is None:
                raise CommandError(f"{why}. {self._last_words()}") from None
        finally:
            await self._clear()
        return self._view(why)

    async def _prepare(self) -> None:
        course = self._course
        slurm = self._settings.scheduler != "local"
        trainer = TRAINER
        if slurm:  # relight need not be installed on the nodes
            trainer = self._training.dir / TRAINER.name
            shutil.copyfile(TRAINER, trainer)
        request = self._training.request(
            self._settings.scheduler, name="relight-simulate", partition=self._wanted.partition,
            python=self._wanted.python, trainer=trainer,
        )  # fmt: skip
        course.job_id = await self._scheduler.submit(request)
        self._tell(f"job {course.job_id} is submitted, in {self._training.dir}")
        await self._until(lambda: self._steps() >= 1, check_job=True)
        wanted = self._wanted
        course.doing = "a sensor tells of the job"
        job = await read_job(
            self._settings,
            course.job_id,
            checkpoints=self._training.checkpoints,
            policy=wanted.policy or None,
            mode=wanted.mode,
        )
        if job.mode is not wanted.mode:
            raise CommandError(
                "the policy file lets such a job only observe: use --mode observe", ExitCode.REFUSED
            )
        course.node = job.nodes[-1] if job.nodes else ""
        job = job.model_copy(update={"simulated": True})
        course.job = job  # from now on there may be a monitor to end
        await start_monitor(self._client, self._settings, job)
        self._tell(f"watched in {wanted.mode.value} mode, with policy {job.policy.name}")
        await self._hear_sensor()
        course.doing = f"step {FIRST_STEPS}"
        await self._until(lambda: self._steps() >= FIRST_STEPS, check_job=True)

    async def _hear_sensor(self) -> None:
        deadline = time.monotonic() + SENSOR_SECONDS
        while True:
            status = await monitor_status(self._client, self._course.monitor)
            if status is not None and status.signals >= SENSOR_SIGNALS:
                return
            if time.monotonic() > deadline:
                raise CommandError(
                    f"no sensor has told of the job within {SENSOR_SECONDS:.0f} s: start one with `relight "
                    "sensor` (or `relight up`), where it can read the job's log",
                    ExitCode.NOT_READY,
                )
            await asyncio.sleep(TICK)

    async def _break(self) -> None:
        course, fault = self._course, self._wanted.fault
        assert course.job is not None
        kind = kind_of(fault, course.job.policy)
        self._training.order_fault(kind)
        course.doing = "the fault was injected"
        await self._until(lambda: self._training.fault_at() is not None, check_job=False)
        course.fault_at = self._training.fault_at()
        self._tell(f"the fault is injected: {kind}, on {course.node}")
        if EXPECTED[fault].symptom is Symptom.NONE:
            course.doing = "training went on"
            goes_on = self._steps() + STEPS_AFTER_A_PAUSE
            await self._until(lambda: self._steps() >= goes_on, check_job=False)
            await self._look()
            return
        if EXPECTED[fault].symptom is Symptom.HANG:
            floor = course.job.policy.hang_floor.total_seconds()
            self._tell(f"a hang is suspected after {floor:.0f} s at the earliest (hang_floor of the policy)")
        course.doing = "relight had dealt with it"
        while True:
            if await self._look():
                break
            await asyncio.sleep(TICK)
        if course.outcome is not None and course.outcome.outcome is Outcome.RESUMED:
            course.doing = "the training's own log showed it"
            await self._until(lambda: prove(self._training.read()) is not None, check_job=False)

    async def _look(self) -> bool:
        """Looks at the recovery. True: there is nothing more to wait for."""
        course = self._course
        recoveries = await list_recoveries(self._client, course.monitor)
        if not recoveries:
            return False
        latest = recoveries[-1]
        status = await recovery_status(self._client, latest.id)
        if status is not None:
            course.status = status
            self._tell_once(f"recovery {latest.id} is {status.state}")
        if latest.status is not WorkflowExecutionStatus.RUNNING:
            course.outcome = await recovery_outcome(self._client, latest.id)
            again = course.outcome is not None and course.outcome.outcome is Outcome.FAILED_AGAIN
            return not again  # a next recovery follows
        return self._wanted.mode is Mode.OBSERVE and status is not None and status.state == WAITING

    async def _until(self, test: Callable[[], bool], *, check_job: bool) -> None:
        while not test():
            if check_job and (info := await self._own(self._course.job_id)) is not None:
                self._tell_once(f"job {info.job_id} is {info.state.value}{' held' if info.held else ''}")
                if info.state.is_over:
                    raise CommandError(
                        f"job {info.job_id} ended ({info.state.value}) before the fault. {self._last_words()}"
                    )
            await asyncio.sleep(TICK)

    def _steps(self) -> int:
        attempts = read_attempts(self._training.read())
        return (attempts[-1].last or 0) if attempts else 0

    def _last_words(self) -> str:
        words = self._training.read().decode(errors="replace")[-LAST_WORDS:].strip()
        return f"The last words of its log:\n{words}" if words else "It has written nothing"

    # What it leaves

    async def _clear(self) -> None:
        """Ends the watch and the job; whatever cannot be ended is told, and the rest is still done."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLEAN_UP_SECONDS):
                ids = {self._course.job_id} - {""}
                if self._course.job is not None:
                    ids |= await self._unwatch()
                for job_id in sorted(ids):
                    await self._cancel(job_id)
                return
        job = self._course.job_id
        complain(f"the watch or the job {job} has not ended yet: see `relight show {job}`", "warning")

    async def _unwatch(self) -> set[str]:
        """Ends the watch, so that nothing is recovered any more. Returns the ids that the job may have."""
        monitor = self._course.monitor
        try:
            status = await monitor_status(self._client, monitor)
            note = Note(by=whoami(), reason="relight simulate has seen enough")
            await self._client.get_workflow_handle(monitor).signal("unwatch", note)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # else it has ended by itself
                complain(f"{monitor} could not be told that it is over: {error.message}", "warning")
            return set()
        return {status.job.attempt.job_id} if status is not None else set()

    async def _cancel(self, job_id: str) -> None:
        try:
            if await self._own(job_id) is not None:
                await self._scheduler.cancel(job_id)
                while True:
                    if (info := await self._own(job_id)) is None or info.state.is_over:
                        break
                    await asyncio.sleep(TICK)
                self._tell(f"job {job_id} is cancelled")
        except SchedulerError as error:
            complain(f"job {job_id} could not be cancelled: {error}; cancel it yourself", "warning")

    async def _own(self, job_id: str) -> JobInfo | None:
        """The job, if it is one of this simulation: it runs in its directory, which no other job does."""
        try:
            info = await self._scheduler.job(job_id)
        except NoSuchJob:
            return None
        return info if info.work_dir == str(self._training.dir) else None

    # What is told

    def _tell(self, text: str) -> None:
        self._story.tell(text, WHO)

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(text)

    def _view(self, why: str) -> SimulationView:
        course, wanted = self._course, self._wanted
        diagnosis = course.status.diagnosis if course.status is not None else None
        proof = prove(self._training.read())
        wrong = judge(wanted.fault, diagnosis, course.node)
        if not why and not wrong and wanted.mode is Mode.ACT:
            why = _not_recovered(course.outcome, proof)
        return SimulationView(
            ok=not why and not wrong,
            right=not wrong,
            why="; ".join(filter(None, [wrong, why])),
            fault=wanted.fault.value,
            partition=wanted.partition,
            mode=wanted.mode,
            node=course.node,
            job_id=course.job_id,
            monitor_id=course.monitor,
            recovery_id=course.status.recovery_id if course.status is not None else "",
            fault_at=course.fault_at,
            detected_at=diagnosis.detected_at if diagnosis is not None else None,
            symptom=diagnosis.symptom if diagnosis is not None else Symptom.NONE,
            cause=diagnosis.cause.value if diagnosis is not None else "",
            suspects=diagnosis.nodes if diagnosis is not None else (),
            plan=course.status.plan if course.status is not None else None,
            outcome=course.outcome,
            failed_at_step=proof.failed_at if proof else None,
            resumed_at_step=proof.resumed_at if proof else None,
            passed_step=proof.passed if proof else None,
        )


def _not_recovered(outcome: RecoveryOutcome | None, proof: Proof | None) -> str:
    """Why a recovery in act mode is not what it should be; to stop with a reason is as good as to resume."""
    if outcome is None:
        return ""
    if outcome.outcome is Outcome.RESUMED:
        return (
            "" if proof is not None else "relight says resumed, but the training's own log does not show it"
        )
    if outcome.outcome is Outcome.STOPPED:
        return ""
    return f"the recovery ended as {outcome.outcome.value}: {outcome.reason}"
