"""Finds the monitors and recoveries that a command is about, by job id or by workflow id."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

import typer
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
)
from temporalio.service import RPCError, RPCStatusCode

from relight.cli.completion import complete_job
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.output import complain
from relight.cli.shapes import JobView, RecoveryView, StandStill, WatchedJob
from relight.cli.stand_still import DECLINED, stand_still
from relight.contracts import RecoveryOutcome, TrainingJob
from relight.contracts.ids import MEMO_JOB, MONITOR_WORKFLOW, RECOVERY_WORKFLOW, STATE
from relight.contracts.messages import MonitorStatus, RecoveryStatus

ANSWER = timedelta(seconds=8)
"""How long a worker may take to answer a query; it replays a workflow that it has not in memory."""
AT_ONCE = 16
"""Queries under way at the same time."""

JobTarget = Annotated[
    str,
    typer.Argument(help="Job id, or the id of the job's monitor or recovery.", autocompletion=complete_job),
]
"""The job that a command is about."""

_SAFE = re.compile(r"[A-Za-z0-9:._+\-]{1,300}")


@dataclass(frozen=True)
class Monitor:
    """A monitor workflow and the job it watches."""

    execution: WorkflowExecution
    job: TrainingJob

    @property
    def id(self) -> str:
        """The workflow id."""
        return self.execution.id

    @property
    def running(self) -> bool:
        """It watches the job now."""
        return self.execution.status is WorkflowExecutionStatus.RUNNING


async def list_monitors(
    client: Client, *, cluster: str = "", job_id: str = "", monitor_id: str = "", ended: bool = False
) -> list[Monitor]:
    """Monitors, oldest first; those that ended too where `ended` is set.

    Args:
        client: the connection.
        cluster: only of this cluster; empty: of all.
        job_id: only of this job; empty: of all.
        monitor_id: only with this workflow id; empty: with any.
        ended: whether those are wanted that watch no more.
    """
    query = [f"WorkflowType='{MONITOR_WORKFLOW}'"]
    if not ended:
        query.append("ExecutionStatus='Running'")
    if cluster:
        query.append(f"RelightCluster='{_safe(cluster)}'")
    if job_id:
        query.append(f"RelightJobId='{_safe(job_id)}'")
    if monitor_id:
        query.append(f"WorkflowId='{_safe(monitor_id)}'")
    found = []
    async for execution in client.list_workflows(" AND ".join(query)):
        if execution.status is not WorkflowExecutionStatus.CONTINUED_AS_NEW:
            monitor = await as_monitor(execution)
            if monitor is not None:
                found.append(monitor)
    return sorted(found, key=lambda monitor: monitor.execution.start_time)


async def find_monitor(client: Client, target: str, cluster: str = "", *, ended: bool = False) -> Monitor:
    """The monitor of a job, named by job id, or by the id of the monitor or of a recovery.

    Args:
        client: the connection.
        target: which job.
        cluster: of this cluster; empty: of any.
        ended: also one that watches no more, and by an id that the job had before it was submitted anew,
            which is said. That is for looks only: the scheduler gives ids to other jobs again.

    Raises:
        CommandError: there is none, or the job id is watched on several clusters.
    """
    _safe(target)
    if target.startswith(("job:", "recover:")):
        return await _by_workflow_id(client, target)
    found = await list_monitors(client, cluster=cluster, job_id=target, ended=ended)
    running = [monitor for monitor in found if monitor.running]
    clusters = sorted({monitor.job.cluster for monitor in running})
    if len(clusters) > 1:
        raise CommandError(
            f"job {target} is watched on several clusters ({', '.join(clusters)}): say which with "
            f"`relight --cluster {clusters[0]} ...`",
            ExitCode.USAGE,
        )
    renamed = None if found else await _by_earlier_id(client, target, cluster)
    if renamed is not None and (now := renamed.job.attempt.job_id) != target:
        if not ended:
            raise CommandError(
                f"job {target} was submitted anew, and is job {now} now: say `{now}`", ExitCode.NOT_FOUND
            )
        complain(f"job {target} was submitted anew, and is job {now} now", "note")
        return renamed
    if not found:
        where = f" on cluster {cluster}" if cluster else ""
        raise CommandError(
            f"job {target} is not watched{where}: `relight watch {target}` begins, `relight jobs` lists all",
            ExitCode.NOT_FOUND,
        )
    # Lists lag behind: a watch that has just ended, or began anew, is there as it was.
    return await _by_workflow_id(client, (running or found)[-1].id)


async def list_watches(client: Client, latest: Monitor, target: str) -> list[Monitor]:
    """Each time that a job was watched, oldest first: the last run of the monitor of each.

    A job that is watched again has a monitor of the same id if it was not submitted anew in between, and else
    of another.

    Args:
        client: the connection.
        latest: the monitor that `find_monitor` found.
        target: what it was found by. By a job id: the watches of that job under all ids that it had, as far
            as they are known from one another. By a workflow id: only those with this monitor's id.
    """
    found = {}
    if target.startswith(("job:", "recover:")):
        listed = await list_monitors(client, monitor_id=latest.id, ended=True)
        found = {monitor.execution.run_id: monitor for monitor in listed}
    else:
        ids, asked = {target, *_ids_of(latest)}, set[str]()
        while ids - asked:
            job_id = min(ids - asked)
            asked.add(job_id)
            for monitor in await list_monitors(client, cluster=latest.job.cluster, job_id=job_id, ended=True):
                found[monitor.execution.run_id] = monitor
                ids |= _ids_of(monitor)
    found[latest.execution.run_id] = latest  # lists lag behind
    return sorted(found.values(), key=lambda monitor: monitor.execution.start_time)


async def list_recoveries(client: Client, monitor_id: str, *, ended: bool = True) -> list[WorkflowExecution]:
    """The recoveries that a monitor started, oldest first; only open ones where `ended` is not set."""
    query = f"WorkflowType='{RECOVERY_WORKFLOW}' AND ParentWorkflowId='{_safe(monitor_id)}'"
    if not ended:
        query += " AND ExecutionStatus='Running'"
    found = [execution async for execution in client.list_workflows(query)]
    return sorted(found, key=lambda execution: execution.start_time)


async def list_open_recoveries(client: Client, cluster: str) -> dict[str, str]:
    """The recoveries that are under way in a cluster, and the monitor of each."""
    query = f"WorkflowType='{RECOVERY_WORKFLOW}' AND ExecutionStatus='Running'"
    query += f" AND RelightCluster='{_safe(cluster)}'"
    return {found.id: found.parent_id or "" async for found in client.list_workflows(query)}


async def monitor_status(client: Client, monitor_id: str) -> MonitorStatus | None:
    """What the monitor says; None if no worker answers."""
    answer: MonitorStatus | None = await ask(client.get_workflow_handle(monitor_id), MonitorStatus)
    return answer


async def recovery_status(client: Client, recovery_id: str) -> RecoveryStatus | None:
    """What the recovery says; None if no worker answers."""
    answer: RecoveryStatus | None = await ask(client.get_workflow_handle(recovery_id), RecoveryStatus)
    return answer


async def watched_jobs(client: Client, monitors: Sequence[Monitor]) -> list[WatchedJob]:
    """All of them with their status, asked concurrently. After one silence no other is asked."""
    found = await _asked(client, monitors)
    if not any(_may_stand_still(watched) for watched in found):
        return found
    declined = await _declined(client)
    return [
        await _with_stand_still(client, watched, declined.get(watched.monitor_id, [])) for watched in found
    ]


async def _asked(client: Client, monitors: Sequence[Monitor]) -> list[WatchedJob]:
    slots = asyncio.Semaphore(AT_ONCE)
    silent = False

    async def one(monitor: Monitor) -> WatchedJob:
        nonlocal silent
        async with slots:
            status = None if silent else await monitor_status(client, monitor.id)
            silent = silent or status is None
        return _watched(monitor, status)

    return await asyncio.gather(*(one(monitor) for monitor in monitors))


async def look_for_stand_still(
    client: Client, monitor: Monitor, status: MonitorStatus | None
) -> StandStill | None:
    """The hang of one job that nobody is asked about again; None: there is none.

    Args:
        client: the connection.
        monitor: of the job.
        status: what the monitor says.
    """
    watched = _watched(monitor, status)
    if not _may_stand_still(watched):
        return None
    declined = (await _declined(client)).get(monitor.id, [])
    return (await _with_stand_still(client, watched, declined)).stands_still


async def job_view(client: Client, monitor: Monitor) -> JobView:
    """A job with all its recoveries; of ended ones with the times, too."""
    watched = _watched(monitor, await monitor_status(client, monitor.id))
    recoveries = []
    found = await list_recoveries(client, monitor.id)
    for execution in found:
        is_open = execution.status is WorkflowExecutionStatus.RUNNING
        # The latest one is asked after its end too: its evidence says why it happened.
        ask = watched.status is not None and (is_open or execution is found[-1])
        outcome = None if is_open else await recovery_outcome(client, execution.id)
        recoveries.append(
            RecoveryView(
                recovery_id=execution.id,
                started=execution.start_time,
                ended=execution.close_time,
                status=await recovery_status(client, execution.id) if ask else None,
                outcome=outcome,
                times=outcome.times if outcome is not None else None,
            )
        )
    outcomes = [recovery.outcome for recovery in recoveries if recovery.outcome is not None]
    watched = _with_outcomes(watched, outcomes)
    names = [monitor.id, *(recovery.recovery_id for recovery in recoveries)]
    earlier = dict.fromkeys(_job_id(name) for name in names)
    earlier.pop(watched.job.attempt.job_id, None)
    return JobView(**watched.__dict__, recoveries=tuple(recoveries), earlier_ids=tuple(earlier))


async def worker_polls(client: Client, task_queue: str) -> bool:
    """A worker has asked for work on this queue within the last minutes."""
    answer = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=task_queue),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
    )
    return bool(answer.pollers)


def no_worker(task_queue: str) -> CommandError:
    """The error for a command that needs a worker's answer and gets none."""
    return CommandError(
        f"no worker answers on task queue {task_queue!r}: start one with `relight worker` (or `relight up`)",
        ExitCode.NOT_READY,
    )


