"""Fetches histories from Temporal and makes audits of them."""

from collections.abc import AsyncIterator, Callable, Sequence

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from relight.audit.decoding import fetch_history
from relight.audit.drain import drain_records
from relight.audit.monitor import monitor_records
from relight.audit.record import AuditRecord, RecoveryAudit
from relight.audit.recovery import recovery_audit

ReadRun = Callable[[str, Sequence[HistoryEvent]], tuple[AuditRecord, ...]]
MAX_RUNS = 200
"""Of a workflow that renewed itself: more than a year's, at one a day or two."""


async def read_recovery(client: Client, recovery_id: str, run_id: str | None = None) -> RecoveryAudit | None:
    """The audit of a recovery; None: Temporal has no such workflow (any more).

    Raises:
        RPCError: Temporal answers with an error.
        UnreadableHistory: the workflow is no recovery that this version can read.
    """
    try:
        history = await fetch_history(client, recovery_id, run_id)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    return recovery_audit(recovery_id, history.events)


async def read_monitor(client: Client, monitor_id: str, run_id: str | None = None) -> tuple[AuditRecord, ...]:
    """What the history of a monitor tells, over all runs of one watch that Temporal still has, oldest first.

    Args:
        client: the connection.
        monitor_id: which monitor.
        run_id: the last run of the watch; None: of the latest, since a job can be watched again.

    Raises:
        RPCError: Temporal answers with an error.
        UnreadableHistory: the workflow is no monitor that this version can read.
    """
    return await _all_runs(client, monitor_id, monitor_records, run_id)


async def read_drain(client: Client, drain_id: str) -> tuple[AuditRecord, ...]:
    """What the history of a node's drain tells, as `read_monitor`."""
    return await _all_runs(client, drain_id, drain_records)


async def _all_runs(
    client: Client, workflow_id: str, read: ReadRun, run_id: str | None = None
) -> tuple[AuditRecord, ...]:
    runs = [found async for found in _runs(client, workflow_id, read, run_id)]
    return tuple(record for run in reversed(runs) for record in run)


async def _runs(
    client: Client, workflow_id: str, read: ReadRun, run_id: str | None
) -> AsyncIterator[tuple[AuditRecord, ...]]:
    """The records of each run, the latest first: a run names the one that it continues."""
    for _ in range(MAX_RUNS):
        try:
            history = await fetch_history(client, workflow_id, run_id)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return
            raise
        events = list(history.events)
        yield read(workflow_id, events)
        run_id = events[0].workflow_execution_started_event_attributes.continued_execution_run_id
        if not run_id:
            return
