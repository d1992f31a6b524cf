"""What a report is made from: recoveries, the jobs that were watched, and the guard's ledger of nodes."""

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus, WorkflowFailureError
from temporalio.service import RPCError

from relight.cli.audit_sources import AT_ONCE, real, recoveries_since, told_left_out
from relight.cli.exit_codes import CommandError
from relight.cli.guarded import cluster_of, guard_nodes
from relight.cli.shapes import ReportView
from relight.cli.watched import as_monitor
from relight.config import Settings
from relight.contracts.guard import NodeView
from relight.contracts.ids import MONITOR_WORKFLOW
from relight.contracts.messages import EndReason, MonitorResult
from relight.report.figures import figures
from relight.report.records import Watch, chains, loss_of
from relight.scheduler.port import SchedulerError


async def gather(
    client: Client | None,
    settings: Settings,
    window: timedelta,
    write: timedelta | None,
    now: datetime,
    *,
    simulated: bool = False,
) -> ReportView:
    """Reads what there is, and says in the report's remarks what could not be read.

    Args:
        client: Temporal; None: it does not answer, so only the archive is read.
        settings: say where the archive is, and which cluster it is about (none: all).
        window: how far back.
        write: how long training stands still while a checkpoint is written; None: not known.
        now: until when.
        simulated: count also what `relight simulate` broke.
    """
    since = now - window
    found = await recoveries_since(client, settings, since)
    audits = found.audits if simulated else real(found.audits)
    remarks = [f"{id} is left out: this version cannot read its history." for id in found.unreadable]
    if left_out := len(found.audits) - len(audits):
        remarks.append(f"{told_left_out(left_out)} (--simulated counts them).")
    watches: list[Watch] = []
    nodes: tuple[NodeView, ...] | None = None
    guarded = ""
    if client is None:
        remarks.append("Temporal did not answer: only recoveries from the archive are in this report.")
    else:
        watches = await _watches(client, settings, since)
        watches = [watch for watch in watches if simulated or not watch.job.simulated]
        try:
            guarded = await cluster_of(client, settings)
            nodes = await guard_nodes(client, settings, guarded)
        except (CommandError, SchedulerError, RPCError) as error:
            remarks.append(f"The ledger of nodes could not be asked: {error}.")
    told = {audit.job.cluster for audit in audits} | {watch.job.cluster for watch in watches}
    all_chains = chains(watches, [loss_of(audit, now) for audit in audits], now)
    return ReportView(
        cluster=settings.cluster or _only(told or {guarded}),
        made=now,
        figures=figures(all_chains, since, now, write),
        chains=all_chains,
        nodes=nodes,
        from_archive=found.from_archive,
        remarks=tuple(remarks),
    )


def _only(names: set[str]) -> str:
    """The one name; empty where there are several."""
    return next(iter(names)) if len(names) == 1 else ""


async def _watches(client: Client, settings: Settings, since: datetime) -> list[Watch]:
    """Jobs that were watched at some time since then, as far as Temporal still knows them."""
    query = f"WorkflowType='{MONITOR_WORKFLOW}'"
    query += f" AND (ExecutionStatus='Running' OR CloseTime >= '{since:%Y-%m-%dT%H:%M:%SZ}')"
    if settings.cluster:
        query += f" AND RelightCluster='{settings.cluster}'"
    runs: dict[str, list[WorkflowExecution]] = {}
    async for execution in client.list_workflows(query):
        runs.setdefault(execution.id, []).append(execution)
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(mine: list[WorkflowExecution]) -> Watch | None:
        async with slots:
            return await _watch(client, mine)

    return [watch for watch in await asyncio.gather(*map(one, runs.values())) if watch is not None]


async def _watch(client: Client, runs: Iterable[WorkflowExecution]) -> Watch | None:
    """One job, from the runs of its monitor, which renews itself now and then; None: it cannot be read."""
    in_order = sorted(runs, key=lambda run: run.start_time)
    last = in_order[-1]
    monitor = await as_monitor(last)
    if monitor is None:
        return None
    return Watch(
        monitor_id=last.id,
        job=monitor.job,
        began=in_order[0].start_time,
        ended=last.close_time,
        end=await _end(client, last) if last.status is WorkflowExecutionStatus.COMPLETED else None,
    )


async def _end(client: Client, run: WorkflowExecution) -> EndReason | None:
    """How a monitor ended; None: it has no result that this version can read."""
    handle = client.get_workflow_handle(run.id, run_id=run.run_id, result_type=MonitorResult)
    try:
        result: MonitorResult = await handle.result(follow_runs=False)
    except (WorkflowFailureError, ValueError):
        return None
    return result.end
