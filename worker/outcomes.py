"""Counts how recoveries end. It runs within the workflow sandbox, so it imports contracts only."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

with workflow.unsafe.imports_passed_through():
    from relight.contracts import Outcome, RecoveryOutcome
    from relight.contracts.messages import RecoveryInput
    from worker import metrics

OWN_LOOK = "poll"
"""The detector of what the monitor's own look at the scheduler finds (`activities/look_at_job.py`)."""


class Outcomes(Interceptor):
    """Watches what workflows return."""

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """The class that Temporal puts around each workflow."""
        return _CountOutcome


class _CountOutcome(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        result = await super().execute_workflow(input)
        if isinstance(result, RecoveryOutcome):
            _count(result)
            _count_detection(result, input.args)
        return result


def _count(outcome: RecoveryOutcome) -> None:
    """A workflow's meter counts nothing while history is replayed."""
    meter = workflow.metric_meter()
    labels = {
        "outcome": outcome.outcome.value,
        "cause": outcome.cause.value,
        "symptom": outcome.symptom.value,
        "cluster": outcome.attempt.cluster,
    }
    metrics.count(meter, metrics.RECOVERIES, labels)
    times = outcome.times
    phases = {
        "detected": _between(times.occurred, times.detected),
        "acted": _between(times.detected, times.acted),
        "running": _between(times.acted, times.running),
        "productive": _between(times.running, times.productive),
        "total": outcome.downtime,
    }
    for phase, length in phases.items():
        if length is not None:
            seconds = max(0.0, length.total_seconds())
            metrics.time(meter, metrics.RECOVERY_SECONDS, seconds, {**labels, "phase": phase})


def _count_detection(outcome: RecoveryOutcome, args: Sequence[Any]) -> None:
    """What became of what sensors said; a fault that only the monitor's own look found was missed by them."""
    start = next((arg for arg in args if isinstance(arg, RecoveryInput)), None)
    by = start.anomalies[0].detector if start is not None and start.anomalies else ""
    if by == OWN_LOOK:
        verdict = "missed"
    elif outcome.times.confirmed is not None:
        verdict = "confirmed"
    else:
        verdict = "refuted" if outcome.outcome is Outcome.REFUTED else "unconfirmed"
    labels = {
        "verdict": verdict,
        "detector": by,
        "cause": outcome.cause.value,
        "cluster": outcome.attempt.cluster,
    }
    metrics.count(workflow.metric_meter(), metrics.DETECTIONS, labels)


def _between(begin: datetime | None, end: datetime | None) -> timedelta | None:
    return end - begin if begin is not None and end is not None else None
