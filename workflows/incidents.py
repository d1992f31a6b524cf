"""Tells the cluster's guard of faults that jobs may share: many of them are one incident."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from relight.contracts import Diagnosis, TrainingJob
    from relight.contracts.guard import FaultReport
    from relight.policy.incident import SHARED
    from workflows.signals import tell


async def report_fault(guard_id: str, job: TrainingJob, diagnosis: Diagnosis, verdict: str) -> None:
    """Signals the guard, if there is one and the fault is of the kind that jobs share.

    Args:
        guard_id: the guard; empty: none.
        job: whose fault.
        diagnosis: what it is.
        verdict: of `confirm_fault`; a refuted fault is none.
    """
    if not guard_id or diagnosis.cause not in SHARED or verdict == "refuted":
        return
    report = FaultReport(
        job=job.attempt.job_id, user=job.user, cause=diagnosis.cause, at=diagnosis.occurred_at
    )
    await tell(guard_id, "report_fault", report)
