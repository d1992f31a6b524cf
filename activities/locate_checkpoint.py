"""Finds the newest checkpoint to resume from, and the one that the job would load by itself."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

from temporalio.exceptions import ApplicationError

from activities.common import Context, heartbeats
from activities.logs import owner_of_files
from relight.checkpoints.gate import inspect
from relight.checkpoints.own_choice import OwnChoice, own_choice, problem, usable
from relight.checkpoints.report import CheckpointError, Report
from relight.contracts import TrainingJob
from relight.contracts.outcome import CheckpointRef
from relight.contracts.policy import Steer
from relight.contracts.steps import LocateInput, LocateResult, RejectedCheckpoint
from relight.policy.steering import cannot_pass, pointer_file

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
            report = await asyncio.to_thread(look, given.job, directory, given.diverged_from)
    except (CheckpointError, OSError) as error:
        raise ApplicationError(f"the checkpoints cannot be looked at: {error}", type=UNREADABLE) from error
    return _result(report, given)


def look(
    job: TrainingJob, directory: str, diverged_from: CheckpointRef | None, budget: timedelta = BUDGET
) -> Report:
    """Inspects the directory, if it may be read for this job.

    Raises:
        CheckpointError, OSError: it may not, or cannot.
    """
    owner = owner_of_files(job)
    if owner is not None and ("://" in directory or Path(directory).stat().st_uid != owner):
        raise CheckpointError(f"{directory} does not belong to {job.user}, who named it in the job's comment")
    return inspect(
        directory, layout=job.policy.checkpoint_layout, budget=budget, enough=1, before=diverged_from
    )


def _result(report: Report, given: LocateInput) -> LocateResult:
    problems = [(c, problem(c, given.diverged_from)) for c in report.checkpoints]
    rejected = [
        RejectedCheckpoint(name=c.name, step=c.step, state=c.state.value, reason=c.reason or why)
        for c, why in problems
        if why
    ]
    best = usable(report, given.diverged_from)
    own = own_choice(report, best, given.diverged_from) if best is not None else None
    summary = report.summary
    if (best.name if best else None) != report.newest_usable:
        found = f"{best.name} is the newest usable checkpoint" if best else "no checkpoint can be used"
        summary = f"{found}; rejected: {rejected[0].name}: {rejected[0].reason}"
    return LocateResult(
        name=best.name if best else None,
        step=best.step if best else None,
        layout=report.layout,
        rejected=tuple(rejected[:MAX_REJECTED]),
        pointer=report.pointer,
        empty=report.empty,
        summary=summary,
        own=own.name if own else None,
        own_problem=own.problem if own else "",
        cannot_steer=_cannot_steer(given.job, report, own) if own else "",
    )


def _cannot_steer(job: TrainingJob, report: Report, own: OwnChoice) -> str:
    """Why the job cannot be led in the way of its policy; empty when it can, or shall not."""
    directory, way = job.checkpoint_dir or "", job.policy.steer
    if way is Steer.LEAVE:
        return ""
    if way is Steer.ENVIRONMENT:
        return cannot_pass(job)
    if "://" in directory:
        return "the checkpoints are not in a file system, where relight can lead it"
    file = pointer_file(report.layout, report.pointer)
    if way is Steer.POINTER and not file:
        return f"the layout {report.layout} has no pointer file that relight knows to set"
    if way is Steer.MOVE_ASIDE and report.pointer == own.name and not file:
        return f"a pointer names {own.name}, and in the layout {report.layout} relight cannot set it"
    if file and Path(directory, file).is_symlink():
        return f"{file} is a link, and relight only sets files"
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"relight's worker may not write in {directory}"
    return ""