async def _by_earlier_id(client: Client, job_id: str, cluster: str) -> Monitor | None:
    """The monitor of a job that had this id once: the ids of recoveries and of the monitor keep it."""
    query = f"WorkflowType='{RECOVERY_WORKFLOW}' AND RelightJobId='{_safe(job_id)}'"
    if cluster:
        query += f" AND RelightCluster='{_safe(cluster)}'"
    recoveries = [found async for found in client.list_workflows(query)]
    for recovery in sorted(recoveries, key=lambda found: found.start_time, reverse=True):
        if recovery.parent_id:
            return await _by_workflow_id(client, recovery.parent_id)
    monitors = await list_monitors(client, cluster=cluster, ended=True)
    return next((monitor for monitor in reversed(monitors) if _job_id(monitor.id) == job_id), None)


def _ids_of(monitor: Monitor) -> set[str]:
    """The first and the latest id of the job that it watched."""
    return {monitor.job.attempt.job_id, _job_id(monitor.id)}


def _job_id(workflow_id: str) -> str:
    """The job id in the id of a monitor or of a recovery: see `relight.contracts.ids`."""
    return workflow_id.split(":")[2] if workflow_id.count(":") >= 2 else ""


async def _by_workflow_id(client: Client, target: str) -> Monitor:
    handle = client.get_workflow_handle(target)
    try:
        described: WorkflowExecution = await handle.describe()
        if described.workflow_type == RECOVERY_WORKFLOW and described.parent_id:
            described = await client.get_workflow_handle(described.parent_id).describe()
    except RPCError as e:
        if e.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise CommandError(f"there is no workflow {target}", ExitCode.NOT_FOUND) from e
    monitor = await as_monitor(described) if described.workflow_type == MONITOR_WORKFLOW else None
    if monitor is None:
        raise CommandError(f"workflow {target} is not one of relight's", ExitCode.NOT_FOUND)
    return monitor


