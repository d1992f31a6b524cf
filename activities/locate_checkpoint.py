"""Finds the newest checkpoint that training can resume from."""

import asyncio
from datetime import timedelta
from pathlib import Path

from temporalio.exceptions import ApplicationError

from activities.common import Context, heartbeats
from activities.logs import owner_of_files
from relight.checkpoints.gate import inspect
from relight.checkpoints.report import CheckpointError, Report, State
from relight.contracts import TrainingJob
from relight.contracts.steps import LocateInput, LocateResult, RejectedCheckpoint

UNREADABLE = "CheckpointsUnreadable"
BUDGET = timedelta(seconds=40)
"""The longest one inspection may take; it says itself what it left out."""
MAX_REJECTED = 10
"""The newest rejected checkpoints are named; a result must stay small."""


async def locate_checkpoint(context: Context, given: LocateInput) -> LocateResult:
    """Inspects the job's checkpoint directory.

    A directory that does not exist yet is one without checkpoints: many jobs make it when they save first.

    Raises:
        ApplicationError: `CheckpointsUnreadable` (tried again) when the directory cannot be looked at.
    """
    del context  # checkpoints are files, whatever the scheduler
    directory = given.job.checkpoint_dir
    if directory is None:
        text = "no checkpoint directory is known; the job decides by itself where it resumes"
        return LocateResult(name=None, empty=True, summary=text)
    if "://" not in directory and not await asyncio.to_thread(Path(directory).exists):
        return LocateResult(name=None, empty=True, summary=f"{directory} does not exist: no checkpoint yet")
    try:
        async with heartbeats():
            report = await asyncio.to_thread(_inspect, given.job, directory)
    except (CheckpointError, OSError) as error:
        raise ApplicationError(f"the checkpoints cannot be looked at: {error}", type=UNREADABLE) from error
    return _result(report)


def _inspect(job: TrainingJob, directory: str) -> Report:
    owner = owner_of_files(job)
    if owner is not None and ("://" in directory or Path(directory).stat().st_uid != owner):
        raise CheckpointError(f"{directory} does not belong to {job.user}, who named it in the job's comment")
    return inspect(directory, layout=job.policy.checkpoint_layout, budget=BUDGET, enough=1)


def _result(report: Report) -> LocateResult:
    rejected = [
        RejectedCheckpoint(name=c.name, step=c.step, state=c.state.value, reason=c.reason)
        for c in report.checkpoints
        if c.state is not State.USABLE
    ]
    return LocateResult(
        name=report.newest_usable,
        step=report.step,
        layout=report.layout,
        rejected=tuple(rejected[:MAX_REJECTED]),
        pointer=report.pointer,
        empty=report.empty,
        summary=report.summary,
    )
