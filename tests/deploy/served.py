"""Which metrics exist, and which a PromQL expression names."""

import re

from prometheus_client import generate_latest

from sensor.metrics import Metrics
from sensor.node.metrics import NodeMetrics
from worker.metrics import METRICS

OF_TEMPORAL = {
    "temporal_activity_schedule_to_start_latency",
    "temporal_num_pollers",
    "temporal_worker_task_slots_available",
    "temporal_workflow_task_schedule_to_start_latency",
}
"""Of Temporal's runtime, as alerts and dashboard use them: `tests/worker/test_worker.py` finds them there."""
OF_TEMPORAL_IN_TROUBLE = {"temporal_request_failure_total", "temporal_workflow_task_execution_failed_total"}
"""They have no series as long as nothing fails (temporalio's `sdk-core`, `telemetry/metrics.rs`)."""


def sensor_names() -> set[str]:
    """Of the cluster sensor."""
    sensor = Metrics()
    sensor.show_prometheus(up=True)
    return _names(generate_latest(sensor.registry))


def all_names() -> set[str]:
    """Of all processes, with those of Temporal that are used."""
    node = _names(generate_latest(NodeMetrics().registry))
    own = {metric.served for metric in METRICS}
    return sensor_names() | node | own | OF_TEMPORAL | OF_TEMPORAL_IN_TROUBLE


def named_in(expression: str) -> set[str]:
    """The metrics that an expression is about; the parts of a histogram as the histogram."""
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    found = set(re.findall(r"\b(?:relight|temporal)_\w+", text))
    return {re.sub("_(bucket|sum|count)$", "", name) for name in found}


def _names(page: bytes) -> set[str]:
    names = re.findall(r"^# TYPE (\S+)", page.decode(), re.MULTILINE)
    return {name for name in names if not name.endswith("_created")}
