"""The steps on a real Slurm cluster: what only Slurm does."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from activities.confirm_fault import confirm_fault
from activities.drain_job import drain_job
from activities.hold_job import hold_job
from activities.resubmit import resubmit
from activities.snapshot_job import snapshot_job
from activities.verify_resume import verify_resume
from activities.verify_running import verify_running
from activities.wait_nodes_free import wait_nodes_free
from relight.contracts import Cause, Diagnosis, Progress, Symptom, TrainingJob
from relight.contracts.steps import (
    ATTEMPT_CHANGED,
    NOT_YET,
    ConfirmInput,
    DrainInput,
    DrainResult,
    HoldInput,
    NodesFreeInput,
    PollInput,
    ResubmitInput,
    ResubmitResult,
    VerifyInput,
    VerifyResult,
)
from relight.scheduler.slurm_cli import SlurmCliScheduler
from relight.scheduler.slurm_run import SlurmCommands
from tests.activities.conftest import Runner
from tests.activities.test_runbook_local import poll
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]

SCRIPT = """#!/bin/bash
# Trains to step 20 and stops, in the way that is asked for; a later attempt goes on from 10 for ever.
first=1; [ -e resumable ] && first=11
touch resumable
last=20; [ $first = 11 ] && last=100000
for step in $(seq $first $last); do
    echo "[2026-12-02 05:00:00] iteration $step/ 100000 | elapsed time per iteration (ms): 9 | lm loss: 1.2 |"
    sleep 0.1
