"""Lets the job start again: the held attempt with its exclusions, or the same script submitted anew."""

import asyncio
from pathlib import Path

import structlog
from pydantic import TypeAdapter, ValidationError

from activities import logs, store
from activities.common import (
    ENDED_BY_OTHERS,
    Context,
    attempt_changed,
    heartbeats,
    in_words,
    now,
    read_job,
    relate,
    scheduler_errors,
)
from activities.drain_job import mark
from activities.snapshot_job import how_to_submit
from activities.tag import tagged
from relight.contracts import JobInfo, JobState
from relight.contracts.steps import LogMark, ResubmitInput, ResubmitResult
from relight.files import write_whole
from relight.policy.attempts import Relation
from relight.policy.exclusions import newly, next_list
from relight.policy.holds import hold_deadline
from relight.scheduler.port import InvalidRequest, NoSuchJob, SchedulerUnreachable

log = structlog.get_logger("activities")

_MARKS = TypeAdapter(tuple[LogMark, ...])


async def resubmit(context: Context, given: ResubmitInput) -> ResubmitResult:
    """Marks how far the logs are written, then releases the held job or submits it anew.

    Run again after a lost answer, it finds the released or submitted job and does nothing more; the log marks
    of the first try are kept in the state directory, since the job may have written since.

    Raises:
        ApplicationError: `AttemptChanged` when somebody else moved the job; `SchedulerUnreachable` when it is
            not known whether the scheduler acted; `Refused`.
    """
    async with heartbeats():
        with scheduler_errors():
            if given.how == "resubmit":
                return await _submit(context, given)
            if given.environment:
                return await _replace(context, given)
            return await _release(context, given)


async def _release(context: Context, given: ResubmitInput) -> ResubmitResult:
    info = await read_job(context.scheduler, given.attempt.job_id)
    if relate(info, given.attempt) is not Relation.SAME:
        raise _changed(given, info)
    marks = await _marks(context, given, info)
    if not (info.held and info.state in (JobState.PENDING, JobState.COMPLETING)):
        if given.tries == 0:
            raise _changed(given, info)
        # Once released by an earlier try, it waits, runs, or has ended already: `verify_running` tells.
        return _result(given, info, marks, f"an earlier try released job {info.job_id}")

    lost = await _lost_nodes(context, given)
    listed = info.excluded_nodes
    excluded = next_list(listed, given.readmitted, (*given.excluded_nodes, *lost))
    if set(excluded) != set(listed):
        try:
            await context.scheduler.exclude_nodes(info.job_id, excluded)
        except InvalidRequest as error:  # not pending any more, or a refusal for another reason
            seen = await read_job(context.scheduler, info.job_id)
            if not seen.held or relate(seen, given.attempt) is not Relation.SAME:
                raise _changed(given, seen) from error
            raise
    if given.recovery_id in info.comment:
        await mark(context, info, given.recovery_id)  # no longer "held": the mark alone stays
    try:
        await context.scheduler.release(info.job_id)
    except SchedulerUnreachable:
        seen = await read_job(context.scheduler, info.job_id)
        if seen.held or relate(seen, given.attempt) is not Relation.SAME:
            raise
    accepted = now()
    info = await read_job(context.scheduler, info.job_id)
    text = f"job {info.job_id} is released{_without(excluded, lost)}"
    found = {"accepted_at": accepted, "added": newly(excluded, listed)}
    return _result(given, info, marks, text).model_copy(update=found)


async def _submit(context: Context, given: ResubmitInput) -> ResubmitResult:
    old_id = given.failed_attempt.job_id
    try:
        old = await read_job(context.scheduler, old_id)
    except NoSuchJob:
        old = None
    if old is not None:
        if relate(old, given.failed_attempt) is not Relation.SAME:
            raise _changed(given, old)
        if old.state in ENDED_BY_OTHERS and given.recovery_id not in old.comment:
            raise attempt_changed(f"job {old_id} {ENDED_BY_OTHERS[old.state]}: it is not submitted anew")
        if not old.state.is_over:
            raise attempt_changed(
                f"job {old_id} has not ended ({in_words(old)}): it cannot be submitted anew"
            )
    marks = await _marks(context, given, old)
    if found := await _find_submitted(context, given):
        return _result(given, found, marks, f"an earlier try submitted job {found.job_id}")
    info, without = await _submit_anew(context, given)
    accepted = now()
    text = f"job {old_id} is submitted anew as job {info.job_id}{without}"
    return _result(given, info, marks, text).model_copy(update={"accepted_at": accepted})


