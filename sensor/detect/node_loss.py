"""Node loss: the scheduler gave up a node of the attempt's allocation."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from relight.contracts import (
    Anomaly,
    Attempt,
    Cause,
    Evidence,
    NodeInfo,
    Progress,
    Source,
    Suspect,
    Symptom,
)
from sensor.view import is_down

DETECTOR = "node-loss"


def lost_nodes(allocation: Sequence[str], nodes: Mapping[str, NodeInfo] | None) -> tuple[str, ...]:
    """The nodes of an allocation that the scheduler says are lost. Unknown ones are not."""
    if nodes is None:
        return ()
    return tuple(name for name in allocation if name in nodes and is_down(nodes[name]))


def node_loss(
    lost: Sequence[str],
    nodes: Mapping[str, NodeInfo],
    attempt: Attempt,
    progress: Progress | None,
    now: datetime,
) -> Anomaly:
    """One anomaly for all nodes of an attempt that were lost together."""
    return Anomaly(
        anomaly_id=Anomaly.make_id(attempt, DETECTOR, *sorted(lost)),
        attempt=attempt,
        symptom=Symptom.CRASH,
        cause=Cause.NODE_FAILURE,
        suspects=tuple(Suspect(node=name, because=_describe(nodes[name])) for name in lost),
        evidence=tuple(
            Evidence(
                source=Source.SCHEDULER,
                observed_at=now,
                node=name,
                text=_describe(nodes[name]),
                where="node state",
            )
            for name in lost[:10]
        ),
        occurred_at=now,
        detected_at=now,
        count=len(lost),
        progress=progress,
        detector=DETECTOR,
        hold_out=True,
        says="The scheduler gave up a node of the job.",
    )


def _describe(node: NodeInfo) -> str:
    state = "+".join([node.state, *node.flags])
    return f"node {node.name} is {state}" + (f": {node.reason}" if node.reason else "")
