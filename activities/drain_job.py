"""Takes a job's old attempt off its nodes: back into the queue, held, or cancelled where that cannot be."""

import asyncio
from datetime import datetime

import structlog

from activities.common import (
    ENDED_BY_OTHERS,
    HELD_REASONS,
    Context,
    attempt_changed,
    heartbeats,
    in_words,
    now,
    read_job,
    relate,
    scheduler_errors,
)
from activities.snapshot_job import how_to_submit
from activities.tag import tagged
from relight.contracts import JobInfo, JobState
from relight.contracts.steps import DrainInput, DrainResult
from relight.policy.attempts import Relation
from relight.policy.holds import could_not_start, hold_deadline
from relight.scheduler.port import (
    InvalidRequest,
    NoSuchJob,
    NotSupported,
    SchedulerError,
    SchedulerUnreachable,
)

log = structlog.get_logger("activities")

USER_HOLDS = ("JobHeldUser", "JobHeldAdmin")
"""Reasons of a running job that somebody put on hold: it shall not start again."""
WAITING = (JobState.PENDING, JobState.COMPLETING)
"""Of a requeued job: it is in the queue, or its old attempt still leaves the nodes."""
SETTLE_SECONDS = 20.0
"""How long the scheduler may take to show the restart count that follows a requeue."""


async def drain_job(context: Context, given: DrainInput) -> DrainResult:
    """Requeues and holds the job, if it is still in the expected attempt.

    Run again after a lost answer, it finds what the earlier try did and does nothing more: a job that was
    requeued and held since (only `tries` tells that this may be our doing), or one that was cancelled with
    our mark in its comment.

    Raises:
        ApplicationError: `AttemptChanged` when somebody else moved the job; `SchedulerUnreachable` when it is
            not known whether the scheduler acted; `Refused`.
    """
    async with heartbeats():
        with scheduler_errors():
            try:
                info = await read_job(context.scheduler, given.attempt.job_id)
            except NoSuchJob:
                await how_to_submit(context, given.attempt)
                return _submit_anew(given, "the scheduler has forgotten the job")
            return await _drain(context, given, info)


async def _drain(context: Context, given: DrainInput, info: JobInfo) -> DrainResult:
    relation = relate(info, given.attempt)
    if relation is Relation.NEWER and info.restart_count == given.attempt.restart_count + 1:
        return await _requeued_already(context, given, info)
    if relation is not Relation.SAME:
        raise _changed(given, info)
    if info.state in (JobState.CANCELLED, JobState.COMPLETING) and given.recovery_id in info.comment:
        return _submit_anew(given, "an earlier try cancelled it, since the scheduler cannot requeue it")
    if could_not_start(info):
        await mark_held(context, info, given)
        text = f"the scheduler could not start job {info.job_id}, and holds it already"
        held = info.attempt(given.attempt.cluster)
        return DrainResult(how="already held", attempt=held, summary=text)
    if info.state in ENDED_BY_OTHERS or info.state is JobState.PENDING:
        raise _changed(given, info)
    if info.reason in USER_HOLDS and info.state in (JobState.RUNNING, JobState.SUSPENDED):
        raise attempt_changed(f"somebody holds job {info.job_id} ({in_words(info)}): it is left alone")
    if not info.requeueable:
        return await _cancel(context, given, info, "it was submitted as not requeueable")
    try:
        await context.scheduler.requeue_hold(info.job_id)
    except (InvalidRequest, NotSupported) as error:
        return await _after_refusal(context, given, error)
    except SchedulerUnreachable as error:
        return await _after_silence(context, given, error)
    return await _requeued_now(context, given, "requeued and held")


async def _requeued_now(context: Context, given: DrainInput, how: str) -> DrainResult:
    """The scheduler took our command: waits until it shows the new attempt, and marks the job."""
    accepted = now()
    info = await _settled(context, given)
    await mark_held(context, info, given)
    return DrainResult(
        how="requeue-held",
        accepted_at=accepted,
        attempt=info.attempt(given.attempt.cluster),
        summary=f"job {info.job_id} is {how} (now {in_words(info)})",
    )


async def _settled(context: Context, given: DrainInput) -> JobInfo:
    loop = asyncio.get_running_loop()
    end = loop.time() + SETTLE_SECONDS
    while True:
        info = await read_job(context.scheduler, given.attempt.job_id)
        if relate(info, given.attempt) is Relation.NEWER:
            return info
        if loop.time() > end:
            raise SchedulerUnreachable(
                f"the scheduler took the requeue of job {info.job_id}, but shows {in_words(info)}"
            )
        await asyncio.sleep(0.1)


async def _after_refusal(context: Context, given: DrainInput, error: SchedulerError) -> DrainResult:
    """The scheduler refused the requeue: somebody was faster, or it never requeues this job."""
    info = await read_job(context.scheduler, given.attempt.job_id)
    if relate(info, given.attempt) is Relation.SAME and not info.held:
        return await _cancel(context, given, info, str(error))
    raise _changed(given, info)


