"""Waits until no process of the old attempt is left on its nodes: a poll."""

from activities.common import (
    Context,
    attempt_changed,
    heartbeats,
    in_words,
    not_yet,
    read_job,
    relate,
    scheduler_errors,
)
from relight.contracts import JobState
from relight.contracts.steps import NodesFreeInput
from relight.policy.attempts import Relation
from relight.scheduler.port import NoSuchJob


async def wait_nodes_free(context: Context, given: NodesFreeInput) -> str:
    """Answers when the scheduler no longer counts the job as completing.

    Raises:
        ApplicationError: `NotYet` while it completes; `AttemptChanged` when somebody started it.
    """
    async with heartbeats():
        with scheduler_errors():
            try:
                info = await read_job(context.scheduler, given.attempt.job_id)
            except NoSuchJob:
                return "the scheduler has forgotten the job: nothing of it is left"
            nodes = await context.scheduler.nodes(given.nodes) if given.nodes and info.completing else {}
    if relate(info, given.attempt) is not Relation.SAME:
        raise attempt_changed(
            f"job {info.job_id} was expected in attempt {given.attempt.label}, but is {in_words(info)}"
        )
    if info.completing:
        busy = sorted(n.name for n in nodes.values() if "COMPLETING" in (n.state, *n.flags))
        where = f" on {', '.join(busy)}" if busy else ""
        raise not_yet(f"the old attempt still completes{where}: {in_words(info)}")
    if info.state not in (JobState.PENDING, JobState.UNKNOWN) and not info.state.is_over:
        raise attempt_changed(f"job {info.job_id} was started by somebody else: {in_words(info)}")
    if info.state is JobState.UNKNOWN:
        raise not_yet("the scheduler does not tell the job's state")
    return f"no process of the old attempt is left; job {info.job_id} is {in_words(info)}"
