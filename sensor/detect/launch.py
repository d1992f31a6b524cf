"""The scheduler could not start the attempt: it has put the job back in the queue, held."""

from datetime import datetime

from relight.contracts import Anomaly, Attempt, Cause, Evidence, JobInfo, Source, Symptom
from relight.policy.holds import could_not_start

DETECTOR = "launch"


def launch_failure(info: JobInfo, attempt: Attempt, now: datetime) -> Anomaly | None:
    """An anomaly if the scheduler holds the attempt because it could not start it; None if not.

    Which node was to blame is not told: the job has none any more. Where a prolog failed, Slurm has drained
    the node itself.

    Args:
        info: what the scheduler says of the job.
        attempt: the attempt that waits, held.
        now: the time of detection.
    """
    if not could_not_start(info):
        return None
    text = f"job {info.job_id} is held: {info.reason.replace('_', ' ')}"
    return Anomaly(
        anomaly_id=Anomaly.make_id(attempt, DETECTOR),
        attempt=attempt,
        symptom=Symptom.CRASH,
        cause=Cause.SCHEDULER,
        evidence=(Evidence(source=Source.SCHEDULER, observed_at=now, text=text, where="job state"),),
        occurred_at=now,
        detected_at=now,
        detector=DETECTOR,
        key=info.reason,
        says="The scheduler could not start the job, and holds it.",
    )
