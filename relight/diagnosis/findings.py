"""What reading a log yields: findings (a signature matched) and step lines. No engine is imported here."""

from enum import StrEnum

from relight.contracts import Cause, CleanText, Model, Role, Symptom, UtcDatetime


class Finding(Model):
    """A signature of the catalogue matched a line."""

    signature: str
    role: Role
    symptom: Symptom
    cause: Cause
    retryable: bool = True
    file: str
    line: int
    """0-based."""
    offset: int
    """Byte offset of the line in its file."""
    text: CleanText
    logged_at: UtcDatetime | None = None
    """The line's own time, where it has one with a date and a zone or a known zone."""
    node: str | None = None
    rank: int | None = None
    gpu: str | None = None
    ends_rank: bool = False
    """The line says that a process ended or is about to."""
    key: str = ""
    """What stays the same when the same failure is replayed: exception and code line, path, code."""


class StepLine(Model):
    """A line that says how far training has come."""

    step: int
    file: str
    line: int
    offset: int
    rank: int | None = None
    loss: float | None = None
    step_seconds: float | None = None
    throughput: float | None = None
    logged_at: UtcDatetime | None = None


class PhaseKind(StrEnum):
    """What training does while no step line comes."""

    CHECKPOINT_SAVE = "checkpoint_save"
    CHECKPOINT_LOAD = "checkpoint_load"
    EVALUATION = "evaluation"
    COMPILATION = "compilation"
    DATA_LOADING = "data_loading"


class PhaseLine(Model):
    """A line that says that a phase other than stepping began or ended."""

    phase: PhaseKind
    begins: bool
    file: str
    line: int
    offset: int
    step: int | None = None
    path: CleanText = ""


Event = Finding | StepLine | PhaseLine
