"""A recovery's side of a node's drain: starts it, and goes on."""

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.workflow import ParentClosePolicy

with workflow.unsafe.imports_passed_through():
    from relight.contracts import Diagnosis, TrainingJob
    from relight.contracts.ids import NODE_DRAIN_WORKFLOW, node_drain_id
    from relight.contracts.node_drain import NodeDrainInput, NodeDrainResult
    from workflows.details import clip

MAX_EVIDENCE = 8


async def start_drain(node: str, job: TrainingJob, diagnosis: Diagnosis, guard_id: str) -> str:
    """Starts the drain of a node, once for the recovery that runs here. It lives on when the recovery ends.

    Returns:
        A line for the log.
    """
    recovery_id = workflow.info().workflow_id
    drain_id = node_drain_id(job.cluster, node, recovery_id)
    against = tuple(e for e in diagnosis.evidence if e.node == node and e.trust)[:MAX_EVIDENCE]
    try:
        await workflow.start_child_workflow(
            NODE_DRAIN_WORKFLOW,
            NodeDrainInput(
                cluster=job.cluster,
                node=node,
                cause=diagnosis.cause,
                recovery_id=recovery_id,
                job=job.attempt.label,
                partition=job.partition,
                user=job.user,
                because=against[0].text if against else diagnosis.explanation,
                evidence=against,
                evidence_at=diagnosis.occurred_at,
                guard_id=guard_id,
            ),
            id=drain_id,
            result_type=NodeDrainResult,
            parent_close_policy=ParentClosePolicy.ABANDON,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            static_summary=clip(f"drains {node} for everyone: {diagnosis.cause.value}"),
        )
    except WorkflowAlreadyStartedError:
        return f"drain_node: {drain_id} was started before"
    return f"drain_node: {drain_id} asks the guard to drain {node}"
