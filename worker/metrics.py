"""relight's own metrics of the worker: one table, from which `docs/reference/metrics.md` is made too.

Temporal's runtime serves them beside its own. Its meters take a name, a text and values; nothing else knows
which metrics there are. Workflows use this module within the sandbox: it imports nothing that does I/O.
"""

from dataclasses import dataclass
from typing import Literal

from temporalio.common import MetricMeter


@dataclass(frozen=True)
class Metric:
    """One metric: what it is called, and what it means."""

    name: str
    """As the code says it; Prometheus adds `_total` to a counter."""
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()

    @property
    def served(self) -> str:
        """The name that Prometheus shows."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


_OF_A_RECOVERY = ("outcome", "cause", "symptom", "cluster")

STEP_TRIES = Metric("relight_step_tries", "counter", "Tries of a step of the runbook.", ("step", "outcome"))
STEP_SECONDS = Metric("relight_step_seconds", "histogram", "Duration of one try.", ("step", "outcome"))
RECOVERIES = Metric("relight_recoveries", "counter", "Recoveries that ended.", _OF_A_RECOVERY)
RECOVERY_SECONDS = Metric(
    "relight_recovery_seconds",
    "histogram",
    "Time that a phase of a recovery took, up to this event: detected, acted, running, productive, total.",
    (*_OF_A_RECOVERY, "phase"),
)
DETECTIONS = Metric(
    "relight_detections",
    "counter",
    "Suspected faults, by what became of them: confirmed, refuted, unconfirmed, or missed (only the "
    "monitor's own look found it).",
    ("verdict", "detector", "cause", "cluster"),
)

GUARD_UP = Metric(
    "relight_guard_up",
    "gauge",
    "1 while the cluster's guard answers; at 0 the other metrics of the guard are its last answer.",
    ("cluster",),
)
PAUSED = Metric("relight_guard_paused", "gauge", "1 while the cluster is paused.", ("cluster",))
OBSERVES = Metric(
    "relight_guard_observes", "gauge", "1 while the cluster is rolled back to observe.", ("cluster",)
)
PERMITS = Metric("relight_guard_permits", "gauge", "Permits that are held.", ("cluster", "kind"))
WAITING = Metric("relight_guard_waiting", "gauge", "Requests that wait for a permit.", ("cluster",))
DECIDED = Metric(
    "relight_guard_decided",
    "gauge",
    "Permits that were granted, refused or expired over the guard's life. The guard itself counts them: all "
    "workers tell the same number.",
    ("cluster", "decision"),
)
BUDGET_USED = Metric(
    "relight_guard_budget_used",
    "gauge",
    "How much of a budget is used: `recoveries at once`, `recoveries per hour`, `drains per hour` (nodes).",
    ("cluster", "budget"),
)
BUDGET_LIMIT = Metric("relight_guard_budget_limit", "gauge", "The budget's limit.", ("cluster", "budget"))
BREAKER = Metric(
    "relight_guard_breaker",
    "gauge",
    "1 for the state that a circuit breaker is in: closed, open, half_open; the partition is empty for the "
    "cluster's own.",
    ("cluster", "partition", "state"),
)
BREAKER_NODES = Metric(
    "relight_guard_breaker_nodes", "gauge", "Faulty nodes that count for it now.", ("cluster", "partition")
)
BREAKER_TRIPS_AT = Metric(
    "relight_guard_breaker_trips_at", "gauge", "So many faulty nodes trip it.", ("cluster", "partition")
)
INCIDENTS = Metric("relight_guard_incidents", "gauge", "Incidents that are not over.", ("cluster",))
LEMONS = Metric("relight_guard_lemon_nodes", "gauge", "Nodes that failed several jobs.", ("cluster",))
OPEN_RECOVERIES = Metric(
    "relight_open_recoveries",
    "gauge",
    "Recoveries that have not ended, by state (Temporal's visibility, so it lags by seconds).",
    ("cluster", "state"),
)

METRICS = (
    STEP_TRIES,
    STEP_SECONDS,
    RECOVERIES,
    RECOVERY_SECONDS,
    DETECTIONS,
    OPEN_RECOVERIES,
    GUARD_UP,
    PAUSED,
    OBSERVES,
    PERMITS,
    WAITING,
    DECIDED,
    BUDGET_USED,
    BUDGET_LIMIT,
    BREAKER,
    BREAKER_NODES,
    BREAKER_TRIPS_AT,
    INCIDENTS,
    LEMONS,
)
"""All of them."""


def count(meter: MetricMeter, metric: Metric, labels: dict[str, str]) -> None:
    """Adds one to a counter."""
    _meter(meter, metric, labels).create_counter(metric.name, metric.help).add(1)


def time(meter: MetricMeter, metric: Metric, seconds: float, labels: dict[str, str]) -> None:
    """Records a duration in a histogram."""
    made = _meter(meter, metric, labels).create_histogram_float(metric.name, metric.help, "s")
    made.record(seconds)


def show(meter: MetricMeter, metric: Metric, value: int, **labels: str) -> None:
    """Sets a gauge."""
    _meter(meter, metric, labels).create_gauge(metric.name, metric.help).set(value)


def _meter(meter: MetricMeter, metric: Metric, labels: dict[str, str]) -> MetricMeter:
    if set(labels) != set(metric.labels):
        raise ValueError(f"{metric.name} has the labels {metric.labels}, not {tuple(labels)}")
    return meter.with_additional_attributes(labels)
