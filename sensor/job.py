"""One watched job in this process: its log files, its watch, and what of both is not saved yet."""

import os
import pwd
import time
from collections.abc import Iterable

import structlog

from relight.config import Settings
from relight.contracts import Anomaly, TrainingJob
from relight.diagnosis.catalogue import Catalogue
from sensor.follow import Position
from sensor.messages import REPORT_ANOMALY, Message
from sensor.metrics import Metrics
from sensor.reading import JobLogs, Reading
from sensor.store import Store
from sensor.watch import JobWatch

log = structlog.get_logger("sensor.job")


class WatchedJob:
    """Holds together what belongs to one job.

    Args:
        watch: decides what to tell.
        positions: where an earlier sensor stopped reading.
        fresh: nothing was ever read for it.
    """

    def __init__(self, watch: JobWatch, positions: Iterable[Position], *, fresh: bool) -> None:
        self.watch = watch
        self.busy = False
        """A look is under way; there is one at a time."""
        self.missing = 0
        """Lists of watched jobs, in a row, that it was missing from."""
        self.read_at = time.monotonic()
        """When its logs were last read to their ends."""
        self._first_positions = tuple(positions)
        self._fresh = fresh
        self._logs: JobLogs | None = None
        self._positions: dict[str, Position] = {}
        self._gone: set[str] = set()
        self._messages: list[Message] = []
        self._saved = ""
        self._troubles: dict[str, str] = {}

    @property
    def label(self) -> str:
        """The job's id."""
        return self.watch.attempt.job_id

    def logs(self, catalogue: Catalogue, settings: Settings) -> JobLogs | None:
        """Its logs; None until the scheduler says where they are: what is there then is history."""
        patterns = self.watch.log_patterns
        if self._logs is not None:
            self._logs.follow(patterns)
        elif self.watch.memory.info is not None:
            self._logs = JobLogs(
                catalogue,
                patterns,
                self._first_positions,
                fresh=self._fresh,
                owner=_owner(self.watch.job),
                max_line=settings.sensor.max_line,
            )
        return self._logs

    def note(self, reading: Reading, messages: list[Message], metrics: Metrics) -> None:
        """Takes in what a look brought, until it is saved."""
        for file_id in reading.gone:
            self._positions.pop(file_id, None)
            self._gone.add(file_id)
        self._positions |= {p.file_id: p for p in reading.positions}
        self._messages += messages
        if self._logs is not None and self.watch.memory.nodes:
            self._logs.place(self.watch.memory.nodes, _tasks_per_node(self.watch))
        self._note_health(reading, metrics)
        for message in messages:
            if message.signal == REPORT_ANOMALY:
                _note_anomaly(Anomaly.model_validate_json(message.payload), metrics)

    def save(self, store: Store) -> tuple[int, int]:
        """Saves what is not saved yet. If it fails, the next call tries again.

        Returns:
            How many messages were queued, and how many were given up because the queue is full.

        Raises:
            sqlite3.Error: it could not be saved.
        """
        watch = self.watch
        memory = watch.memory.model_dump_json()
        state = memory + watch.job.model_dump_json()
        if not (self._positions or self._gone or self._messages) and state == self._saved:
            return 0, 0
        dropped = store.save(
            watch.monitor, watch.job, memory, self._positions.values(), self._gone, self._messages
        )
        queued = len(self._messages)
        self._positions, self._gone, self._messages = {}, set(), []
        self._saved = state
        return queued, dropped

    def _note_health(self, reading: Reading, metrics: Metrics) -> None:
        if not reading.behind:
            self.read_at = time.monotonic()
        metrics.log_bytes.inc(reading.bytes)
        metrics.unreadable.labels(self.label).set(len(reading.troubles))
        blind = self.watch.is_blind or (self.watch.is_running and not reading.files)
        metrics.blind.labels(self.label).set(blind)
        for path, why in reading.troubles.items():
            if self._troubles.get(path) != why:
                log.warning(
                    "a log file cannot be read; it is tried again", job=self.label, file=path, why=why
                )
        self._troubles = reading.troubles


def _note_anomaly(anomaly: Anomaly, metrics: Metrics) -> None:
    metrics.anomalies.labels(anomaly.detector, anomaly.symptom.value, anomaly.cause.value).inc()
    log.warning(
        "anomaly",
        job=anomaly.attempt.label,
        detector=anomaly.detector,
        symptom=anomaly.symptom.value,
        cause=anomaly.cause.value,
        count=anomaly.count,
        text=anomaly.evidence[0].text if anomaly.evidence else "",
    )


def _owner(job: TrainingJob) -> int | None:
    """The only user whose files are read, if the job's user named them."""
    if not job.opted_in:
        return None
    try:
        return pwd.getpwnam(job.user).pw_uid
    except KeyError:
        return os.geteuid()


def _tasks_per_node(watch: JobWatch) -> int | None:
    """Ranks on each node, where the numbers say it."""
    info = watch.memory.info
    if watch.job.tasks_per_node or info is None:
        return watch.job.tasks_per_node
    if info.tasks_per_node:
        return info.tasks_per_node
    nodes = info.num_nodes or len(info.nodes)
    return info.num_tasks // nodes if nodes and info.num_tasks and info.num_tasks % nodes == 0 else None
