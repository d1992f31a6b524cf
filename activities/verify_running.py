"""Waits until the new attempt runs, on allowed nodes: a poll."""

from temporalio.exceptions import ApplicationError

from activities.common import (
    Context,
    attempt_changed,
    heartbeats,
    in_words,
    not_yet,
    now,
    read_job,
    relate,
    scheduler_errors,
)
from relight.contracts import JobInfo, JobState
from relight.contracts.steps import RESUME_FAILED, RunningResult, VerifyInput, VerifyResult
from relight.policy.attempts import Relation
from relight.policy.holds import could_not_start


async def verify_running(context: Context, given: VerifyInput) -> RunningResult:
    """Answers when the attempt was seen running, with the time of that observation.

    The scheduler's own start time has whole seconds only, and could lie before the command that started it.

    Raises:
        ApplicationError: `NotYet` while it waits; `ResumeFailed` when it ended first, or runs on an excluded
            node; `AttemptChanged` when somebody cancelled, held or restarted it.
    """
    async with heartbeats():
        with scheduler_errors():
            info = await read_job(context.scheduler, given.attempt.job_id)
    check_same(given, info)
    if info.state is JobState.PENDING and info.held:
        raise attempt_changed(f"job {info.job_id} was held by somebody else: {in_words(info)}")
    if info.state is JobState.CANCELLED:
        raise attempt_changed(f"job {info.job_id} was cancelled")
    if info.state.is_over and info.state is not JobState.COMPLETED:
        raise resume_failed(f"the new attempt ended before it was seen running: {in_words(info)}")
    if info.state not in (JobState.RUNNING, JobState.COMPLETED) or "CONFIGURING" in info.flags:
        raise not_yet(f"job {info.job_id} is {in_words(info)}")
    if wrong := sorted(set(info.nodes) & set(given.excluded_nodes)):
        raise resume_failed(f"job {info.job_id} runs on {', '.join(wrong)}, which it should keep off")
    return RunningResult(
        attempt=info.attempt(given.attempt.cluster),
        nodes=info.nodes,
        started_at=now(),
        summary=f"job {info.job_id} runs on {', '.join(info.nodes)}",
    )


def check_same(given: VerifyInput, info: JobInfo) -> None:
    """Makes sure that the job is in the attempt that is being verified.

    Slurm shows an attempt as running before its nodes have launched it: one that they could not launch may be
    seen as running first, and as requeued and held then.

    Raises:
        ApplicationError: `ResumeFailed` when the scheduler could not start it; `NotYet` while it does not say
            whether it or somebody else requeued it; `AttemptChanged`.
    """
    if could_not_start(info):
        raise resume_failed(f"the scheduler could not start the new attempt: {in_words(info)}")
    how = relate(info, given.attempt)
    if info.completing and how is Relation.NEWER:
        # By somebody, or by the scheduler that could not start it: it tells when the nodes are free.
        raise not_yet(f"why job {info.job_id} was requeued is not known: {in_words(info)}")
    if how is not Relation.SAME:
        raise attempt_changed(
            f"job {info.job_id} was started again meanwhile: expected was attempt {given.attempt.label}, "
            f"and it is {in_words(info)}"
        )


def resume_failed(text: str, first_step: int | None = None) -> ApplicationError:
    """The new attempt will not get there."""
    result = VerifyResult(verdict="ended", first_step=first_step, summary=text)
    return ApplicationError(text, result, type=RESUME_FAILED, non_retryable=True)
