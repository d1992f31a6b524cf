"""Puts the record of an ended recovery into the archive. Its end was told before: nothing waits for this."""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from relight.contracts import RecoveryOutcome
    from relight.contracts.steps import ArchiveInput

ONE_TRY = timedelta(minutes=1)
PATIENCE = timedelta(minutes=10)
"""How long an archive that cannot be written is tried again; `relight audit archive` makes up for it."""


async def archive(outcome: RecoveryOutcome) -> None:
    """Archives this recovery. A failure is no failure of the recovery: it is logged, and in history."""
    info = workflow.info()
    try:
        await workflow.execute_activity(
            "archive_recovery",
            ArchiveInput(
                recovery_id=info.workflow_id, run_id=info.run_id, outcome=outcome, ended=workflow.now()
            ),
            result_type=str,
            summary="Put the record of this recovery into the archive",
            start_to_close_timeout=ONE_TRY,
            schedule_to_close_timeout=PATIENCE,
            retry_policy=RetryPolicy(maximum_interval=timedelta(minutes=1)),
        )
    except (ActivityError, asyncio.CancelledError) as error:
        workflow.logger.warning("the recovery could not be archived: %s", error)
