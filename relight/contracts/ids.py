"""Workflow ids and search attributes: the single source of their names."""

from typing import Any

from temporalio.common import SearchAttributeKey, SearchAttributePair

from relight.contracts.cause import Cause
from relight.contracts.job import Attempt, TrainingJob

TASK_QUEUE = "relight"
"""The queue that relight's workers serve."""

MONITOR_WORKFLOW = "TrainingJobMonitor"
RECOVERY_WORKFLOW = "RecoveryWorkflow"
GUARD_WORKFLOW = "ClusterGuard"
NODE_DRAIN_WORKFLOW = "NodeDrain"


def monitor_id(attempt: Attempt) -> str:
    """Id of the monitor of the job whose *first watched* attempt this is."""
    return f"job:{attempt.cluster}:{attempt.job_id}:{int(attempt.submit_time.timestamp())}"


def recovery_id(attempt: Attempt, anomaly_id: str) -> str:
    """Id of the recovery of one failed attempt, for the anomaly that began it."""
    return f"recover:{attempt.cluster}:{attempt.job_id}:{attempt.restart_count}:{anomaly_id}"


def guard_id(cluster: str) -> str:
    """Id of the guard of a cluster."""
    return f"guard:{cluster}"


def node_drain_id(cluster: str, node: str, recovery: str) -> str:
    """Id of the drain of a node that a recovery planned: each recovery drains a node at most once."""
    return f"drain:{cluster}:{node}:{recovery.removeprefix(f'recover:{cluster}:')}"


CLUSTER = SearchAttributeKey.for_keyword("RelightCluster")
"""The cluster's name."""
JOB_ID = SearchAttributeKey.for_keyword("RelightJobId")
"""The scheduler's id of the job."""
USER = SearchAttributeKey.for_keyword("RelightUser")
"""Whose job it is."""
STATE = SearchAttributeKey.for_keyword("RelightState")
"""What it is doing, as `relight jobs` and `relight show` call it: of a monitor `watching`, `settling`,
`recovering` or `paused`, of a recovery its step or how it ended, of the guard what its breakers do."""
MODE = SearchAttributeKey.for_keyword("RelightMode")
"""`observe` or `act`."""
CAUSE = SearchAttributeKey.for_keyword("RelightCause")
"""The diagnosed cause, of a recovery."""
NODES = SearchAttributeKey.for_keyword_list("RelightNodes")
"""The job's nodes, as many as fit; of a drained node that node."""

SEARCH_ATTRIBUTES = (CLUSTER, JOB_ID, USER, STATE, MODE, CAUSE, NODES)
"""All of relight's search attributes: `relight setup` registers them, the worker checks them at start."""

MEMO_JOB = "relight.job"
"""Memo key of a monitor: its `TrainingJob`, so that a sensor learns all watched jobs from one list call."""

MAX_NODE_BYTES = 1500
"""Temporal allows 2 KiB for one value; beyond it a workflow could not start, or would be stuck."""


def search_attributes(
    job: TrainingJob, state: str, cause: Cause | None = None
) -> list[SearchAttributePair[Any]]:
    """The search attributes of a workflow about this job. Empty ones are left out: Temporal refuses them."""
    pairs: list[SearchAttributePair[Any]] = [
        SearchAttributePair(CLUSTER, job.cluster),
        SearchAttributePair(JOB_ID, job.attempt.job_id),
        SearchAttributePair(USER, job.user),
        SearchAttributePair(STATE, state),
        SearchAttributePair(MODE, job.mode.value),
        SearchAttributePair(CAUSE, cause.value if cause is not None else ""),
        SearchAttributePair(NODES, bounded(job.nodes)),
    ]
    return [pair for pair in pairs if pair.value]


def bounded(nodes: tuple[str, ...]) -> list[str]:
    """As many node names, from the first, as one search attribute can hold."""
    room, kept = MAX_NODE_BYTES, []
    for node in nodes:
        room -= len(node.encode()) + 4  # quotes, comma and space in JSON
        if room < 0:
            break
        kept.append(node)
    return kept
