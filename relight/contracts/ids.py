"""Workflow ids and search attributes: the single source of their names."""

from temporalio.common import SearchAttributeKey

from relight.contracts.job import Attempt

TASK_QUEUE = "relight"
"""The queue that relight's workers serve."""

MONITOR_WORKFLOW = "TrainingJobMonitor"
RECOVERY_WORKFLOW = "RecoveryWorkflow"


def monitor_id(attempt: Attempt) -> str:
    """Id of the monitor of the job whose *first watched* attempt this is."""
    return f"job:{attempt.cluster}:{attempt.job_id}:{int(attempt.submit_time.timestamp())}"


def recovery_id(attempt: Attempt, anomaly_id: str) -> str:
    """Id of the recovery of one failed attempt, for the anomaly that began it."""
    return f"recover:{attempt.cluster}:{attempt.job_id}:{attempt.restart_count}:{anomaly_id}"


CLUSTER = SearchAttributeKey.for_keyword("RelightCluster")
JOB_ID = SearchAttributeKey.for_keyword("RelightJobId")
USER = SearchAttributeKey.for_keyword("RelightUser")
STATE = SearchAttributeKey.for_keyword("RelightState")
MODE = SearchAttributeKey.for_keyword("RelightMode")
CAUSE = SearchAttributeKey.for_keyword("RelightCause")
NODES = SearchAttributeKey.for_keyword_list("RelightNodes")

SEARCH_ATTRIBUTES = (CLUSTER, JOB_ID, USER, STATE, MODE, CAUSE, NODES)
"""All of relight's search attributes: `relight setup` registers them, the worker checks them at start."""

MEMO_JOB = "relight.job"
"""Memo key of a monitor: its `TrainingJob`, so that a sensor learns all watched jobs from one list call."""
