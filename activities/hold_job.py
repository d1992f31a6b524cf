"""Leaves a job held in the queue, with a reason that a person can read in its comment."""

from activities.common import (
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
from relight.contracts import JobState
from relight.contracts.steps import HoldInput
from relight.policy.attempts import Relation
from relight.scheduler.port import NoSuchJob


async def hold_job(context: Context, given: HoldInput) -> str:
    """Holds the job if it waits; holding a held job again changes nothing.

    Raises:
        ApplicationError: `AttemptChanged` when the job runs, or is in another attempt.
    """
    async with heartbeats():
        with scheduler_errors():
            try:
                info = await read_job(context.scheduler, given.attempt.job_id)
            except NoSuchJob:
                return f"the scheduler has forgotten job {given.attempt.job_id}: there is nothing to hold"
            if relate(info, given.attempt) is not Relation.SAME:
                raise attempt_changed(
                    f"job {info.job_id} was expected in attempt {given.attempt.label}, but is "
                    f"{in_words(info)}"
                )
            if info.state.is_over:
                return f"job {info.job_id} has ended ({in_words(info)}): there is nothing to hold"
            if info.state not in (JobState.PENDING, JobState.COMPLETING):
                raise attempt_changed(f"job {info.job_id} was started by somebody else: {in_words(info)}")
            if not info.held:
                await context.scheduler.hold(info.job_id)
                info = await read_job(context.scheduler, info.job_id)
            until = now() + given.job.policy.approval_deadline
            told = await mark(context, info, given.recovery_id, given.reason, until, person=True)
    where = "" if told else "; its comment could not be set"
    return f"job {info.job_id} is held ({given.reason}){where}. Start it with: scontrol release {info.job_id}"
