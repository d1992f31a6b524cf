"""Finds a cluster's guard, and asks it."""

from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.watched import ask, no_worker
from relight.config import Settings
from relight.contracts.guard import GuardStatus, NodeView
from relight.contracts.ids import GUARD_WORKFLOW, guard_id


async def cluster_of(client: Client, settings: Settings) -> str:
    """The cluster that a command is about: by the settings, the one that has a guard, or the scheduler's.

    The scheduler is asked last: in an emergency it may not answer.

    Raises:
        CommandError: several clusters have a guard.
        SchedulerError: as its subclasses say.
    """
    if settings.cluster:
        return settings.cluster
    query = f"WorkflowType='{GUARD_WORKFLOW}' AND ExecutionStatus='Running'"
    found = sorted({e.id.removeprefix(guard_id("")) async for e in client.list_workflows(query)})
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise CommandError(
            f"several clusters have a guard ({', '.join(found)}): say which with "
            f"`relight --cluster {found[0]} ...`",
            ExitCode.USAGE,
        )
    from relight.scheduler.opening import open_scheduler  # adapters are slow to import

    return (await open_scheduler(settings).version()).cluster


async def guard_status(client: Client, settings: Settings, cluster: str) -> GuardStatus:
    """How the guard stands.

    Raises:
        CommandError: no guard runs, or no worker answers for it.
    """
    status: GuardStatus = await _answer(client, settings, cluster, GuardStatus, "status")
    return status


async def guard_nodes(client: Client, settings: Settings, cluster: str) -> tuple[NodeView, ...]:
    """The ledger of nodes, the worst first.

    Raises:
        CommandError: no guard runs, or no worker answers for it.
    """
    found: tuple[NodeView, ...] = await _answer(client, settings, cluster, tuple[NodeView, ...], "nodes")
    return found


async def _answer(client: Client, settings: Settings, cluster: str, kind: Any, query: str) -> Any:
    try:
        answer = await ask(client.get_workflow_handle(guard_id(cluster)), kind, query)
    except RPCError as e:
        if e.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise CommandError(
            f"cluster {cluster} has no guard: `relight worker` starts it (setting `guard`)",
            ExitCode.NOT_FOUND,
        ) from e
    if answer is None:
        raise no_worker(settings.task_queue)
    return answer
