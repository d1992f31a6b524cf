"""Asks independent sources again whether the fault is real, before anything is done about it."""

import asyncio
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

import structlog
from temporalio import activity

from activities import logs
from activities.ask_machines import about_hardware, about_silence
from activities.common import (
    ENDED_BY_OTHERS,
    Context,
    Remember,
    attempt_changed,
    heartbeats,
    in_words,
    not_yet,
    now,
    read_job,
    relate,
    scheduler_errors,
)
from relight.contracts import (
    Cause,
    Diagnosis,
    Evidence,
    JobInfo,
    JobState,
    Model,
    Source,
    Symptom,
    TrainingJob,
    UtcDatetime,
)
from relight.contracts.steps import ConfirmInput, ConfirmResult, LogMark, Observation
from relight.diagnosis.findings import StepLine
from relight.diagnosis.verdict import hangs_at_its_start
from relight.policy import resume_proof
from relight.policy.attempts import Relation
from relight.policy.holds import could_not_start
from relight.policy.resume_proof import Goal, Seen
from relight.scheduler.port import NoSuchJob, NotSupported, SchedulerError

log = structlog.get_logger("activities")

SHORTEST_SILENCE = timedelta(seconds=2)
SILENCE_INTERVALS = 2
"""So many learned step intervals without a step count as silence after a crash was logged."""
UNKNOWN_INTERVAL_SILENCE = timedelta(seconds=15)
"""The silence asked for when no interval was learned, and the log does not tell one."""
SHORTEST_WATCH = timedelta(milliseconds=500)
"""Between two looks at the logs, where the times of the files tell how long they have been silent."""
SOON = timedelta(seconds=2)
"""A silence that is long enough within this time is looked at just then."""
LEAST_GAPS = 3
LONGEST_GAP = 86400.0
"""Seconds between two step lines; what says more is nonsense."""


class Look(Model):
    """The first look at the logs; it travels from try to try in the activity's heartbeat."""

    at: UtcDatetime
    step: int | None
    marks: tuple[LogMark, ...]
    interval: timedelta | None = None
    """The usual time between step lines, by what they say of it themselves."""
    written: UtcDatetime | None = None
    """When the logs were last written, as their file systems say."""


async def confirm_fault(context: Context, given: ConfirmInput) -> ConfirmResult:
    """Confirms or refutes the diagnosis by what independent sources say when they are asked again.

    A failed attempt or a lost node confirms at once. While the job still runs, its logs decide: steps that go
    on refute; silence since the fault, for long enough, confirms, unless its GPUs say that it computes or
    saves. What NVML and kernel logs say of nodes comes from their sensors, with the diagnosis. A source that
    cannot be asked is not available, and never keeps the others from answering.

    Raises:
        ApplicationError: `NotYet` while there is no answer; `AttemptChanged` when the job ended without a
            fault, or is in another attempt that the scheduler did not start because of a lost node.
    """
    async with heartbeats() as remember:
        result = await _confirm(context, given, remember)
        if result.verdict != "confirmed":
            return result
        return result.model_copy(update={"partition_nodes": await _partition_nodes(context, given.job)})


async def _partition_nodes(context: Context, job: TrainingJob) -> int | None:
    """For the guard, whose budgets are shares of the partition. The fault is confirmed without it, too."""
    if not job.partition:
        return None
    try:
        return await context.scheduler.partition_size(job.partition) or None
    except SchedulerError as error:
        log.warning("the size of the partition is not known", partition=job.partition, error=str(error))
        return None


