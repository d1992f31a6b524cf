"""The monitor's own look at the scheduler, in case a sensor missed something."""

import asyncio
from datetime import timedelta

from temporalio import activity

from activities.common import Context, heartbeats, in_words, now, read_job, relate
from activities.locate_checkpoint import look
from relight.checkpoints.report import CheckpointError, State
from relight.contracts import (
    Anomaly,
    Attempt,
    Cause,
    Evidence,
    JobInfo,
    JobState,
    Source,
    Symptom,
    TrainingJob,
)
from relight.contracts.steps import BadCheckpoint, CheckpointLook, PollInput, PollResult
from relight.policy.attempts import Relation
from relight.scheduler.port import NoSuchJob, NotSupported, SchedulerError

BUDGET = timedelta(seconds=10)
"""The longest that the look at checkpoints may take."""
MAX_BAD = 5

_CAUSES = {
    JobState.NODE_FAIL: Cause.NODE_FAILURE,
    JobState.BOOT_FAIL: Cause.NODE_FAILURE,
    JobState.OUT_OF_MEMORY: Cause.HOST_OOM,
}


async def look_at_job(context: Context, given: PollInput) -> PollResult:
    """Says what the scheduler says. It never fails: no answer is an answer too (`known` is None)."""
    async with heartbeats():
        result = await _look(context, given.job.attempt)
        if result.info is None or result.info.state is not JobState.RUNNING:
            return result
        return result.model_copy(update={"checkpoints": await asyncio.to_thread(_checkpoints, given.job)})


async def _look(context: Context, expected: Attempt) -> PollResult:
    try:
        info = await read_job(context.together, expected.job_id)
    except NoSuchJob:
        return await _from_accounting(context, expected)
    except SchedulerError as error:
        return PollResult(known=None, text=str(error))
    if relate(info, expected) in (Relation.OTHER, Relation.OLDER):
        return PollResult(known=False, text=f"job id {expected.job_id} belongs to another job now")
    return PollResult(
        known=True, info=info, anomaly=_fault(info, expected), text=f"the job is {in_words(info)}"
    )


def _checkpoints(job: TrainingJob) -> CheckpointLook | None:
    """What the directory holds. It is only a look: what cannot be read now may be read next time."""
    directory = job.checkpoint_dir
    if directory is None or "://" in directory:  # a look at a remote store may cost money
        return None
    try:
        report = look(job, directory, None, budget=BUDGET)
    except (CheckpointError, OSError) as error:
        activity.logger.info("the checkpoints were not looked at: %s", error)
        return None
    bad: list[BadCheckpoint] = []
    for found in report.checkpoints:
        if found.state is State.USABLE:
            return CheckpointLook(directory=directory, saved_at=found.modified_at, bad=tuple(bad[:MAX_BAD]))
        if found.state is not State.IN_PROGRESS:
            bad.append(
                BadCheckpoint(
                    name=found.name,
                    state=found.state.value,
                    reason=found.reason,
                    modified_at=found.modified_at,
                )
            )
    return CheckpointLook(directory=directory, bad=tuple(bad[:MAX_BAD]))


async def _from_accounting(context: Context, expected: Attempt) -> PollResult:
    text = f"the scheduler knows no job {expected.job_id}"
    try:
        info = await context.scheduler.finished_job(expected.job_id)
    except (NoSuchJob, NotSupported) as error:
        return PollResult(known=False, text=f"{text}; accounting: {error}")
    except SchedulerError as error:
        return PollResult(known=None, text=f"{text}; accounting does not answer: {error}")
    return PollResult(
        known=False,
        info=info,
        anomaly=_fault(info, expected),
        text=f"{text} any more; accounting says {in_words(info)}",
    )


def _fault(info: JobInfo, expected: Attempt) -> Anomaly | None:
    """The failure that the look found, if it is one."""
    if not info.state.is_failure:
        return None
    attempt = info.attempt(expected.cluster)
    if relate(info, expected) is Relation.SAME:
        attempt = expected  # also where accounting does not know restarts, or Slurm changed the submit time
    ended = f"the scheduler says {in_words(info)}"
    if info.exit_signal:
        ended += f", signal {info.exit_signal}"
    elif info.exit_code:
        ended += f", exit code {info.exit_code}"
    evidence = Evidence(source=Source.SCHEDULER, observed_at=now(), text=ended, where=f"job {info.job_id}")
    return Anomaly(
        anomaly_id=Anomaly.make_id(attempt, "poll", info.state.value),
        attempt=attempt,
        symptom=Symptom.CRASH,
        cause=_CAUSES.get(info.state, Cause.UNKNOWN),
        evidence=(evidence,),
        occurred_at=min(info.end_time or now(), now()),
        detected_at=now(),
        detector="poll",
    )
