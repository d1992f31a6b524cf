"""Does a run still save? Its checkpoints against its own rhythm, while it is healthy. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median

from relight.contracts import (
    Anomaly,
    Attempt,
    Cause,
    Evidence,
    JobInfo,
    Progress,
    Role,
    Source,
    Symptom,
)
from relight.contracts.steps import BadCheckpoint, CheckpointLook

DETECTOR = "checkpoints"
KEPT = 10
"""Saves that the rhythm is learned from."""
NEEDED = 3
"""Intervals between saves that must be known."""
FACTOR = 3
"""So many usual intervals without a new usable checkpoint are too long."""
LEAST = timedelta(minutes=10)
"""... and no time shorter than this ever is."""


def remember(saves: Sequence[datetime], look: CheckpointLook) -> tuple[datetime, ...]:
    """When usable checkpoints were saved, oldest first, with the newest that the look found."""
    at = look.saved_at
    if at is None or (saves and at <= saves[-1]):
        return tuple(saves)
    return (*saves, at)[-KEPT:]


def trouble(
    saves: Sequence[datetime],
    look: CheckpointLook,
    info: JobInfo,
    attempt: Attempt,
    progress: Progress | None,
    now: datetime,
) -> Anomaly | None:
    """A `degraded` anomaly when the newest checkpoints cannot be used, or none came for far too long.

    It is context: training goes on, and only a later fault makes it matter.

    Args:
        saves: as `remember` gives them.
        look: what is there now.
        info: the scheduler's word on the job.
        attempt: the attempt that runs.
        progress: how far training has come; without progress a run cannot be expected to save.
        now: the time.
    """
    began = info.start_time
    if began is None or progress is None:
        return None
    bad = [b for b in look.bad if b.modified_at is not None and b.modified_at > began and _is_over(b, now)]
    if bad:
        newest = bad[0]
        text = f"checkpoint {newest.name} of this attempt is {newest.state}: {newest.reason}"
        return _anomaly(attempt, Cause.CHECKPOINT_CORRUPT, newest.name, text, look, progress, now)
    lengths = [(b - a).total_seconds() for a, b in pairwise(saves)]
    if len(lengths) < NEEDED:
        return None
    usual = timedelta(seconds=median(lengths))
    allowed = max(FACTOR * usual, LEAST)
    since = max(saves[-1], began)
    if now - since <= allowed or progress.at - since < allowed / 2:
        return None
    text = (
        f"no new usable checkpoint for {_minutes(now - since)}, while training has come to step "
        f"{progress.step}; they came every {_minutes(usual)}"
    )
    return _anomaly(attempt, Cause.STORAGE, since.isoformat(), text, look, progress, now)


def _is_over(bad: BadCheckpoint, now: datetime) -> bool:
    """A save that is not whole may still go on, unless nothing was written for long."""
    return bad.state == "corrupt" or (bad.modified_at is not None and now - bad.modified_at > LEAST)


def _anomaly(
    attempt: Attempt,
    cause: Cause,
    key: str,
    text: str,
    look: CheckpointLook,
    progress: Progress,
    now: datetime,
) -> Anomaly:
    # The run's user writes these files: they are worth as much as its log.
    evidence = Evidence(source=Source.JOB_LOG, observed_at=now, text=text, where=look.directory)
    return Anomaly(
        anomaly_id=Anomaly.make_id(attempt, DETECTOR, cause, key),
        attempt=attempt,
        symptom=Symptom.DEGRADED,
        cause=cause,
        role=Role.CONTEXT,
        evidence=(evidence,),
        occurred_at=now,
        detected_at=now,
        progress=progress,
        detector=DETECTOR,
        says=f"{text[0].upper()}{text[1:]}.",
    )


def _minutes(length: timedelta) -> str:
    return f"{length.total_seconds() / 60:.0f} min"