async def _confirm(context: Context, given: ConfirmInput, remember: Remember) -> ConfirmResult:
    job, diagnosis = given.job, given.diagnosis
    with scheduler_errors():
        try:
            info = await read_job(context.scheduler, job.attempt.job_id)
        except NoSuchJob:
            return await _from_accounting(context, given)
        allocation = job.nodes or info.nodes or diagnosis.nodes
        nodes = await context.scheduler.nodes(allocation) if allocation else {}
    lost = tuple(name for name in allocation if name in nodes and nodes[name].is_lost)

    seen = [_observe("scheduler", "unknown", f"job {info.job_id} is {in_words(info)}")]
    if lost:
        states = ", ".join(f"{n} {'+'.join((nodes[n].state, *nodes[n].flags))}" for n in lost)
        seen.append(_observe("nodes", "confirms", f"lost: {states}"))
    elif nodes:
        seen.append(_observe("nodes", "unknown", f"none of {len(nodes)} nodes of the allocation is lost"))
    else:
        seen.append(_observe("nodes", "not available", "the allocation is not known"))
    seen += _told_by_sensors(diagnosis)
    if (told := await about_hardware(context, diagnosis, allocation)) is not None:
        seen.append(told)

    relation = relate(info, job.attempt)
    if relation is not Relation.SAME:
        if _requeued_after_loss(info, job, relation, lost):
            text = f"lost {', '.join(lost)}; the scheduler has put the job back in the queue by itself"
            return _result("confirmed", text, seen, info, lost)
        raise attempt_changed(
            f"job {info.job_id} is not in attempt {job.attempt.label} any more: it is {in_words(info)}"
        )
    if lost:
        return _result("confirmed", f"lost {', '.join(lost)} of the allocation", seen, info, lost)
    if info.state.is_failure:
        seen[0] = _observe("scheduler", "confirms", seen[0].text)
        return _result("confirmed", f"the scheduler says {in_words(info)}{_exit(info)}", seen, info)
    if info.state in ENDED_BY_OTHERS:
        raise attempt_changed(f"job {info.job_id} {ENDED_BY_OTHERS[info.state]}: there is nothing to recover")
    if could_not_start(info):
        seen[0] = _observe("scheduler", "confirms", seen[0].text)
        return _result("confirmed", f"the scheduler could not start it: {in_words(info)}", seen, info)
    if info.state is JobState.PENDING:
        return _result("refuted", "the attempt has not started", seen, info)
    if info.state is JobState.SUSPENDED and diagnosis.symptom is not Symptom.CRASH:
        return _result("refuted", "the job is suspended, so it makes no steps", seen, info)
    if info.state is not JobState.RUNNING:
        raise not_yet(f"the scheduler says {in_words(info)}: how the attempt ends is not known yet")
    if diagnosis.symptom is Symptom.DEGRADED and diagnosis.cause is Cause.NUMERICAL:
        return await _from_numbers(given, info, seen)
    if diagnosis.symptom in (Symptom.SLOW, Symptom.DEGRADED):
        return _result("inconclusive", "the job runs, and no second source tells how fast", seen, info)
    return await _from_logs(context, given, info, seen, remember)


async def _from_logs(
    context: Context, given: ConfirmInput, info: JobInfo, seen: list[Observation], remember: Remember
) -> ConfirmResult:
    """The scheduler says RUNNING: whether training goes on is in its logs."""
    diagnosis = given.diagnosis
    known = diagnosis.progress
    paths = await asyncio.to_thread(logs.find_logs, given.job, info)
    first = _earlier_look()
    if first is None:
        tail = await asyncio.to_thread(logs.read_tail, paths, logs.formats_of(given.job))
        first = Look(
            at=now(), step=logs.last_step(tail), marks=tail.marks, interval=_interval(tail.more_steps),
            written=await asyncio.to_thread(logs.last_written, paths),
        )  # fmt: skip
        reading, step = tail, first.step
        # For a hang, the sensor knew the last step exactly; a crash may be seen before the lines around it.
        goes_on = (
            diagnosis.symptom is Symptom.HANG and known is not None and step is not None and step > known.step
        )
    else:
        reading = await asyncio.to_thread(logs.read_since, paths, first.marks, logs.formats_of(given.job))
        step = logs.last_step(reading)
        goes_on = any(line.step != first.step for line in reading.steps)
    remember(first)

    where = ", ".join(paths[:3])
    starts = hangs_at_its_start(diagnosis)
    if starts and not goes_on and _grew(first.marks, reading.marks):
        text = "its log goes on, though with no step: a start that takes long is no hang"
        seen.append(_observe("job_log", "refutes", text, where))
        return _result("refuted", text, seen, info)
    if goes_on:
        seen.append(_observe("job_log", "refutes", f"training goes on: step {step}", where))
        return _result("refuted", f"training goes on (step {step})", seen, info)
    if not reading.marks:
        unread = "; ".join(reading.unread[:3]) or "there is none"
        raise not_yet(f"the job runs, and no log of it can be read ({unread})")
    since, watch = _silent_since(first, given)
    silent, needed = now() - since, _needed_silence(given, first)
    left = max(needed - silent, min(needed, watch) - (now() - first.at))
    if left > timedelta(0):
        raise not_yet(
            f"the job runs; no step for {_seconds(silent)} s of {_seconds(needed)} s",
            look_again=left if left <= SOON else None,
        )
    if starts:  # the sensor saw how long it has lasted; here it only had to last on
        silent = max(silent, now() - diagnosis.occurred_at)
    told = await about_silence(context, diagnosis, info.nodes or given.job.nodes, silent, info.start_time)
    if told is not None:
        seen.append(told)
        if told.verdict == "refutes":
            return _result("refuted", told.text, seen, info)
        if told.verdict == "unknown" and _may_still_be_known(given, seen):
            raise not_yet(f"the job is silent; Prometheus does not know yet: {told.text}")
    last = f"step {first.step}" if first.step is not None else "the start"
    text = f"the scheduler says RUNNING, and no step came after {last} for {_seconds(silent)} s"
    if starts:
        text = (
            f"the scheduler says RUNNING, and its log has been silent for {_seconds(silent)} s with no step"
        )
    seen.append(_observe("job_log", "confirms", text, where))
    return _result("confirmed", text, seen, info)


