"""The moments of a recovery that is still open, read from its history, are those that it tells at its end."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relight.audit.moments import moments
from relight.audit.record import AuditRecord, RecoveryAudit, Who
from relight.audit.recovery import recovery_audit
from relight.contracts.commands import CommandGiven
from relight.contracts.outcome import Timeline
from tests.relight.audit.making import HISTORIES, an_audit, recorded

T0 = datetime(2026, 12, 2, 3, tzinfo=UTC)
ENDED = [path.stem for path in sorted(HISTORIES.glob("*.recovery.json")) if "late_evidence" not in path.stem]


def there(times: Timeline) -> set[str]:
    # The steps of the recordings are doubles, whose answers name no commands: `acted` is tried below.
    return {name for name, at in times.model_dump(exclude={"acted"}).items() if at is not None}


@pytest.mark.parametrize("name", ENDED)
def test_recorded_recoveries(name: str) -> None:
    audit = recovery_audit(name, recorded(name).events)
    assert audit.outcome is not None
    assert moments(audit) == audit.outcome.times, "an ended one says it itself"
    assert there(moments(audit.model_copy(update={"outcome": None}))) == there(audit.outcome.times)


def record(
    second: int, what: str, text: str = "", step: str = "", accepted: bool | None = None
) -> AuditRecord:
    at = T0 + timedelta(seconds=second)
    given: Any = None
    if what == "command":
        given = CommandGiven(operation="requeuehold", arguments=("7",), at=at, accepted=accepted)
    return AuditRecord(
        at=at,
        who=Who.RELIGHT,
        what=what,
        text=text,
        step=step,
        command=given,
        workflow_id="r",
        event_id=second,
    )


def opened(*records: AuditRecord) -> RecoveryAudit:
    return an_audit(7).model_copy(update={"outcome": None, "ended": None, "records": records})


CONFIRMED = record(1, "confirmed", "confirmed: the scheduler says FAILED", "confirm_fault")
APPROVED = record(20, "approved")
DRAINED = record(22, "command", step="drain_job", accepted=True)


@pytest.mark.parametrize(
    ("records", "seconds"),
    [
        ((), {}),
        ((record(1, "confirmed", "inconclusive: nobody knows"),), {}),
        ((CONFIRMED,), {"confirmed": 1}),
        ((CONFIRMED, record(10, "approved"), APPROVED), {"confirmed": 1, "approved": 20}),
        ((CONFIRMED, record(21, "command", step="drain_job", accepted=False)), {"confirmed": 1}),
        (
            (CONFIRMED, APPROVED, DRAINED, record(30, "did", step="drain_job")),
            {"confirmed": 1, "approved": 20, "acted": 22},
        ),
        (
            (CONFIRMED, DRAINED, record(40, "did", "node01", "verify_running")),
            {"confirmed": 1, "acted": 22, "running": 40},
        ),
        (
            (CONFIRMED, DRAINED, record(50, "did", "from_scratch: step 0", "verify_resume")),
            {"confirmed": 1, "acted": 22},
        ),
    ],
)
def test_an_open_recovery(records: tuple[AuditRecord, ...], seconds: dict[str, int]) -> None:
    audit = opened(*records)
    found = moments(audit)
    assert (found.occurred, found.detected) == (audit.diagnosis.occurred_at, audit.diagnosis.detected_at)
    later = found.model_dump(exclude={"occurred", "detected"}, exclude_none=True)
    assert later == {name: T0 + timedelta(seconds=second) for name, second in seconds.items()}
