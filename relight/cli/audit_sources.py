"""Where the audit of a job or recovery comes from: Temporal, and the archive for what Temporal forgot."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from temporalio.client import Client, WorkflowExecution

from relight.audit.archive import Archive, open_archive
from relight.audit.events import UnreadableHistory
from relight.audit.places import ArchiveError
from relight.audit.reading import read_drain, read_monitor, read_recovery
from relight.audit.record import AuditRecord, RecoveryAudit
from relight.cli.busy import Tell, nobody
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.output import complain
from relight.cli.shapes import AuditView
from relight.cli.watched import Monitor, find_monitor, list_recoveries, list_watches
from relight.config import Settings
from relight.contracts.ids import RECOVERY_WORKFLOW

AT_ONCE = 16
"""Histories fetched at the same time."""


def the_archive(settings: Settings, url: str = "") -> Archive:
    """The archive of the settings, or another one.

    Raises:
        CommandError: there is none, or it cannot be opened.
    """
    where = url or settings.archive.url
    if not where:
        raise CommandError(
            "there is no archive: set archive.url to a directory or an fsspec URL, or name one",
            ExitCode.USAGE,
        )
    try:
        return open_archive(where, settings.state_dir)
    except ArchiveError as error:
        raise CommandError(str(error)) from error


@dataclass(frozen=True)
class Recoveries:
    """Recoveries of a while, from both places."""

    audits: tuple[RecoveryAudit, ...] = ()
    """Each once, oldest first."""
    from_archive: int = 0
    """So many of them only the archive knows any more."""
    unreadable: tuple[str, ...] = ()
    """Ids of those that this version cannot read, which are left out."""


async def recoveries_since(
    client: Client | None, settings: Settings, begin: datetime, tell: Tell = nobody
) -> Recoveries:
    """Every recovery that began since then, from Temporal, and from the archive where Temporal forgot it.

    Args:
        client: Temporal; None: it cannot be asked, so only the archive is.
        settings: say where the archive is, and which cluster it is about.
        begin: recoveries that began earlier do not count.
        tell: is told how far it has come.
    """
    read, unreadable = await _from_temporal(client, settings, begin, tell) if client is not None else ([], [])
    found = {audit.recovery_id: audit for audit in read}
    if settings.archive.url:
        for entry in the_archive(settings).entries():
            of_here = not settings.cluster or entry.audit.job.cluster == settings.cluster
            if entry.audit.started >= begin and of_here:
                found.setdefault(entry.recovery_id, entry.audit)
    return Recoveries(_in_order([*found.values()]), len(found) - len(read), tuple(unreadable))


def real(audits: tuple[RecoveryAudit, ...]) -> tuple[RecoveryAudit, ...]:
    """Without those of jobs that `relight simulate` made."""
    return tuple(audit for audit in audits if not audit.job.simulated)


def told_left_out(count: int) -> str:
    """In words, that simulated recoveries do not count."""
    return f"{count} simulated {'recovery is' if count == 1 else 'recoveries are'} left out"


async def _from_temporal(
    client: Client, settings: Settings, begin: datetime, tell: Tell
) -> tuple[list[RecoveryAudit], list[str]]:
    query = f"WorkflowType='{RECOVERY_WORKFLOW}' AND StartTime >= '{begin:%Y-%m-%dT%H:%M:%SZ}'"
    if settings.cluster:
        query += f" AND RelightCluster='{settings.cluster}'"
    slots = asyncio.Semaphore(AT_ONCE)
    unreadable: list[str] = []
    begun = 0

    async def one(execution: WorkflowExecution) -> RecoveryAudit | None:
        nonlocal begun
        async with slots:
            begun += 1
            tell(f"{begun} of {len(listed)}")
            try:
                return await read_recovery(client, execution.id, execution.run_id)
            except UnreadableHistory as error:
                complain(f"{execution.id} is left out: {error}", "warning")
                unreadable.append(execution.id)
                return None

    listed = [execution async for execution in client.list_workflows(query)]
    read = await asyncio.gather(*(one(execution) for execution in listed))
    return [audit for audit in read if audit is not None], unreadable


async def of_target(client: Client | None, settings: Settings, target: str) -> AuditView:
    """The audit of a job, or of one recovery (an id that begins with `recover:`).

    Args:
        client: Temporal; None: it cannot be asked, so only the archive is.
        settings: say where the archive is.
        target: the job id, the monitor's id or the recovery's id.

    Raises:
        CommandError: neither knows of it.
    """
    if target.startswith("recover:"):
        found = await read_recovery(client, target) if client is not None else None
        if found is not None and client is not None:
            return AuditView(
                target=target,
                monitor_id=found.monitor_id,
                recoveries=(found,),
                drains=await _drains(client, [found]),
            )
        return _from_archive(settings, target, lambda audit: audit.recovery_id == target)
    try:
        if client is None:
            raise CommandError("Temporal does not answer", ExitCode.NO_TEMPORAL)
        monitor = await find_monitor(client, target, settings.cluster, ended=True)
    except CommandError as error:
        if not settings.archive.url or error.code not in (ExitCode.NOT_FOUND, ExitCode.NO_TEMPORAL):
            raise
        return _from_archive(settings, target, lambda audit: _is_about(audit, target, settings.cluster))
    watches = await list_watches(client, monitor, target)
    ids = tuple(dict.fromkeys(watch.id for watch in watches))
    listed = [found.id for id in ids for found in await list_recoveries(client, id)]
    recoveries = [await read_recovery(client, found) for found in listed]
    known = {audit.recovery_id: audit for audit in recoveries if audit is not None}
    kept = {}
    if settings.archive.url:
        archive = the_archive(settings)
        for name in dict.fromkeys((target, *ids)):
            for entry in archive.entries(name):
                of_it = entry.audit.monitor_id in ids or _is_about(entry.audit, target, monitor.job.cluster)
                if of_it and entry.recovery_id not in known:
                    kept[entry.recovery_id] = entry.audit
    return AuditView(
        target=target,
        monitor_id=monitor.id,
        monitor_ids=ids,
        monitor=await _watches(client, watches),
        recoveries=_in_order([*known.values(), *kept.values()]),
        drains=await _drains(client, [*known.values(), *kept.values()]),
        from_archive=tuple(kept),
    )


async def _watches(client: Client, watches: list[Monitor]) -> tuple[AuditRecord, ...]:
    """What the monitors tell, one watch after the other."""
    told: dict[tuple[str, int, datetime], tuple[AuditRecord, ...]] = {}
    for watch in watches:
        records = await read_monitor(client, watch.id, watch.execution.run_id)
        if records:
            # A list that lags behind names a run that was continued meanwhile: the later one tells it all.
            told[watch.id, records[0].event_id, records[0].at] = records
    return tuple(record for records in told.values() for record in records)


async def _drains(client: Client, audits: list[RecoveryAudit]) -> tuple[AuditRecord, ...]:
    found = [await read_drain(client, drain) for audit in audits for drain in audit.drains]
    return tuple(record for records in found for record in records)


def _from_archive(settings: Settings, target: str, wanted: Callable[[RecoveryAudit], bool]) -> AuditView:
    if not settings.archive.url:
        raise CommandError(f"there is no workflow {target}, and no archive (archive.url)", ExitCode.NOT_FOUND)
    archive = the_archive(settings)
    for checked in archive.check():
        if checked.problem is not None:
            complain(f"the archive is not as it was written: {checked.problem}", "warning")
    found = [entry.audit for entry in archive.entries(target) if wanted(entry.audit)]
    if not found:
        raise CommandError(f"neither Temporal nor the archive knows of {target}", ExitCode.NOT_FOUND)
    return AuditView(
        target=target,
        monitor_id=found[-1].monitor_id,
        recoveries=_in_order(found),
        from_archive=tuple(audit.recovery_id for audit in found),
    )


def _is_about(audit: RecoveryAudit, target: str, cluster: str) -> bool:
    job = audit.job
    return target == audit.monitor_id or (
        job.attempt.job_id == target and (not cluster or job.cluster == cluster)
    )


def _in_order(audits: list[RecoveryAudit]) -> tuple[RecoveryAudit, ...]:
    return tuple(sorted(audits, key=lambda audit: audit.started))
