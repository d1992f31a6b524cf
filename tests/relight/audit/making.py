"""Audits made up for tests, and the recorded histories of the workflows' tests."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHistory

from relight.audit.record import AuditRecord, RecoveryAudit, Who
from relight.contracts import Attempt, Cause, Diagnosis, RecoveryOutcome, Symptom, TrainingJob
from relight.contracts.outcome import Outcome

T0 = datetime(2026, 12, 2, 3, 0, tzinfo=UTC)
HISTORIES = Path(__file__).parents[2] / "workflows" / "histories"


def recorded(name: str) -> WorkflowHistory:
    """A recorded history; its id is its name."""
    return WorkflowHistory.from_json(name, (HISTORIES / f"{name}.json").read_text())


def an_audit(number: int = 1, **fields: Any) -> RecoveryAudit:
    """A recovery that resumed, in a few words."""
    attempt = Attempt(cluster="lab", job_id=str(number), submit_time=T0, restart_count=0)
    recovery_id = f"recover:lab:{number}:0:a"
    defaults: dict[str, Any] = {
        "recovery_id": recovery_id,
        "job": TrainingJob(cluster="lab", run="r", attempt=attempt, partition="gpu"),
        "diagnosis": Diagnosis(
            symptom=Symptom.CRASH,
            cause=Cause.USER_CODE,
            retryable=True,
            occurred_at=T0,
            detected_at=T0 + timedelta(seconds=1),
        ),
        "started": T0,
        "ended": T0 + timedelta(minutes=1),
        "outcome": RecoveryOutcome(recovery_id=recovery_id, outcome=Outcome.RESUMED, attempt=attempt),
        "records": (
            AuditRecord(
                at=T0,
                who=Who.RELIGHT,
                what="diagnosed",
                text="ein Fehler: Ü",
                workflow_id=recovery_id,
                event_id=1,
            ),
        ),
    }
    return RecoveryAudit(**(defaults | fields))
