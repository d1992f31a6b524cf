"""Puts the record of an ended recovery into the archive: from Temporal's history, and once only."""

import asyncio
from datetime import UTC, datetime

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.common import Context
from relight.audit.archive import open_archive
from relight.audit.decoding import fetch_history
from relight.audit.events import UnreadableHistory
from relight.audit.places import ArchiveError
from relight.audit.recovery import recovery_audit
from relight.contracts.steps import ArchiveInput


async def archive_recovery(context: Context, given: ArchiveInput) -> str:
    """Archives a recovery, if the settings name an archive. Run again, it finds it there and adds nothing.

    Returns:
        What was done, in words.

    Raises:
        ApplicationError: the archive cannot be written, or its end was changed by somebody.
    """
    url = context.settings.archive.url
    if not url:
        return "this worker has no archive (setting archive.url)"
    history = await fetch_history(activity.client(), given.recovery_id, given.run_id)
    try:
        audit = recovery_audit(
            given.recovery_id, history.events, given.run_id, outcome=given.outcome, ended=given.ended
        )
        archive = open_archive(url, context.settings.state_dir, context.settings.archive.max_file)
        added = await asyncio.to_thread(archive.append, audit, datetime.now(UTC))
    except (ArchiveError, UnreadableHistory) as error:
        raise ApplicationError(str(error), type=type(error).__name__) from error
    return f"archived in {url}" if added else f"was in {url} already"
