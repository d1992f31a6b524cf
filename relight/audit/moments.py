"""When each thing of a recovery happened, from its audit: also of one that has not ended. Pure."""

from collections.abc import Callable
from datetime import datetime

from relight.audit.record import AuditRecord, RecoveryAudit
from relight.contracts.outcome import Timeline


def moments(audit: RecoveryAudit) -> Timeline:
    """The moments of a recovery; None where one has not come, or never did.

    An ended recovery says them itself. Of an open one they are read from its records, where the answer of a
    step stands for what it tells of: `running`, for example, is when that was seen.
    """
    if audit.outcome is not None:
        return audit.outcome.times
    acted = _first(audit, _acts)
    return Timeline(
        occurred=audit.diagnosis.occurred_at,
        detected=audit.diagnosis.detected_at,
        confirmed=_first(audit, lambda r: r.what == "confirmed" and r.text.startswith("confirmed:")),
        approved=_approved(audit, acted),
        acted=acted,
        running=_last(audit, lambda r: r.what == "did" and r.step == "verify_running", acted),
        productive=_last(
            audit,
            lambda r: r.what == "did" and r.step == "verify_resume" and r.text.startswith("resumed"),
            acted,
        ),
    )


def _acts(record: AuditRecord) -> bool:
    """The scheduler took a changing command. A step that needed none to take the job down changed nothing."""
    if record.command is not None:
        return record.command.accepted is True
    return record.what == "did" and record.step == "resubmit"


def _approved(audit: RecoveryAudit, acted: datetime | None) -> datetime | None:
    """The last word that was taken before the first change; where two people decide, the second's."""
    said = [
        record.at
        for record in audit.records
        if record.what == "approved" and (acted is None or record.at <= acted)
    ]
    return max(said, default=None)


def _first(audit: RecoveryAudit, is_it: Callable[[AuditRecord], bool]) -> datetime | None:
    return min((record.at for record in audit.records if is_it(record)), default=None)


def _last(
    audit: RecoveryAudit, is_it: Callable[[AuditRecord], bool], after: datetime | None
) -> datetime | None:
    return max(
        (record.at for record in audit.records if is_it(record) and (after is None or record.at >= after)),
        default=None,
    )