def _may_still_be_known(given: ConfirmInput, seen: list[Observation]) -> bool:
    """The policy wants more signs than the log and what was seen until now."""
    others = {e.source for o in seen if o.verdict == "confirms" for e in o.evidence} - {Source.JOB_LOG}
    others |= {sign.source for sign in given.diagnosis.signs}
    return 1 + len(others) < given.job.policy.for_cause(given.diagnosis.cause).signs


def _told_by_sensors(diagnosis: Diagnosis) -> list[Observation]:
    """What the node sensors have said, and which of them have not."""
    seen = []
    for source in (Source.KERNEL, Source.NVML):
        evidence = tuple(e for e in diagnosis.evidence if e.source is source)[:4]
        if evidence:
            seen.append(
                Observation(
                    source=source.value,
                    verdict="told",
                    text="; ".join(e.text for e in evidence),
                    evidence=evidence,
                )
            )
        else:
            seen.append(_observe(source.value, "not available", "no node sensor has said anything"))
    return seen


async def _from_numbers(given: ConfirmInput, info: JobInfo, seen: list[Observation]) -> ConfirmResult:
    """The job runs, and its numbers are said to be wrong: its logs tell if they are no numbers now."""
    paths = await asyncio.to_thread(logs.find_logs, given.job, info)
    tail = await asyncio.to_thread(logs.read_tail, paths, logs.formats_of(given.job))
    lines = tail.more_steps
    # Where the steps go back, another attempt (or another file) begins.
    begin = max((n for n in range(1, len(lines)) if lines[n].step < lines[n - 1].step), default=0)
    why = resume_proof.divergence(resume_proof.add_steps(Seen(), lines[begin:]), Goal())
    where = ", ".join(paths[:3])
    if why:
        seen.append(_observe("job_log", "confirms", why, where))
        return _result("confirmed", f"the job runs, and {why}", seen, info)
    seen.append(_observe("job_log", "unknown", "the last losses are numbers", where))
    return _result("inconclusive", "the job runs, and its last losses are numbers", seen, info)


def _grew(before: Sequence[LogMark], after: Sequence[LogMark]) -> bool:
    """Something was written between the two looks."""
    sizes = {(mark.path, mark.inode): mark.size for mark in before}
    return any(mark.size > sizes.get((mark.path, mark.inode), 0) for mark in after)


def _silent_since(first: Look, given: ConfirmInput) -> tuple[datetime, timedelta]:
    """When the silence began, and for how long it must be watched here, at least.

    It began with the last step or the fault, the later of both, but not after our look. Where steps came
    after what the sensors told, or none at all, it began when the logs were last written; since that is said
    by another clock, two looks are compared as well.
    """
    known = given.diagnosis.progress
    if hangs_at_its_start(given.diagnosis):
        return min(first.at, first.written or first.at), SHORTEST_WATCH
    if known is None or (first.step is not None and first.step > known.step):
        pace = _pace(given, first) or UNKNOWN_INTERVAL_SILENCE
        return min(first.at, first.written or first.at), max(SHORTEST_WATCH, pace)
    return min(first.at, max(known.at, given.diagnosis.occurred_at)), timedelta(0)


