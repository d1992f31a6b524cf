"""What relight does to nodes only after a confirmed hardware fault, brought about without one."""

import asyncio
from datetime import UTC, datetime

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from relight.contracts import Cause
from relight.contracts.guard import NodeReport
from relight.contracts.ids import NODE_DRAIN_WORKFLOW, TASK_QUEUE, guard_id, node_drain_id
from relight.contracts.node_drain import NodeDrainInput

PARTITION, SIZE = "main", 4


async def _client(address: str) -> Client:
    return await Client.connect(address, data_converter=pydantic_data_converter)


def drain(address: str, cluster: str, node: str) -> None:
    """Lets relight drain a node, as a recovery's plan would."""
    recovery = f"recover:{cluster}:1:0:docs"
    start = NodeDrainInput(
        cluster=cluster,
        node=node,
        cause=Cause.GPU_FALLEN_OFF_BUS,
        recovery_id=recovery,
        evidence_at=datetime.now(UTC),
        guard_id=guard_id(cluster),
        partition=PARTITION,
    )

    async def work() -> None:
        client = await _client(address)
        await client.start_workflow(
            NODE_DRAIN_WORKFLOW, start, id=node_drain_id(cluster, node, recovery), task_queue=TASK_QUEUE
        )

    asyncio.run(work())


def accuse(address: str, cluster: str, node: str) -> None:
    """Lets something be held against a node."""
    report = NodeReport(
        nodes=(node,),
        cause=Cause.NVLINK,
        at=datetime.now(UTC),
        partition=PARTITION,
        partition_nodes=SIZE,
    )

    async def work() -> None:
        client = await _client(address)
        await client.get_workflow_handle(guard_id(cluster)).signal("report_node", report)

    asyncio.run(work())
