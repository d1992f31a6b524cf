"""Waits for the proof: the new attempt trains past the step that the old one failed at. A poll.

Each try reads only what the logs gained since the try before: how far that was travels in the activity's
heartbeat, from try to try, and from worker to worker. If it is lost, the reading starts again at the marks
that `resubmit` took.
"""

import asyncio
import math
from pathlib import PurePath

from temporalio import activity

from activities import logs
from activities.common import (
    Context,
    Remember,
    attempt_changed,
    heartbeats,
    in_words,
    not_yet,
    now,
    read_job,
    scheduler_errors,
)
from activities.verify_running import check_same, resume_failed
from relight.contracts import JobState, Model
from relight.contracts.steps import LogMark, VerifyInput, VerifyResult
from relight.diagnosis.findings import PhaseLine
from relight.policy import resume_proof
from relight.policy.resume_proof import Goal, Sample, Seen


class Known(Model):
    """What the tries until now have found out; it travels from try to try in the activity's heartbeat."""

    marks: tuple[LogMark, ...] = ()
    seen: Seen = Seen()


async def verify_resume(context: Context, given: VerifyInput) -> VerifyResult:
    """Answers with the verdict of `relight.policy.resume_proof` as soon as there is one.

    Raises:
        ApplicationError: `NotYet` until then, with the last step seen; `ResumeFailed` when the attempt ended
            first; `AttemptChanged` when somebody cancelled or restarted it.
    """
    async with heartbeats() as remember:
        return await _verify(context, given, remember)


async def _verify(context: Context, given: VerifyInput, remember: Remember) -> VerifyResult:
    with scheduler_errors():
        info = await read_job(context.scheduler, given.attempt.job_id)
    check_same(given, info)
    paths = await asyncio.to_thread(logs.find_logs, given.job, info)
    known = await asyncio.to_thread(_earlier, given)
    reading = await asyncio.to_thread(logs.read_since, paths, known.marks, logs.formats_of(given.job))
    seen = resume_proof.add_steps(known.seen, reading.more_steps)
    for line in reading.loads:
        seen = _with_load(seen, line, given)
    remember(Known(marks=reading.marks, seen=seen))

    goal = Goal.of(given.job.policy, given.failed_at, given.resumable_from)
    if verdict := resume_proof.judge(seen, goal):
        return verdict.model_copy(update={"at": now()})
    if info.state is JobState.CANCELLED:
        raise attempt_changed(f"job {info.job_id} was cancelled")
    progress = "it printed no step" if seen.furthest is None else f"its last step was {seen.furthest}"
    if info.state.is_over:
        if why := resume_proof.ended_wrong(seen):
            return resume_proof.diverged(seen, f"{why}, and then it ended").model_copy(update={"at": now()})
        raise resume_failed(f"the new attempt ended ({in_words(info)}); {progress}", seen.first)
    if not reading.marks:
        raise not_yet(f"no log of the job can be read ({'; '.join(reading.unread[:3]) or 'there is none'})")
    goal_text = "a first step" if given.failed_at is None else f"a step beyond {given.failed_at}"
    if resume_proof.in_doubt(seen, goal):
        progress += ", whose numbers look wrong"
    # Should the time be over now, this is what is known of the attempt.
    late = VerifyResult(
        verdict="too_slow",
        first_step=seen.first,
        passed_step=seen.furthest,
        loaded=seen.loaded,
        loaded_step=seen.loaded_step,
        summary=progress,
    )
    raise not_yet(f"waiting for {goal_text}; {progress}", late)


def _with_load(seen: Seen, line: PhaseLine, given: VerifyInput) -> Seen:
    """Takes in that the attempt says it loaded a checkpoint; of several, the last one that tells more."""
    step, name = line.step, PurePath(line.path).name
    if step is None and name and given.checkpoint and name == PurePath(given.checkpoint).name:
        step = given.resumable_from
    if step is None and not name:
        return seen
    return seen.model_copy(
        update={"loaded": line.path or seen.loaded, "loaded_step": seen.loaded_step if step is None else step}
    )


def _earlier(given: VerifyInput) -> Known:
    """What the tries before found out; on the first one, what the failed attempt printed last."""
    details = activity.info().heartbeat_details
    if details:
        return Known.model_validate(details[0])
    before = resume_proof.baseline(
        logs.steps_before(given.log_marks, logs.formats_of(given.job)), given.resumable_from
    )
    loss = given.failed_loss
    if not before and given.failed_at is not None and loss is not None and math.isfinite(loss):
        before = (Sample(step=given.failed_at, loss=loss),)
    return Known(marks=given.log_marks, seen=Seen(before=before))
