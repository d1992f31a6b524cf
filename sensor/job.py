"""One watched job in this process: its log files, its watch, and what of both is not saved yet."""

import os
import pwd
import time
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from relight.config import Settings
from relight.contracts import Anomaly, TrainingJob
from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.steplines import StepFormat, with_custom
from sensor.follow import Position
from sensor.messages import REPORT_ANOMALY, Message
from sensor.metrics import Metrics
from sensor.reading import JobLogs, Reading
from sensor.watch import JobWatch

log = structlog.get_logger("sensor.job")


@dataclass(frozen=True)
class Unsaved:
    """What looks at a job brought, to be saved together."""

    job: TrainingJob
    memory: str
    positions: tuple[Position, ...]
    gone: tuple[str, ...]
    messages: tuple[Message, ...]


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
        self._saved: tuple[str, TrainingJob] | None = None
        self._troubles: dict[str, str] = {}
        self._taught: tuple[tuple[str, ...], tuple[StepFormat, ...] | None] = ((), None)
        """The step patterns of the policy, and what they were compiled to."""

    @property
    def label(self) -> str:
        """The job's id."""
        return self.watch.attempt.job_id

    def logs(self, catalogue: Catalogue, settings: Settings) -> JobLogs | None:
        """Its logs; None until the scheduler says where they are: what is there then is history."""
        patterns = self.watch.log_patterns
        if self._logs is not None:
            self._logs.follow(patterns)
            self._logs.teach(self._steps())
        elif self.watch.memory.info is not None:
            self._logs = JobLogs(
                catalogue,
                patterns,
                self._first_positions,
                fresh=self._fresh,
                owner=_owner(self.watch.job),
                max_line=settings.sensor.max_line,
                steps=self._steps(),
            )
        return self._logs

    def _steps(self) -> tuple[StepFormat, ...] | None:
        """How its policy says that steps look; patterns of no use are complained of and left out."""
        patterns = self.watch.job.policy.step_patterns
        if patterns == self._taught[0]:
            return self._taught[1]
        steps = None
        try:
            steps = with_custom(patterns) if patterns else None
        except ValueError as e:
            log.warning("the policy's step patterns cannot be used", job=self.label, error=str(e))
        self._taught = (patterns, steps)
        return steps

    def note(self, reading: Reading, messages: list[Message], metrics: Metrics) -> None:
        """Takes in what a look brought, until it is saved."""
        for file_id in reading.gone:
            self._positions.pop(file_id, None)
            self._gone.add(file_id)
        self._positions |= {p.file_id: p for p in reading.positions}
        self._messages += messages
        if self._logs is not None and self.watch.memory.nodes:
            self._logs.place(self.watch.memory.nodes, self.watch.tasks_per_node)
        self._note_health(reading, metrics)
        for message in messages:
            if message.signal == REPORT_ANOMALY:
                _note_anomaly(Anomaly.model_validate_json(message.payload), metrics)

    def unsaved(self) -> "Unsaved | None":
        """What is to be saved; None: nothing has changed. It stays so until `saved` is called."""
        memory = self.watch.memory.model_dump_json()
        if not (self._positions or self._gone or self._messages) and (memory, self.watch.job) == self._saved:
            return None
        return Unsaved(
            job=self.watch.job,
            memory=memory,
            positions=tuple(self._positions.values()),
            gone=tuple(self._gone),
            messages=tuple(self._messages),
        )

    def saved(self, what: "Unsaved") -> None:
        """It is saved. No look may have come between."""
        self._positions, self._gone, self._messages = {}, set(), []
        self._saved = (what.memory, what.job)

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
    source = anomaly.evidence[0].source.value if anomaly.evidence else ""
    metrics.anomalies.labels(anomaly.detector, source, anomaly.symptom.value, anomaly.cause.value).inc()
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
