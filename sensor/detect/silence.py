"""What the detectors of silence share: how patient the job's policy is, and nodes that do not answer."""

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
from sensor.view import is_silent

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
        "start_floor": policy.start_floor * job.patience,
    }
    return policy.model_copy(update=longer)


def is_due(since: datetime, allowed: timedelta, told: int, now: datetime) -> bool:
    """The silence is to be told: it is longer than allowed, or has doubled since it was told last.

    Told, and not taken for a hang? Then it is worth another word, a few times.
    """
    return told <= MOST_REPEATS and now >= since + allowed * 2**told


def hang(
    detector: str,
    key: tuple[object, ...],
    attempt: Attempt,
    line: Evidence,
    silent: Sequence[NodeInfo],
    *,
    since: datetime,
    says: str,
    progress: Progress | None = None,
) -> Anomaly:
    """The anomaly of a silence.

    Args:
        detector: whose it is.
        key: what makes it another one than those that this detector told before.
        attempt: the attempt that is silent.
        line: what the log, or its silence, says; seen at the time of detection.
        silent: nodes of the allocation that do not answer the scheduler.
        since: when the silence began.
        says: what it means, for a person.
        progress: how far training had come.
    """
    return Anomaly(
        anomaly_id=Anomaly.make_id(attempt, detector, *key),
        attempt=attempt,
        symptom=Symptom.HANG,
        suspects=suspected(silent),
        evidence=(line, *evidence_of(silent, line.observed_at)),
        occurred_at=since,
        detected_at=line.observed_at,
        progress=progress,
        detector=detector,
        hold_out=bool(silent),
        says=says,
    )


def unanswering(names: Sequence[str], nodes: Mapping[str, NodeInfo] | None) -> list[NodeInfo]:
    """Those of the allocation that do not answer the scheduler; none where nobody knows."""
    return [] if nodes is None else [nodes[n] for n in names if n in nodes and is_silent(nodes[n])]


def suspected(silent: Sequence[NodeInfo]) -> tuple[Suspect, ...]:
    """These nodes, as suspects."""
    return tuple(Suspect(node=n.name, because="it does not answer the scheduler") for n in silent)


def evidence_of(silent: Sequence[NodeInfo], now: datetime) -> tuple[Evidence, ...]:
    """What the scheduler says of these nodes."""
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


def in_seconds(duration: timedelta) -> str:
    """For a person: `4.0 s`, `1800 s`."""
    seconds = duration.total_seconds()
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"