async def _replace(context: Context, given: ResubmitInput) -> ResubmitResult:
    """Submits the held job anew, with variables that the held one cannot get any more, and cancels that one.

    The new job is held until the old one is gone: whatever fails or is lost in between, the two never run at
    the same time, and one of them is in the queue.
    """
    try:
        old = await read_job(context.scheduler, given.attempt.job_id)
    except NoSuchJob:
        if given.tries == 0:
            raise
        old = None  # an earlier try cancelled it, and the scheduler has forgotten it since
    if old is not None and relate(old, given.attempt) is not Relation.SAME:
        raise _changed(given, old)
    marks = await _marks(context, given, old)
    new, without = await _find_submitted(context, given), ""
    if old is not None and not old.state.is_over:
        if not (old.held and old.state in (JobState.PENDING, JobState.COMPLETING)):
            if new is not None and new.held:
                await context.scheduler.cancel(new.job_id)
            raise _changed(given, old)
        if new is None:
            new, without = await _submit_anew(context, given, hold=True)
        await context.scheduler.cancel(old.job_id)
    elif new is None:
        raise attempt_changed(f"job {given.attempt.job_id} was cancelled by somebody else")
    if new.held:
        await mark(context, new, given.recovery_id)
        await context.scheduler.release(new.job_id)
    accepted = now()
    new = await read_job(context.scheduler, new.job_id)
    told = ", ".join(f"{name}={value}" for name, value in given.environment.items())
    text = f"job {given.attempt.job_id} is submitted anew as job {new.job_id} with {told}{without}"
    return _result(given, new, marks, text).model_copy(update={"accepted_at": accepted})


async def _submit_anew(context: Context, given: ResubmitInput, *, hold: bool = False) -> tuple[JobInfo, str]:
    """Submits the job's script again, with this recovery's mark; and says which nodes it keeps off."""
    request = await how_to_submit(context, given.failed_attempt)
    lost = await _lost_nodes(context, given)
    excluded = next_list(request.excluded_nodes, given.readmitted, (*given.excluded_nodes, *lost))
    why = f"starts in place of job {given.failed_attempt.job_id} once that is cancelled" if hold else ""
    request = request.model_copy(
        update={
            "excluded_nodes": excluded,
            "comment": tagged(
                request.comment, given.recovery_id, why, hold_deadline(given.job.policy, now())
            ),
            "environment": {**request.environment, **given.environment},
            "hold": hold,
        }
    )
    try:
        job_id = await context.scheduler.submit(request)
        info = await read_job(context.scheduler, job_id)
    except SchedulerUnreachable:
        found = await _find_submitted(context, given)
        if found is None:
            raise
        info = found
    return info, _without(excluded, lost)


async def _find_submitted(context: Context, given: ResubmitInput) -> JobInfo | None:
    """The job that this recovery submitted, known by the mark in its comment."""
    found = await context.scheduler.find_by_comment(given.recovery_id)
    return next((info for info in found if info.job_id != given.failed_attempt.job_id), None)


async def _lost_nodes(context: Context, given: ResubmitInput) -> tuple[str, ...]:
    """Nodes of the failed attempt that are lost by now, and were not known to be when the plan was made."""
    if not given.job.nodes:
        return ()
    nodes = await context.scheduler.nodes(given.job.nodes)
    return tuple(
        n for n in given.job.nodes if n in nodes and nodes[n].is_lost and n not in given.excluded_nodes
    )


async def _marks(context: Context, given: ResubmitInput, info: JobInfo | None) -> tuple[LogMark, ...]:
    """How far the logs were written before the first try let the job start."""
    name = "".join(c if c.isalnum() else "-" for c in given.recovery_id)[:200]
    path = context.settings.state_dir / "marks" / f"{name}.json"
    if given.tries > 0:
        kept = await asyncio.to_thread(_kept_marks, path)
        if kept is not None:
            return kept
    marks = await asyncio.to_thread(lambda: logs.mark_logs(logs.find_logs(given.job, info)))
    try:
        await asyncio.to_thread(_keep_marks, path, marks)
    except OSError as error:  # they matter only if this try is lost
        log.warning("the log marks could not be kept", path=str(path), error=str(error))
    return marks


def _kept_marks(path: Path) -> tuple[LogMark, ...] | None:
    try:
        return _MARKS.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def _keep_marks(path: Path, marks: tuple[LogMark, ...]) -> None:
    write_whole(path, _MARKS.dump_json(marks).decode())
    store.prune(path.parent)


def _result(given: ResubmitInput, info: JobInfo, marks: tuple[LogMark, ...], text: str) -> ResubmitResult:
    attempt = info.attempt(given.attempt.cluster)
    return ResubmitResult(attempt=attempt, log_marks=marks, summary=text)


def _without(excluded: tuple[str, ...], lost: tuple[str, ...]) -> str:
    text = f", without {', '.join(excluded)}" if excluded else ""
    return f"{text} (lost since the plan was made: {', '.join(lost)})" if lost else text


def _changed(given: ResubmitInput, info: JobInfo) -> Exception:
    return attempt_changed(
        f"job {info.job_id} was expected held in attempt {given.attempt.label}, but is {in_words(info)}"
    )
