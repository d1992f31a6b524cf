"""No progress: the attempt runs, and its step lines have stopped for longer than its rhythm allows."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from relight.contracts import (
    Anomaly,
    Attempt,
    Evidence,
    NodeInfo,
    Policy,
    Progress,
    Source,
    Suspect,
    Symptom,
    TrainingJob,
)
from sensor.memory import Memory
from sensor.view import is_silent

DETECTOR = "no-progress"
MOST_REPEATS = 4
"""A hang that goes on is reported again so often, each time after twice the silence."""


def patient(job: TrainingJob) -> Policy:
    """The job's policy, with the patience that refuted hangs have taught."""
    policy = job.policy
    if job.patience == 1:  # of nearly all jobs; this runs at each look at each of them
        return policy
    longer = {
        "hang_floor": policy.hang_floor * job.patience,
        "hang_factor": policy.hang_factor * job.patience,
    }
    return policy.model_copy(update=longer)


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
    if deadline is None or progress is None or read_at is None or memory.hang_told > MOST_REPEATS:
        return None
    allowed = deadline - read_at
    # Told, and not taken for a hang? A silence that has doubled since is worth another word.
    if now < read_at + allowed * 2**memory.hang_told:
        return None
    silent = [] if nodes is None else [nodes[n] for n in memory.nodes if n in nodes and is_silent(nodes[n])]
    return Anomaly(
        anomaly_id=Anomaly.make_id(attempt, DETECTOR, progress.step, memory.hang_told),
        attempt=attempt,
        symptom=Symptom.HANG,
        suspects=tuple(Suspect(node=n.name, because="it does not answer the scheduler") for n in silent),
        evidence=(
            Evidence(
                source=Source.JOB_LOG,
                observed_at=now,
                text=_describe(progress, allowed, now, at_least=memory.step_written is not None),
                where=memory.trail.where,
                line=memory.trail.line_number,
            ),
            *_silent_nodes(silent, now),
        ),
        occurred_at=progress.at,
        detected_at=now,
        progress=progress,
        detector=DETECTOR,
        hold_out=bool(silent),
        says="Training stopped making steps while the job runs on.",
    )


def _describe(progress: Progress, allowed: timedelta, now: datetime, *, at_least: bool) -> str:
    pace = (
        f"they came every {_seconds(progress.interval)}"
        if progress.interval
        else "their pace is not known yet"
    )
    silence = f"{'at least ' if at_least else ''}{_seconds(now - progress.at)}"
    return (
        f"no step line for {silence} after step {progress.step}; {pace}, "
        f"and {_seconds(allowed)} of silence are allowed"
    )


def _silent_nodes(silent: Sequence[NodeInfo], now: datetime) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            source=Source.SCHEDULER,
            observed_at=now,
            node=node.name,
            text=f"node {node.name} does not answer the scheduler",
            where="node state",
        )
        for node in silent[:10]
    )


def _seconds(duration: timedelta) -> str:
    seconds = duration.total_seconds()
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"