async def as_monitor(execution: WorkflowExecution) -> Monitor | None:
    """The monitor with its job from the memo; a memo that cannot be read is complained of."""
    try:
        job = await execution.memo_value(MEMO_JOB, type_hint=TrainingJob)
    except (KeyError, ValueError) as e:
        complain(f"{execution.id}: its memo {MEMO_JOB} cannot be read ({type(e).__name__})", "warning")
        return None
    return Monitor(execution, job)


async def ask(handle: WorkflowHandle[Any, Any], answer: type[Any], query: str = "status") -> Any:
    """The answer to a query; None if no worker gives one.

    Raises:
        RPCError: Temporal itself answers with an error; there is no such workflow, for example.
    """
    try:
        return await handle.query(query, result_type=answer, rpc_timeout=ANSWER)
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as e:
        complain(f"{handle.id} cannot be asked: {e}", "warning")
        return None
    except RPCError as e:
        silence = {
            RPCStatusCode.DEADLINE_EXCEEDED,
            RPCStatusCode.FAILED_PRECONDITION,
            RPCStatusCode.CANCELLED,
        }
        if e.status in silence:
            return None
        raise


async def recovery_outcome(client: Client, recovery_id: str) -> RecoveryOutcome | None:
    """The result of a recovery that has ended; None if it ended without one."""
    try:
        handle = client.get_workflow_handle(recovery_id, result_type=RecoveryOutcome)
        outcome: RecoveryOutcome = await handle.result()
    except WorkflowFailureError:
        return None
    return outcome


