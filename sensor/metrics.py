"""The sensor's own metrics, for Prometheus."""

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge


class Metrics:
    """All metrics of one sensor, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.heartbeat = Gauge(
            "relight_sensor_heartbeat_timestamp_seconds",
            "When the sensor last went through its loop.",
            registry=self.registry,
        )
        self.watched = Gauge("relight_sensor_jobs", "Jobs that are watched.", registry=self.registry)
        self.lag = Gauge(
            "relight_sensor_log_lag_seconds",
            "Time since the job's logs were last read to their ends.",
            ["job"],
            registry=self.registry,
        )
        self.blind = Gauge(
            "relight_sensor_blind",
            "1 while the job runs and a hang could not be noticed: no step line yet, or no readable log.",
            ["job"],
            registry=self.registry,
        )
        self.anomalies = Counter(
            "relight_sensor_anomalies",
            "Anomalies reported.",
            ["detector", "source", "symptom", "cause"],
            registry=self.registry,
        )
        self.outbox = Gauge(
            "relight_sensor_outbox_signals", "Signals that wait for Temporal.", registry=self.registry
        )
        self.undelivered = Counter(
            "relight_sensor_signals_undelivered",
            "Signals that were given up: the outbox was full, the monitor has ended, or Temporal refused.",
            ["why"],
            registry=self.registry,
        )
        self.errors = Counter(
            "relight_sensor_errors", "Failures inside the sensor, by part.", ["part"], registry=self.registry
        )
        self.scheduler_up = Gauge(
            "relight_sensor_scheduler_up", "1 while the scheduler answers.", registry=self.registry
        )
        self.temporal_up = Gauge(
            "relight_sensor_temporal_up", "1 while Temporal answers.", registry=self.registry
        )
        self.prometheus_up = Gauge(
            "relight_sensor_prometheus_up",
            "1 while Prometheus answers; no series where none is configured.",
            registry=None,
        )
        self._prometheus_shown = False
        self.policy_valid = Gauge(
            "relight_sensor_policy_valid",
            "1 while the policy file can be used as it is, or there is none; 0: an earlier one is in force.",
            registry=self.registry,
        )
        self.log_bytes = Counter(
            "relight_sensor_log_bytes", "Bytes of logs that were read.", registry=self.registry
        )
        self.unreadable = Gauge(
            "relight_sensor_unreadable_files",
            "Log files that are there and cannot be read.",
            ["job"],
            registry=self.registry,
        )

    def show_prometheus(self, up: bool) -> None:
        """Prometheus answers, or not."""
        if not self._prometheus_shown:
            self.registry.register(self.prometheus_up)
            self._prometheus_shown = True
        self.prometheus_up.set(up)

    def forget(self, job: str) -> None:
        """Takes the series of a job away that is no longer watched."""
        for gauge in (self.lag, self.blind, self.unreadable):
            with suppress(KeyError):  # it may never have had one
                gauge.remove(job)
