"""The end of an attempt by the scheduler's own word, and what kind of end it was."""

from datetime import datetime

from relight.contracts import (
    Anomaly,
    Attempt,
    Cause,
    Evidence,
    JobInfo,
    JobState,
    Progress,
    Source,
    Suspect,
    Symptom,
)

DETECTOR = "job-end"

_CAUSES = {
    JobState.NODE_FAIL: Cause.NODE_FAILURE,
    JobState.BOOT_FAIL: Cause.NODE_FAILURE,
    JobState.OUT_OF_MEMORY: Cause.HOST_OOM,
}

_ENDS_AS = {
    "NonZeroExitCode": JobState.FAILED,
    "OutOfMemory": JobState.OUT_OF_MEMORY,
    "TimeLimit": JobState.TIMEOUT,
}
"""What a completing job will end as, by its reason. A cancelled one has none (seen on Slurm 22.05)."""


def as_ended(info: JobInfo) -> JobInfo:
    """The job in the state that it will end in, where that is known while its nodes are still completing.

    Slurm may say only COMPLETING until the last process is gone, which can take minutes.
    """
    if info.state is JobState.COMPLETING and info.reason in _ENDS_AS:
        return info.model_copy(update={"state": _ENDS_AS[info.reason]})
    return info


def job_end(
    info: JobInfo, attempt: Attempt, progress: Progress | None, lost: tuple[str, ...], now: datetime
) -> Anomaly | None:
    """An anomaly if the attempt ended by a fault; None if somebody or a limit ended it, or if it goes on.

    Args:
        info: what the scheduler says of the job.
        attempt: the attempt that this is.
        progress: how far training had come.
        lost: nodes of its allocation that the scheduler has given up.
        now: the time of detection.
    """
    if not info.state.is_failure:
        return None
    return Anomaly(
        anomaly_id=Anomaly.make_id(attempt, DETECTOR, info.state.value),
        attempt=attempt,
        symptom=Symptom.CRASH,
        cause=_CAUSES.get(info.state, Cause.UNKNOWN),
        suspects=tuple(Suspect(node=node, because="the scheduler lost it") for node in lost),
        evidence=(
            Evidence(source=Source.SCHEDULER, observed_at=now, text=describe(info), where="job state"),
        ),
        occurred_at=when_ended(info, progress, now),
        detected_at=now,
        progress=progress,
        detector=DETECTOR,
        hold_out=bool(lost),
        says=f"The scheduler says that the job ended {info.state.value}.",
    )


def describe(info: JobInfo) -> str:
    """How the attempt ended, in words."""
    text = f"job {info.job_id} ended {info.state.value}"
    if info.exit_signal:
        text += f", killed by signal {info.exit_signal}"
    elif info.exit_code is not None:
        text += f", exit code {info.exit_code}"
    return f"{text} ({info.reason})" if info.reason and info.reason != "None" else text


def when_ended(info: JobInfo, progress: Progress | None, now: datetime) -> datetime:
    """The end by the scheduler's clock, which counts whole seconds, but not before the last progress."""
    end = info.end_time if info.end_time is not None and info.end_time <= now else now
    return max(end, progress.at) if progress is not None and progress.at <= now else end