done
"""
CRASHES = SCRIPT + "exit 3\n"
HANGS = SCRIPT + "trap 'sleep 3; exit' TERM\nsleep 1000 &\nwait\n"


@pytest.fixture
def run(slurm_cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runner]:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, slurm_cluster.env[name])
    yield Runner(SlurmCliScheduler(SlurmCommands()), tmp_path / "state")
    slurm_cluster.run("scancel", "--user", "root")


async def start(
    run: Runner, cluster: SlurmCluster, tmp_path: Path, script: str, *options: str
) -> TrainingJob:
    """The job, once it has trained to step 20."""
    log = tmp_path / "train.log"
    job_id = cluster.sbatch(
        script,
        "-N2",
        "-o",
        str(log),
        "--open-mode=append",
        "--chdir",
        str(tmp_path),
        "--comment=mine",
        *options,
    )
    async with asyncio.timeout(60):
        while not log.exists() or "iteration 20/" not in log.read_text():  # noqa: ASYNC110 - Slurm's doing
            await asyncio.sleep(0.1)
    info = await run.context.scheduler.job(job_id)
    return TrainingJob(cluster="lab", run="r", attempt=info.attempt("lab"), nodes=info.nodes)


def fault(symptom: Symptom) -> Diagnosis:
    at = datetime.now(UTC)
    progress = Progress(step=20, at=at, interval=timedelta(seconds=0.1))
    return Diagnosis(
        symptom=symptom,
        cause=Cause.UNKNOWN,
        retryable=True,
        occurred_at=at,
        detected_at=at,
        progress=progress,
    )


def recovery(job: TrainingJob) -> str:
    """The tests share one cluster, so each needs an id of its own."""
    return f"recover:lab:{job.attempt.job_id}:0:abcd"


async def drain(run: Runner, job: TrainingJob, tries: int = 0) -> DrainResult:
    given = DrainInput(job=job, attempt=job.attempt, recovery_id=recovery(job), reason="test", tries=tries)
    return await run(drain_job, given)


async def restart(
    run: Runner, job: TrainingJob, drained: DrainResult, excluded: tuple[str, ...] = ()
) -> tuple[ResubmitResult, VerifyResult]:
    given = ResubmitInput(
        job=job,
        attempt=drained.attempt,
        failed_attempt=job.attempt,
        how=drained.how,
        excluded_nodes=excluded,
        recovery_id=recovery(job),
    )
    started = await run(resubmit, given)
    again = await run(resubmit, given.model_copy(update={"tries": 1}))
    assert again.attempt == started.attempt
    assert again.log_marks == started.log_marks
    verify = VerifyInput(
        job=job,
        attempt=started.attempt,
        excluded_nodes=excluded,
        log_marks=started.log_marks,
        failed_at=20,
        resumable_from=10,
    )
    running = await poll(run, verify_running, verify)
    assert not set(running.nodes) & set(excluded)
    return started, await poll(run, verify_resume, verify)


async def test_a_crash(run: Runner, slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    job = await start(run, slurm_cluster, tmp_path, CRASHES)
    confirmed = await poll(run, confirm_fault, ConfirmInput(job=job, diagnosis=fault(Symptom.CRASH)))
    assert (confirmed.verdict, confirmed.job_info is not None) == ("confirmed", True)
    drained = await drain(run, job)
    assert drained.how == "requeue-held"
    assert (await drain(run, job, tries=1)).how == "already requeue-held"
    await poll(run, wait_nodes_free, NodesFreeInput(job=job, attempt=drained.attempt, nodes=job.nodes))
    started, verified = await restart(run, job, drained, excluded=job.nodes[:1])
    assert (verified.verdict, verified.first_step) == ("resumed", 11)
    assert started.attempt.restart_count == 1
    assert (await run.context.scheduler.job(job.attempt.job_id)).comment.startswith("mine relight-recovery=")


async def test_a_hang_that_is_slow_to_end(run: Runner, slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    """While it completes, Slurm shows the new restart count with the old submit time."""
    job = await start(run, slurm_cluster, tmp_path, HANGS)
    await asyncio.sleep(1.1)  # submit times have whole seconds
    confirmed = await poll(run, confirm_fault, ConfirmInput(job=job, diagnosis=fault(Symptom.HANG)))
    assert confirmed.verdict == "confirmed"
    drained = await drain(run, job)
    assert drained.how == "requeue-held"
    assert (await drain(run, job, tries=1)).how == "already requeue-held"
    free = NodesFreeInput(job=job, attempt=drained.attempt, nodes=job.nodes)
    assert "completes" in await run.fails(wait_nodes_free, free, NOT_YET)
    await poll(run, wait_nodes_free, free)
    started, verified = await restart(run, job, drained)
    assert (verified.verdict, verified.first_step) == ("resumed", 11)
    assert started.attempt.submit_time > job.attempt.submit_time


async def test_not_requeueable_and_forgotten(
    run: Runner, slurm_cluster: SlurmCluster, tmp_path: Path
) -> None:
    job = await start(run, slurm_cluster, tmp_path, HANGS, "--no-requeue")
    await run(snapshot_job, PollInput(job=job))
    drained = await drain(run, job)
    assert drained.how == "resubmit"
    assert (await drain(run, job, tries=1)).how == "resubmit"
    await poll(run, wait_nodes_free, NodesFreeInput(job=job, attempt=drained.attempt, nodes=job.nodes))
    started, verified = await restart(run, job, drained)
    assert (verified.verdict, verified.first_step) == ("resumed", 11)
    assert started.attempt.job_id != job.attempt.job_id


async def test_the_user_was_faster(run: Runner, slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    job = await start(run, slurm_cluster, tmp_path, HANGS)
    slurm_cluster.run("scontrol", "requeuehold", job.attempt.job_id)
    changed = len(slurm_cluster.mutations())
    given = DrainInput(job=job, attempt=job.attempt, recovery_id=recovery(job), reason="test")
    await run.fails(drain_job, given, ATTEMPT_CHANGED)
    diagnosed = ConfirmInput(job=job, diagnosis=fault(Symptom.HANG))
    await run.fails(confirm_fault, diagnosed, ATTEMPT_CHANGED)
    slurm_cluster.run("scancel", job.attempt.job_id)
    await run.fails(drain_job, given, ATTEMPT_CHANGED)
    assert [m for m in slurm_cluster.mutations()[changed:] if "kill" not in m.lower()] == []


async def test_left_held_with_a_reason(run: Runner, slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    job = await start(run, slurm_cluster, tmp_path, CRASHES)
    slurm_cluster.wait_job(job.attempt.job_id, "FAILED")
    drained = await drain(run, job)
    given = HoldInput(job=job, attempt=drained.attempt, recovery_id=recovery(job), reason="no checkpoint")
    await run(hold_job, given)
    await run(hold_job, given)
    info = await run.context.scheduler.job(job.attempt.job_id)
    assert info.held
    assert 'relight-held="no checkpoint"' in info.comment