def _may_stand_still(watched: WatchedJob) -> bool:
    status = watched.status
    return watched.state == "watching" and status is not None and status.recoveries > 0


async def _declined(client: Client) -> dict[str, list[str]]:
    """The recoveries that nobody agreed to, oldest first, by their monitors: one list call for all."""
    ends = ", ".join(f"'{outcome.value}'" for outcome in DECLINED)
    query = f"WorkflowType='{RECOVERY_WORKFLOW}' AND ExecutionStatus='Completed' AND RelightState IN ({ends})"
    found = [execution async for execution in client.list_workflows(query)]
    by_monitor: dict[str, list[str]] = {}
    for execution in sorted(found, key=lambda each: each.start_time):
        by_monitor.setdefault(execution.parent_id or "", []).append(execution.id)
    return by_monitor


async def _with_stand_still(client: Client, watched: WatchedJob, declined: list[str]) -> WatchedJob:
    """With what its declined recoveries say; their results are read only where they can matter."""
    if not declined or not _may_stand_still(watched):
        return watched
    outcomes = [await recovery_outcome(client, recovery) for recovery in declined]
    return _with_outcomes(watched, [outcome for outcome in outcomes if outcome is not None])


def _with_outcomes(watched: WatchedJob, outcomes: Sequence[RecoveryOutcome]) -> WatchedJob:
    status = watched.status
    if status is None or watched.state != "watching":
        return watched
    still = stand_still(status.job.attempt, status.progress, outcomes)
    return watched.model_copy(update={"stands_still": still})


def _watched(monitor: Monitor, status: MonitorStatus | None) -> WatchedJob:
    shown = monitor.execution.typed_search_attributes.get(STATE, "")
    state = status.state if status else shown
    return WatchedJob(
        monitor_id=monitor.id,
        job=status.job if status else monitor.job,
        state=state if monitor.running else "ended",
        started=monitor.execution.start_time,
        ended=monitor.execution.close_time,
        status=status,
    )


def _safe(name: str) -> str:
    """Refuses what cannot be a job id, cluster or workflow id, before it gets into a list query."""
    if not _SAFE.fullmatch(name):
        raise CommandError(f"{name!r} is neither a job id nor one of relight's workflow ids", ExitCode.USAGE)
    return name
