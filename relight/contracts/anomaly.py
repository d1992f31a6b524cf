"""What a sensor saw (anomalies, with their evidence) and what relight makes of it (a diagnosis)."""

import hashlib
from datetime import timedelta
from enum import StrEnum

from pydantic import Field

from relight.contracts.base import CleanText, Model, UtcDatetime
from relight.contracts.cause import Cause
from relight.contracts.job import Attempt


class Source(StrEnum):
    """Where evidence comes from. It decides what the evidence may be used for."""

    SCHEDULER = "scheduler"
    KERNEL = "kernel"
    NVML = "nvml"
    PROMETHEUS = "prometheus"
    JOB_LOG = "job_log"
    OPERATOR = "operator"


class Symptom(StrEnum):
    """What a person would see."""

    CRASH = "crash"
    """The training, or one rank of it, ended with an error."""
    HANG = "hang"
    """It runs, and makes no progress."""
    SLOW = "slow"
    """It makes progress, and more slowly than before."""
    DEGRADED = "degraded"
    """It makes progress, and something about it or its machines is wrong."""
    NONE = "none"
    """Nothing."""


class Role(StrEnum):
    """A root explains others; a cascade follows from one; context explains nothing by itself."""

    ROOT = "root"
    CASCADE = "cascade"
    CONTEXT = "context"


class Evidence(Model):
    """One thing that was seen, and where to see it again."""

    source: Source
    observed_at: UtcDatetime
    text: CleanText
    node: str | None = None
    rank: int | None = None
    gpu: str | None = None
    where: CleanText = ""
    """`file:byte offset`, or the query or command that showed it. For people: `relight.wording.place`."""
    line: int | None = None
    """Number of the line in that file, from 1; None: it is not in a file, or its number is not known."""
    signature: str = ""
    """Id of the catalogue signature that matched, if one did."""

    @property
    def trust(self) -> bool:
        """It may carry a decision about a node: the job's user did not write it."""
        return self.source is not Source.JOB_LOG


class Suspect(Model):
    """A node, rank or GPU that evidence points at."""

    node: str | None = None
    rank: int | None = None
    gpu: str | None = None
    because: CleanText = ""


class Progress(Model):
    """How far training has come, by its own step lines."""

    step: int
    at: UtcDatetime
    """When the step was seen."""
    interval: timedelta | None = None
    """The learned time between steps; None until enough were seen."""
    loss: float | None = None


class Anomaly(Model):
    """Something is wrong with an attempt. The same observation pushed twice carries the same `anomaly_id`."""

    anomaly_id: str = Field(max_length=64)
    attempt: Attempt
    symptom: Symptom
    cause: Cause = Cause.UNKNOWN
    role: Role = Role.ROOT
    suspects: tuple[Suspect, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    occurred_at: UtcDatetime
    detected_at: UtcDatetime
    count: int = Field(default=1, ge=1)
    retryable: bool = True
    progress: Progress | None = None
    """The last progress before it, where known."""
    detector: str = ""
    hold_out: bool = False
    """If this is the root, its suspects' nodes should not be used again before somebody looked at them."""
    key: str = ""
    """What stays the same when the same failure is replayed; becomes the diagnosis' `root_key`."""
    weight: int = 0
    """Among roots that explain equally much, the heavier one is the root."""
    says: CleanText = ""
    """What it means, in a sentence for a person."""

    @staticmethod
    def make_id(attempt: Attempt, detector: str, *key: object) -> str:
        """A stable id: the same attempt, detector and key always give the same one."""
        text = "\x1f".join([attempt.model_dump_json(), detector, *map(str, key)])
        return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


class Sign(Model):
    """An independent source says that a node is at fault. Never the job's own log: its user writes it."""

    node: str
    source: Source
    """An Xid counts as the kernel's, whether the kernel log, NVML or an exporter told it: it is one event."""


class Diagnosis(Model):
    """What relight makes of the anomalies of one incident."""

    symptom: Symptom
    cause: Cause
    retryable: bool
    suspects: tuple[Suspect, ...] = ()
    confidence: float = Field(default=0.5, ge=0, le=1)
    evidence: tuple[Evidence, ...] = ()
    explanation: str = ""
    anomaly_ids: tuple[str, ...] = ()
    root_key: str = ""
    """Names the replay-stable root (signature and place), so that the same failure is known again."""
    occurred_at: UtcDatetime
    detected_at: UtcDatetime
    progress: Progress | None = None
    where: tuple[str, ...] = ()
    """The nodes on which it went wrong, suspected or not."""
    signs: tuple[Sign, ...] = ()
    """What speaks against nodes, each source once a node."""
    rules: tuple[tuple[str, ...], ...] = ()
    """What it rests on: of the root and of each anomaly that says the same, the detector and then the
    signatures."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The suspected nodes, in order, each once."""
        return tuple(dict.fromkeys(s.node for s in self.suspects if s.node))
