"""The whole runbook, step by step, on the local scheduler's real processes and the demo's real training."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest
from temporalio.exceptions import ApplicationError

from activities.confirm_fault import confirm_fault
from activities.drain_job import drain_job
from activities.isolate_nodes import isolate_nodes
from activities.locate_checkpoint import locate_checkpoint
from activities.resubmit import resubmit
from activities.snapshot_job import snapshot_job
from activities.verify_resume import verify_resume
from activities.verify_running import verify_running
from activities.wait_nodes_free import wait_nodes_free
from relight.contracts import Cause, Diagnosis, JobInfo, JobState, Progress, Symptom, TrainingJob
from relight.contracts.steps import (
    NOT_YET,
    ConfirmInput,
    DrainInput,
    DrainResult,
    IsolateInput,
    LocateInput,
    LocateResult,
    NodesFreeInput,
    PollInput,
    ResubmitInput,
    VerifyInput,
    VerifyResult,
)
from relight.demo import trainer
from relight.scheduler.local import LocalScheduler
from relight.scheduler.port import SubmitRequest
from tests.activities.conftest import RECOVERY, Runner, Step

G = TypeVar("G")
R = TypeVar("R")


class Training:
    """A real training on the local scheduler, and the steps of a recovery of it."""

    def __init__(self, scheduler: LocalScheduler, directory: Path) -> None:
        self.scheduler, self.dir = scheduler, directory
        self.log = directory / "train.log"
        self.job_id = ""

    def step(self) -> int:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        found = [int(x.split(" iteration ", 1)[1].split("/", 1)[0]) for x in lines if " iteration " in x]
        return found[-1] if found else 0

    async def start(self, *, requeue: bool = True, append: bool = True) -> TrainingJob:
        script = (
            f"#!/bin/bash\nexec {sys.executable} {trainer.__file__} --dir {self.dir} --steps 100000 "
            "--step-time 0.05 --save-every 10\n"
        )
        request = SubmitRequest(
            script=script,
            nodes=2,
            work_dir=str(self.dir),
            std_out="train.log",
            append_output=append,
            requeue=requeue,
            comment="mine",
        )
        self.job_id = await self.scheduler.submit(request)
        await self.until(lambda _: self.step() >= 15)
        info = await self.info()
        return TrainingJob(
            cluster="local",
            run="demo",
            attempt=info.attempt("local"),
            nodes=info.nodes,
            checkpoint_dir=str(self.dir / "checkpoints"),
        )

    async def info(self) -> JobInfo:
        return await self.scheduler.job(self.job_id)

    async def until(self, test: Callable[[JobInfo], object]) -> JobInfo:
        async with asyncio.timeout(60):
            while not test(info := await self.info()):  # noqa: ASYNC110 - in other processes
                await asyncio.sleep(0.05)
        return info

    def fault(self, kind: str) -> None:
        scratch = self.dir / "fault.new"
        scratch.write_text(json.dumps({"kind": kind, "step": self.step() + 1, "rank": 1}))
        scratch.rename(self.dir / "fault.json")

    def diagnosis(self, symptom: Symptom) -> Diagnosis:
        at = datetime.now(UTC)
        return Diagnosis(
            symptom=symptom,
            cause=Cause.UNKNOWN,
            retryable=True,
            occurred_at=at,
            detected_at=at,
            progress=Progress(step=self.step(), at=at, interval=timedelta(seconds=0.05)),
        )


async def poll(run: Runner, step: Step[G, R], given: G) -> R:
    """Tries a step until it answers, as Temporal does."""
    run.details = []
    async with asyncio.timeout(60):
        while True:
            try:
                return await run(step, given)
            except ApplicationError as error:
                if error.type != NOT_YET:
                    raise
            await asyncio.sleep(0.1)


@pytest.fixture
async def train(tmp_path: Path) -> AsyncIterator[Training]:
    directory = tmp_path / "run"
    directory.mkdir()
    scheduler = LocalScheduler(tmp_path / "state", requeue_delay=timedelta(minutes=5))
    training = Training(scheduler, directory)
    yield training
    for info in await scheduler.find_by_comment("mine"):
        await scheduler.cancel(info.job_id)
        training.job_id = info.job_id
        await training.until(lambda info: not info.completing)


@pytest.fixture
def run(train: Training, tmp_path: Path) -> Runner:
    return Runner(train.scheduler, tmp_path / "state")


class Recovered(NamedTuple):
    """What the steps of a recovery answered."""

    drained: DrainResult
    found: LocateResult
    verified: VerifyResult


async def recover(
    run: Runner, train: Training, job: TrainingJob, diagnosis: Diagnosis, excluded: tuple[str, ...] = ()
) -> Recovered:
    """From the confirmed fault to the verdict."""
    drained = await run(
        drain_job,
        DrainInput(job=job, attempt=job.attempt, recovery_id=RECOVERY, reason="test", adopt=bool(excluded)),
    )
    await poll(run, wait_nodes_free, NodesFreeInput(job=job, attempt=drained.attempt, nodes=job.nodes))
    found = await run(locate_checkpoint, LocateInput(job=job))
    started = await run(
        resubmit,
        ResubmitInput(
            job=job,
            attempt=drained.attempt,
            failed_attempt=job.attempt,
            how=drained.how,
            excluded_nodes=excluded,
            recovery_id=RECOVERY,
        ),
    )
    train.job_id = started.attempt.job_id
    assert diagnosis.progress is not None
    verify = VerifyInput(
        job=job,
        attempt=started.attempt,
        excluded_nodes=excluded,
        log_marks=started.log_marks,
        failed_at=diagnosis.progress.step,
        resumable_from=found.step,
    )
    running = await poll(run, verify_running, verify)
    assert not set(running.nodes) & set(excluded)
    verified = await poll(run, verify_resume, verify.model_copy(update={"attempt": running.attempt}))
    info = await train.info()
    assert RECOVERY in info.comment
    assert "mine" in info.comment
    return Recovered(drained, found, verified)


def assert_resumed(recovered: Recovered, diagnosis: Diagnosis) -> None:
    """It went on from the checkpoint that was found, and beyond the step that it failed at."""
    verified, found = recovered.verified, recovered.found
    assert verified.verdict == "resumed"
    assert found.step is not None
    assert verified.first_step == found.step + 1
    assert verified.passed_step is not None
    assert diagnosis.progress is not None
    assert verified.passed_step > diagnosis.progress.step


@pytest.mark.parametrize("append", [True, False])
async def test_a_crash_resumes(run: Runner, train: Training, append: bool) -> None:
    job = await train.start(append=append)
    train.fault("exception")
    await train.until(lambda info: info.state is JobState.FAILED)
    diagnosis = train.diagnosis(Symptom.CRASH)
    confirmed = await run(confirm_fault, ConfirmInput(job=job, diagnosis=diagnosis))
    assert confirmed.verdict == "confirmed"
    recovered = await recover(run, train, job, diagnosis)
    assert recovered.drained.how == "requeue-held"
    assert_resumed(recovered, diagnosis)
    assert (await train.info()).restart_count == 1


async def test_a_hang_resumes(run: Runner, train: Training) -> None:
    job = await train.start()
    train.fault("hang")
    steps = -1
    while train.step() != steps:
        steps = train.step()
        await asyncio.sleep(0.5)
    diagnosis = train.diagnosis(Symptom.HANG)
    confirmed = await poll(run, confirm_fault, ConfirmInput(job=job, diagnosis=diagnosis))
    assert confirmed.verdict == "confirmed"
    assert_resumed(await recover(run, train, job, diagnosis), diagnosis)


async def test_a_training_that_goes_on_is_left_alone(run: Runner, train: Training) -> None:
    job = await train.start()
    given = ConfirmInput(job=job, diagnosis=train.diagnosis(Symptom.CRASH))
    assert (await poll(run, confirm_fault, given)).verdict == "refuted"


async def test_a_lost_node_is_left_out_and_the_schedulers_requeue_adopted(
    run: Runner, train: Training
) -> None:
    job = await train.start()
    lost = job.nodes[-1]
    await train.scheduler.lose_node(lost)
    diagnosis = train.diagnosis(Symptom.CRASH)
    confirmed = await run(confirm_fault, ConfirmInput(job=job, diagnosis=diagnosis))
    assert confirmed.nodes_lost == (lost,)
    isolated = await run(
        isolate_nodes, IsolateInput(job=job, attempt=job.attempt, nodes=(lost,), recovery_id=RECOVERY)
    )
    recovered = await recover(run, train, job, diagnosis, isolated.excluded_nodes)
    assert recovered.drained.how == "adopted"
    assert_resumed(recovered, diagnosis)


async def test_a_job_that_cannot_be_requeued_is_submitted_anew(run: Runner, train: Training) -> None:
    job = await train.start(requeue=False)
    await run(snapshot_job, PollInput(job=job))
    train.fault("exception")
    await train.until(lambda info: info.state is JobState.FAILED)
    diagnosis = train.diagnosis(Symptom.CRASH)
    recovered = await recover(run, train, job, diagnosis)
    assert recovered.drained.how == "resubmit"
    assert_resumed(recovered, diagnosis)
    assert train.job_id != job.attempt.job_id


async def test_a_script_that_ignores_its_checkpoints_is_found_out(run: Runner, train: Training) -> None:
    job = await train.start()
    train.fault("exception")
    await train.until(lambda info: info.state is JobState.FAILED)
    (train.dir / "fault.json").write_text(json.dumps({"kind": "ignore-checkpoints", "step": 1}))
    recovered = await recover(run, train, job, train.diagnosis(Symptom.CRASH))
    assert recovered.verified.verdict == "from_scratch"
    assert recovered.verified.first_step == 1
