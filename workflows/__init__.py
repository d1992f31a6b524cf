"""The workflows: they decide, and do no I/O. Activities are called by name."""

from workflows.cluster_guard import ClusterGuard
from workflows.job_monitor import TrainingJobMonitor
from workflows.node_drain import NodeDrain
from workflows.recovery import RecoveryWorkflow

WORKFLOWS = (TrainingJobMonitor, RecoveryWorkflow, ClusterGuard, NodeDrain)
"""All workflows, for the worker."""

__all__ = ["WORKFLOWS", "ClusterGuard", "NodeDrain", "RecoveryWorkflow", "TrainingJobMonitor"]
