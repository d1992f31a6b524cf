"""The monitor's own look at the scheduler, in case a sensor missed something."""

from activities.common import Context, heartbeats, in_words, now, read_job, relate
from relight.contracts import Anomaly, Attempt, Cause, Evidence, JobInfo, JobState, Source, Symptom
from relight.contracts.steps import PollInput, PollResult
from relight.policy.attempts import Relation
from relight.scheduler.port import NoSuchJob, NotSupported, SchedulerError

_CAUSES = {
    JobState.NODE_FAIL: Cause.NODE_FAILURE,
    JobState.BOOT_FAIL: Cause.NODE_FAILURE,
    JobState.OUT_OF_MEMORY: Cause.HOST_OOM,
}


async def look_at_job(context: Context, given: PollInput) -> PollResult:
    """Says what the scheduler says. It never fails: no answer is an answer too (`known` is None)."""
    async with heartbeats():
        return await _look(context, given.job.attempt)


async def _look(context: Context, expected: Attempt) -> PollResult:
    try:
        info = await read_job(context.scheduler, expected.job_id)
    except NoSuchJob:
        return await _from_accounting(context, expected)
    except SchedulerError as error:
        return PollResult(known=None, text=str(error))
    if relate(info, expected) in (Relation.OTHER, Relation.OLDER):
        return PollResult(known=False, text=f"job id {expected.job_id} belongs to another job now")
    return PollResult(
        known=True, info=info, anomaly=_fault(info, expected), text=f"the job is {in_words(info)}"
    )


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
