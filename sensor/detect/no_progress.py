"""No progress: the attempt runs, and its step lines have stopped for longer than its rhythm allows."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from relight.contracts import Anomaly, Attempt, Evidence, NodeInfo, Policy, Progress, Source
from sensor.detect.silence import hang, in_seconds, is_due, unanswering
from sensor.memory import Memory

DETECTOR = "no-progress"


def silent_until(memory: Memory, policy: Policy) -> datetime | None:
    """Until when silence is fine. None: not known, since no step line was seen in this attempt.

    Time in which the attempt did not run (suspended) does not count. Time in which the scheduler did not
    answer does: the job ran on.
    """
    deadline = memory.trail.rhythm.deadline(policy.hang_floor, policy.hang_factor)
    if deadline is None or memory.trail.rhythm.at is None:
        return None
    last = memory.trail.rhythm.at
    if memory.running_since is not None and memory.running_since > last:
        return memory.running_since + (deadline - last)
    return deadline


def no_progress(
    memory: Memory,
    policy: Policy,
    attempt: Attempt,
    nodes: Mapping[str, NodeInfo] | None,
    now: datetime,
) -> Anomaly | None:
    """An anomaly once the silence is longer than allowed.

    The caller makes sure that it is a silence: the scheduler has just said that the attempt runs, and the
    logs are read to their ends.
    """
    deadline, progress, read_at = silent_until(memory, policy), memory.progress, memory.trail.rhythm.at
    if deadline is None or progress is None or read_at is None:
        return None
    allowed = deadline - read_at
    if not is_due(read_at, allowed, memory.hang_told, now):
        return None
    line = Evidence(
        source=Source.JOB_LOG,
        observed_at=now,
        text=_describe(progress, allowed, now, at_least=memory.step_written is not None),
        where=memory.trail.where,
        line=memory.trail.line_number,
    )
    return hang(
        DETECTOR,
        (progress.step, memory.hang_told),
        attempt,
        line,
        unanswering(memory.nodes, nodes),
        since=progress.at,
        progress=progress,
        says="Training stopped making steps while the job runs on.",
    )


def _describe(progress: Progress, allowed: timedelta, now: datetime, *, at_least: bool) -> str:
    pace = (
        f"they came every {in_seconds(progress.interval)}"
        if progress.interval
        else "their pace is not known yet"
    )
    silence = f"{'at least ' if at_least else ''}{in_seconds(now - progress.at)}"
    return (
        f"no step line for {silence} after step {progress.step}; {pace}, "
        f"and {in_seconds(allowed)} of silence are allowed"
    )
