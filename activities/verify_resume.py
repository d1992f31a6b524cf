"""Waits for the proof: the new attempt trains past the step that the old one failed at. A poll.

Each try reads only what the logs gained since the try before: how far that was travels in the activity's
heartbeat, from try to try, and from worker to worker. If it is lost, the reading starts again at the marks
that `resubmit` took.
"""

import asyncio

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


class Seen(Model):
    """What the tries until now have seen of the new attempt's steps."""

    marks: tuple[LogMark, ...] = ()
    first: int | None = None
    second: int | None = None
    """The step after the first, which tells how often steps are printed."""
    furthest: int | None = None


async def verify_resume(context: Context, given: VerifyInput) -> VerifyResult:
    """Answers `resumed` or `older_checkpoint` when the step is passed, `from_scratch` once that is clear.

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
    before = _earlier(given)
    reading = await asyncio.to_thread(logs.read_since, paths, before.marks)
    seen = add(before, reading)
    remember(seen)

    if verdict := judge(seen, given.failed_at, given.resumable_from):
        return verdict.model_copy(update={"at": now()})
    if info.state is JobState.CANCELLED:
        raise attempt_changed(f"job {info.job_id} was cancelled")
    progress = "it printed no step" if seen.furthest is None else f"its last step was {seen.furthest}"
    if info.state.is_over:
        raise resume_failed(f"the new attempt ended ({in_words(info)}); {progress}", seen.first)
    if not reading.marks:
        raise not_yet(f"no log of the job can be read ({'; '.join(reading.unread[:3]) or 'there is none'})")
    goal = "a first step" if given.failed_at is None else f"a step beyond {given.failed_at}"
    raise not_yet(f"waiting for {goal}; {progress}")


def add(before: Seen, reading: logs.Reading) -> Seen:
    """What has been seen after one more reading."""
    steps = [line.step for line in reading.steps]
    first, second = before.first, before.second
    if first is None and steps:
        first = steps[0]
    if second is None and first is not None:
        second = next((step for step in steps if step > first), None)
    furthest = max([*steps, *([] if before.furthest is None else [before.furthest])], default=None)
    return Seen(marks=reading.marks, first=first, second=second, furthest=furthest)


def judge(seen: Seen, failed_at: int | None, resumable_from: int | None) -> VerifyResult | None:
    """The verdict on the steps seen; None while it is open.

    A training that starts from scratch prints its first step within one printing interval of 0; it is told
    from one that loaded an older checkpoint by its first two steps. A step less than the checkpoint's own is
    no difference: some count from 0.
    """
    if seen.first is None or seen.furthest is None:
        return None
    too_early = resumable_from is not None and seen.first < resumable_from - 1
    if too_early and seen.second is not None and seen.first <= seen.second - seen.first:
        text = (
            f"training started from scratch (step {seen.first}), not from the checkpoint at {resumable_from}"
        )
        return VerifyResult(verdict="from_scratch", first_step=seen.first, summary=text)
    if failed_at is not None and seen.furthest <= failed_at:
        return None
    passed = f"training passed step {failed_at}" if failed_at is not None else "training makes steps"
    text = f"{passed}: step {seen.furthest}, having resumed at step {seen.first}"
    if too_early:
        text += f", although the checkpoint at {resumable_from} can be used"
    return VerifyResult(
        verdict="older_checkpoint" if too_early else "resumed",
        first_step=seen.first,
        passed_step=seen.furthest,
        summary=text,
    )


def _earlier(given: VerifyInput) -> Seen:
    details = activity.info().heartbeat_details
    return Seen.model_validate(details[0]) if details else Seen(marks=given.log_marks)