def _needed_silence(given: ConfirmInput, first: Look) -> timedelta:
    """A machine's sensor knows no steps, and tells of a fault before the monitor has heard of the pace."""
    if hangs_at_its_start(given.diagnosis):
        return UNKNOWN_INTERVAL_SILENCE  # how often an earlier attempt printed says nothing of a start
    pace = _pace(given, first)
    return UNKNOWN_INTERVAL_SILENCE if pace is None else max(SHORTEST_SILENCE, SILENCE_INTERVALS * pace)


def _pace(given: ConfirmInput, first: Look) -> timedelta | None:
    """The usual time between steps; None: nobody knows."""
    known = given.diagnosis.progress
    return first.interval if known is None or known.interval is None else known.interval


def _interval(lines: Sequence[StepLine]) -> timedelta | None:
    """The usual time between these step lines; None where too few of the gaps are known.

    They are the first and the last few of a log: the one gap that lies between those counts for nothing.
    """
    gaps = [
        (after.step - before.step) * after.step_seconds
        for before, after in pairwise(lines)
        if after.step > before.step and after.step_seconds is not None and math.isfinite(after.step_seconds)
    ]
    usual = median(gaps) if len(gaps) >= LEAST_GAPS else 0.0
    return timedelta(seconds=usual) if 0 < usual < LONGEST_GAP else None


def _earlier_look() -> Look | None:
    details = activity.info().heartbeat_details
    return Look.model_validate(details[0]) if details else None


def _requeued_after_loss(info: JobInfo, job: TrainingJob, relation: Relation, lost: tuple[str, ...]) -> bool:
    """Slurm itself requeues a job that loses a node: one restart more, not held, waiting or running again."""
    return (
        relation is Relation.NEWER
        and bool(lost)
        and info.restart_count == job.attempt.restart_count + 1
        and not info.held
        and not info.state.is_over
    )


async def _from_accounting(context: Context, given: ConfirmInput) -> ConfirmResult:
    """The scheduler has forgotten the job: accounting may know how it ended."""
    attempt = given.job.attempt
    try:
        info = await context.scheduler.finished_job(attempt.job_id)
    except (NoSuchJob, NotSupported) as error:
        seen = [
            _observe("scheduler", "unknown", f"it no longer knows job {attempt.job_id}"),
            _observe("accounting", "not available", str(error)),
        ]
        text = "the scheduler no longer knows the job, and accounting does not tell how it ended"
        return _result("inconclusive", text, seen, None)
    if info.state in ENDED_BY_OTHERS:
        raise attempt_changed(f"job {attempt.job_id} {ENDED_BY_OTHERS[info.state]}, accounting says")
    text = f"accounting says {in_words(info)}{_exit(info)}"
    verdict = "confirmed" if info.state.is_failure else "inconclusive"
    word = "confirms" if info.state.is_failure else "unknown"
    return _result(verdict, text, [_observe("accounting", word, text)], info)


def _observe(source: str, verdict: str, text: str, where: str = "") -> Observation:
    kind = Source.JOB_LOG if source == "job_log" else Source.SCHEDULER
    evidence: tuple[Evidence, ...] = ()
    if verdict in ("confirms", "refutes"):
        evidence = (Evidence(source=kind, observed_at=now(), text=text, where=where or source),)
    return Observation(source=source, verdict=verdict, text=text, evidence=evidence)


def _result(
    verdict: str, summary: str, seen: list[Observation], info: JobInfo | None, lost: tuple[str, ...] = ()
) -> ConfirmResult:
    return ConfirmResult(
        verdict=verdict, summary=summary, observations=tuple(seen), job_info=info, nodes_lost=lost
    )


def _exit(info: JobInfo) -> str:
    if info.exit_signal:
        return f", signal {info.exit_signal}"
    return f", exit code {info.exit_code}" if info.exit_code else ""


def _seconds(length: timedelta) -> str:
    return f"{max(0.0, length.total_seconds()):.0f}"
