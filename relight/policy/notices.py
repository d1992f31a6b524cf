"""What people are told of a recovery and of a cluster's guard. Pure."""

from datetime import timedelta

from relight.contracts import Diagnosis, Plan, RecoveryOutcome, TrainingJob
from relight.contracts.guard import Incident
from relight.contracts.notice import Event, Notice
from relight.durations import format_duration


def plan_waits(
    recovery_id: str, job: TrainingJob, diagnosis: Diagnosis, plan: Plan, needed: int, patience: timedelta
) -> Notice:
    """A plan waits for people."""
    people = "two people" if needed > 1 else "a person"
    return Notice(
        event=Event.APPROVAL,
        text=f"job {job.attempt.label} ({job.run}) has {_what(diagnosis)}; "
        f"a plan waits for {people}, for {format_duration(patience)}",
        state="awaiting-approval",
        plan=plan.digest,
        command=f"relight approve {job.attempt.job_id} --plan {plan.digest}",
        **_of(recovery_id, job, diagnosis),
    )


def recovery_ended(
    recovery_id: str, job: TrainingJob, diagnosis: Diagnosis, outcome: RecoveryOutcome
) -> Notice:
    """A recovery ended."""
    return Notice(
        event=Event.ENDED,
        text=f"the recovery of job {job.attempt.label} ({job.run}) from {_what(diagnosis)} ended: "
        f"{outcome.outcome.value}",
        state=outcome.outcome.value,
        command=f"relight show {job.attempt.job_id}",
        **_of(recovery_id, job, diagnosis),
    )


def breaker_tripped(cluster: str, partition: str, reason: str) -> Notice:
    """A circuit breaker opened."""
    option = f" --partition {partition}" if partition else ""
    where = f"partition {partition}" if partition else "the cluster"
    return Notice(
        event=Event.BREAKER,
        cluster=cluster,
        text=f"no node of {where} is drained any more: {reason}",
        state="open",
        command=f"relight guard reset{option}",
    )


def incident_began(cluster: str, incident: Incident) -> Notice:
    """Many jobs fail alike."""
    return Notice(
        event=Event.INCIDENT,
        cluster=cluster,
        text=f"{incident.reason}; their recoveries wait, and no node is drained",
        cause=incident.cause.value,
        state="incident",
        command="relight guard",
    )


def _what(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.symptom.value} ({diagnosis.cause.value})"


def _of(recovery_id: str, job: TrainingJob, diagnosis: Diagnosis) -> dict[str, str]:
    return {
        "cluster": job.cluster,
        "workflow_id": recovery_id,
        "job": job.attempt.label,
        "run": job.run,
        "user": job.user,
        "cause": diagnosis.cause.value,
    }
