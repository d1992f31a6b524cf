"""No first step: the attempt runs, has printed no step yet, and its log has been silent for too long.

A log that goes on growing is no hang, whatever it says: where steps are of a format that nobody knows, they
are never seen. And a start may be silent for long by itself, while it compiles, indexes data or loads a
checkpoint; so the limit is a long one, until the run's own attempts have shown how long their starts take.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from relight.contracts import Anomaly, Attempt, Evidence, NodeInfo, Policy, Source
from relight.diagnosis.rhythm import FIRST_STEP_FACTOR
from sensor.detect.silence import hang, in_seconds, is_due, unanswering
from sensor.memory import Memory, Startup

DETECTOR = "no-first-step"


def silence_allowed(policy: Policy, startups: Sequence[Startup], *, busy: bool) -> timedelta:
    """How long the log of an attempt may stay silent before its first step. Pure.

    By itself that is `start_floor`. How long the longest earlier start took, times `hang_factor`, makes it
    longer; never shorter than what is allowed right after a first step (ten times `hang_floor`), and only
    where an earlier attempt resumed: one that starts from scratch has no checkpoint to load.

    Args:
        policy: how patient to be.
        startups: what is known of the run's earlier attempts.
        busy: the log says that something goes on that may take long (a checkpoint is loaded, a graph
            compiled): then what earlier attempts took shortens nothing.
    """
    least = policy.start_floor
    if not busy and any(s.resumed for s in startups):
        least = min(least, policy.hang_floor * FIRST_STEP_FACTOR)
    longest = max((s.took for s in startups), default=timedelta(0))
    return max(policy.hang_floor, least, longest * policy.hang_factor)


def silent_since(memory: Memory) -> datetime | None:
    """Since when the log of a running attempt with no step has been silent; None: it is none of these.

    Time in which the attempt did not run does not count.
    """
    if memory.running_since is None or memory.trail.last is not None:
        return None
    return max(memory.running_since, memory.written_at or memory.running_since)


def no_first_step(
    memory: Memory,
    policy: Policy,
    attempt: Attempt,
    nodes: Mapping[str, NodeInfo] | None,
    where: str,
    now: datetime,
) -> Anomaly | None:
    """An anomaly once the silence is longer than allowed.

    The caller makes sure that it is a silence: the scheduler has just said that the attempt runs, and all of
    its logs are read to their ends.

    Args:
        memory: what is known of the job.
        policy: how patient to be.
        attempt: the attempt.
        nodes: what the scheduler says of them, where it does.
        where: its log.
        now: the time of detection.
    """
    since = silent_since(memory)
    if since is None:
        return None
    allowed = silence_allowed(policy, memory.startups, busy=memory.trail.rhythm.phase is not None)
    if not is_due(since, allowed, memory.hang_told, now):
        return None
    line = Evidence(
        source=Source.JOB_LOG,
        observed_at=now,
        text=_describe(memory, since, allowed, now),
        where=where,
    )
    return hang(
        DETECTOR,
        (memory.hang_told,),
        attempt,
        line,
        unanswering(memory.nodes, nodes),
        since=since,
        says="The attempt has made no step since it started, and its log has fallen silent.",
    )


def _describe(memory: Memory, since: datetime, allowed: timedelta, now: datetime) -> str:
    after = "since the attempt started" if memory.written_at != since else "after its last line"
    known = ""
    if memory.startups:
        longest = max(s.took for s in memory.startups)
        known = f"; the first step of an earlier attempt came after {in_seconds(longest)}"
    return (
        f"no step yet, and nothing was written to the log for {in_seconds(now - since)} {after}{known}, "
        f"and {in_seconds(allowed)} of silence are allowed"
    )
