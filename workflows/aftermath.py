"""What a restart came to: where training resumed, what it cost, what the next recovery must know. Pure."""

from datetime import datetime

from relight.contracts import Anomaly, Attempt, Cause, Diagnosis, Evidence, Progress, Source, Symptom
from relight.contracts.outcome import CheckpointRef, Timeline
from relight.contracts.steps import ConfirmResult, LocateResult, VerifyResult
from relight.policy.resume_proof import gpu_hours


def loaded(verified: VerifyResult, checkpoint: LocateResult | None) -> CheckpointRef | None:
    """The checkpoint that an attempt resumed from: the one its log names if that is older, or the planned."""
    planned = checkpoint.step if checkpoint is not None else None
    if verified.loaded_step and (planned is None or verified.loaded_step < planned - 1):
        return CheckpointRef(step=verified.loaded_step)
    if checkpoint is None or checkpoint.name is None:
        return None
    return CheckpointRef(name=checkpoint.name, step=checkpoint.step)


def divergence(
    attempt: Attempt, verified: VerifyResult, source: CheckpointRef, failed_at: int | None, at: datetime
) -> Anomaly:
    """What the monitor is told of an attempt that diverged, so that another recovery follows.

    Args:
        attempt: the one that diverged.
        verified: the verdict.
        source: the checkpoint that it resumed from.
        failed_at: the step that training is still to pass.
        at: when it was seen.
    """
    goal = max((step for step in (failed_at, verified.passed_step) if step is not None), default=None)
    name = source.name or f"step {source.step}"
    return Anomaly(
        anomaly_id=Anomaly.make_id(attempt, "verify_resume", name),
        attempt=attempt,
        symptom=Symptom.DEGRADED,
        cause=Cause.NUMERICAL,
        evidence=(Evidence(source=Source.JOB_LOG, observed_at=at, text=verified.summary),),
        occurred_at=at,
        detected_at=at,
        progress=None if goal is None else Progress(step=goal, at=at),
        detector="verify_resume",
        key=f"diverged from {name}",
        says=f"Training diverged after it resumed from {name}.",
    )


def steps_replayed(failed_at: int | None, resumed_at: int | None) -> int | None:
    """Steps that had to be trained again; None where it is not known where training failed or resumed."""
    return None if failed_at is None or resumed_at is None else max(0, failed_at - resumed_at)


def gpu_hours_lost(
    diagnosis: Diagnosis,
    confirmation: ConfirmResult | None,
    times: Timeline,
    trained_to: int | None,
    now: datetime,
) -> float | None:
    """From the fault until training was past the failed step; where it is not, with what is left of that.

    Args:
        diagnosis: says where training failed, and how long a step takes.
        confirmation: has the scheduler's word on the job.
        times: of the recovery.
        trained_to: the furthest step of the new attempt, or the step that it resumes from; None: not known.
        now: the end of the recovery.
    """
    info = confirmation.job_info if confirmation is not None else None
    if info is None or times.occurred is None:
        return None
    left, progress = 0, diagnosis.progress
    if times.productive is None and progress is not None:
        if trained_to is None:
            return None
        left = progress.step - trained_to
    interval = progress.interval.total_seconds() if progress is not None and progress.interval else None
    lost = (times.productive or now) - times.occurred
    return gpu_hours(lost.total_seconds(), left, interval, info.gpus)
