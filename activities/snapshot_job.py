"""Saves what it takes to submit a job again, for the day that the scheduler has forgotten it.

A job's script may hold secrets: it is kept in a file of the worker's own (mode 0600), and never travels in a
workflow's history. Several workers share these files if they share the state directory.
"""

import asyncio
from pathlib import Path

from pydantic import ValidationError

from activities import store
from activities.common import Context, attempt_changed, heartbeats, in_words, relate, scheduler_errors
from relight.config import Settings
from relight.contracts import Attempt
from relight.contracts.steps import PollInput
from relight.policy.attempts import Relation
from relight.scheduler.port import SubmitRequest


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
    await asyncio.to_thread(store.write, path, request.model_dump_json(indent=1))
    return f"saved how to submit job {job.attempt.job_id} again ({len(request.script)} characters of script)"


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
