"""Saves what it takes to submit a job again, for the day that the scheduler has forgotten it.

A job's script may hold secrets: it is kept in a file of the worker's own (mode 0600), and never travels in a
workflow's history. Several workers share these files if they share the state directory.
"""

import asyncio
from pathlib import Path

from pydantic import ValidationError

from activities.common import (
    Context,
    attempt_changed,
    heartbeats,
    in_words,
    refused,
    relate,
    scheduler_errors,
)
from relight.config import Settings
from relight.contracts import Attempt
from relight.contracts.steps import PollInput
from relight.files import write_whole
from relight.policy.attempts import Relation
from relight.scheduler.port import SchedulerError, SubmitRequest


async def snapshot_job(context: Context, given: PollInput) -> str:
    """Saves the job's script, shape, output files and comment; saving again replaces the earlier copy.

    Raises:
        ApplicationError: `AttemptChanged` if the id now belongs to another job; `Refused` if the scheduler
            does not give the script.
    """
    job = given.job
    async with heartbeats():
        with scheduler_errors():
            info = await context.scheduler.job(job.attempt.job_id)
            if relate(info, job.attempt) in (Relation.OTHER, Relation.OLDER):
                raise attempt_changed(
                    f"job id {job.attempt.job_id} now belongs to another job ({in_words(info)})"
                )
            request = await context.scheduler.submit_template(job.attempt.job_id)
    path = _path(context.settings, info.attempt(job.attempt.cluster))
    await asyncio.to_thread(write_whole, path, request.model_dump_json(indent=1))
    return f"saved how to submit job {job.attempt.job_id} again ({len(request.script)} characters of script)"


async def how_to_submit(context: Context, attempt: Attempt) -> SubmitRequest:
    """What it takes to submit this job anew: the saved copy, or else what the scheduler still tells.

    Raises:
        ApplicationError: `Refused` if neither is to be had, or for a part of a job: only the whole array or
            heterogeneous job could be submitted, next to parts that may be running.
    """
    if not attempt.job_id.isdecimal():
        raise refused(
            f"job {attempt.job_id} is a part of a larger job (an array, or a heterogeneous job): it can be "
            "requeued, but not be submitted anew by itself; submit it by hand"
        )
    request = await asyncio.to_thread(load_snapshot, context.settings, attempt)
    if request is not None:
        return request
    try:
        return await context.scheduler.submit_template(attempt.job_id)
    except SchedulerError as error:
        if error.retryable:
            raise
        raise refused(
            f"how job {attempt.job_id} was submitted is not known: its script was not saved under "
            f"{context.settings.state_dir}, and the scheduler does not give it ({error}); submit it by hand"
        ) from error


def load_snapshot(settings: Settings, attempt: Attempt) -> SubmitRequest | None:
    """The newest copy of this job that is not younger than the attempt; None where none can be read."""
    newest: tuple[int, Path] | None = None
    for path in _directory(settings, attempt).glob(f"{attempt.job_id}-*.json"):
        epoch = path.stem.rpartition("-")[2]
        if epoch.isdecimal() and int(epoch) <= attempt.submit_time.timestamp():
            newest = max(newest or (0, path), (int(epoch), path))
    if newest is None:
        return None
    try:
        return SubmitRequest.model_validate_json(newest[1].read_text("utf-8"))
    except (OSError, ValidationError):
        return None


def _directory(settings: Settings, attempt: Attempt) -> Path:
    return settings.state_dir / "jobs" / attempt.cluster


def _path(settings: Settings, attempt: Attempt) -> Path:
    return _directory(settings, attempt) / f"{attempt.job_id}-{int(attempt.submit_time.timestamp())}.json"