async def _after_silence(context: Context, given: DrainInput, error: SchedulerUnreachable) -> DrainResult:
    """The command got no answer and may have acted all the same.

    Only what is seen counts: requeued and held since our look a moment ago. If not, or not yet, the workflow
    tries again, and then recognises it.
    """
    info = await read_job(context.scheduler, given.attempt.job_id)
    if relate(info, given.attempt) is Relation.NEWER and info.held:
        return await _requeued_now(context, given, "requeued and held, though the command got no answer")
    raise error


async def _requeued_already(context: Context, given: DrainInput, info: JobInfo) -> DrainResult:
    """The job was requeued once since the failed attempt: by us, by the scheduler itself, or by a person."""
    attempt = info.attempt(given.attempt.cluster)
    ours = given.tries > 0 or given.recovery_id in info.comment
    waiting = info.state in WAITING
    if ours and waiting and info.held:
        await mark_held(context, info, given)
        text = f"an earlier try requeued and held job {info.job_id}"
        return DrainResult(how="already requeue-held", attempt=attempt, summary=text)
    if not given.adopt or info.held or info.state.is_over:
        raise _changed(given, info)
    if not waiting:
        return _runs_again(given, info)

    refusal = None
    try:
        await context.scheduler.hold(info.job_id)
    except InvalidRequest as error:
        refusal = error
    accepted = now()
    info = await read_job(context.scheduler, info.job_id)
    if info.state not in WAITING:  # it started in between
        return _runs_again(given, info, await _undo_hold(context, info))
    if refusal is not None:
        raise refusal
    await mark_held(context, info, given)
    return DrainResult(
        how="adopted",
        accepted_at=accepted,
        attempt=info.attempt(given.attempt.cluster),
        summary=f"the scheduler had requeued job {info.job_id} by itself; it is held now",
    )


async def _undo_hold(context: Context, info: JobInfo) -> str:
    """Slurm takes a hold of a running job too: it would show at the next requeue, when nobody expects it.

    Returns:
        What a person has to know of it; empty where there was no hold, or it is undone.
    """
    if not info.held and info.reason not in HELD_REASONS:
        return ""
    try:
        await context.scheduler.release(info.job_id)
    except InvalidRequest as error:
        log.warning("a hold that came too late could not be undone", job=info.job_id, error=str(error))
        return f"; its next requeue will be held, unless you do: scontrol release {info.job_id}"
    return ""


def _runs_again(given: DrainInput, info: JobInfo, note: str = "") -> DrainResult:
    where = ", ".join(info.nodes)
    text = f"the scheduler had requeued job {info.job_id} by itself, and it runs again on {where}{note}"
    return DrainResult(how="running", attempt=info.attempt(given.attempt.cluster), summary=text)


async def _cancel(context: Context, given: DrainInput, info: JobInfo, why: str) -> DrainResult:
    """The job cannot be requeued: it is ended, and `resubmit` submits it anew from its saved script."""
    # Whatever could keep it from being submitted again must show before it is ended.
    await how_to_submit(context, given.attempt)
    if info.state.is_over or info.state is JobState.COMPLETING:
        return _submit_anew(given, why)
    # The mark comes first: a later try must know that the cancelled job is our doing.
    await context.scheduler.set_comment(info.job_id, tagged(info.comment, given.recovery_id))
    await context.scheduler.cancel(info.job_id)
    return _submit_anew(given, f"{why}; it is cancelled").model_copy(update={"accepted_at": now()})


def _submit_anew(given: DrainInput, why: str) -> DrainResult:
    text = f"job {given.attempt.job_id} has to be submitted anew: {why}"
    return DrainResult(how="resubmit", attempt=given.attempt, summary=text)


def _changed(given: DrainInput, info: JobInfo) -> Exception:
    return attempt_changed(
        f"job {info.job_id} was expected in attempt {given.attempt.label}, but is {in_words(info)}; "
        "nothing was done"
    )


async def mark_held(context: Context, info: JobInfo, given: DrainInput) -> bool:
    """Says in the job's comment why it is held, and until when at the latest."""
    until = hold_deadline(given.job.policy, now())
    return await mark(context, info, given.recovery_id, given.reason, until)


async def mark(
    context: Context,
    info: JobInfo,
    recovery_id: str,
    held: str = "",
    until: datetime | None = None,
    *,
    person: bool = False,
) -> bool:
    """Puts relight's mark into the job's comment. It helps people, no more: a failure is only logged."""
    comment = tagged(info.comment, recovery_id, held, until, person=person)
    if comment == info.comment:
        return True
    try:
        await context.scheduler.set_comment(info.job_id, comment)
    except SchedulerError as error:
        log.warning("the job's comment could not be set", job=info.job_id, error=str(error))
        return False
    return True
