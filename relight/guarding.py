"""Starts a cluster's guard, and signals it: the same for the worker and the command."""

from datetime import timedelta

from temporalio.client import Client
from temporalio.common import (
    SearchAttributePair,
    TypedSearchAttributes,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)

from relight.contracts import Model
from relight.contracts.guard import GuardInput, GuardLimits
from relight.contracts.ids import CLUSTER, GUARD_WORKFLOW, guard_id

RPC_TIMEOUT = timedelta(seconds=10)


async def start_guard(
    client: Client,
    task_queue: str,
    cluster: str,
    limits: GuardLimits,
    signal: tuple[str, Model] | None = None,
) -> None:
    """Starts the guard of a cluster, unless it runs already.

    Args:
        client: the connection.
        task_queue: where it is to run.
        cluster: whose guard.
        limits: what the cluster can take; a guard that runs already keeps its own.
        signal: name and payload of a signal to send in the same breath, running already or not.
    """
    await client.start_workflow(
        GUARD_WORKFLOW,
        GuardInput(cluster=cluster, limits=limits, notify=True),
        id=guard_id(cluster),
        task_queue=task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        start_signal=signal[0] if signal else None,
        start_signal_args=[signal[1]] if signal else [],
        search_attributes=TypedSearchAttributes([SearchAttributePair(CLUSTER, cluster)] if cluster else []),
        static_summary=f"Guards cluster {cluster}: permits, breakers, node ledger"[:100],
        rpc_timeout=RPC_TIMEOUT,
    )
