"""What reading a log yields: findings (a signature matched) and step lines. No engine is imported here."""

from enum import StrEnum

from pydantic import Field

from relight.contracts import Cause, CleanText, Model, Role, Source, Symptom, UtcDatetime

UNKNOWN_LINE = -1
"""The number of a line in a file whose first lines were not counted."""


class Finding(Model):
    """A signature of the catalogue matched a line."""

    signature: str
    role: Role
    symptom: Symptom
    cause: Cause
    retryable: bool = True
    file: str
    line: int
    """0-based; or `UNKNOWN_LINE`."""
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
    source: Source = Source.JOB_LOG
    hold_out: bool = False
    """If this is the root, its node should not be used again before somebody looked at it."""
    weight: int = 0
    """Preferred among roots of equal rank when higher; generic signatures have a negative one."""
    tag: str = ""
    """What the cross-line rules know the signature by (`watchdog`, `peer`, `finished`, ...); mostly empty."""
    peer: str | None = None
    """The far end that a network message names, as printed or as a node name where that is known."""
    says: str = ""
    """What the signature means, for a person."""
    groups: dict[str, str] = Field(default_factory=dict)
    """The named groups of the signature's pattern."""
    attempt: int = 0
    """Counts the starts that the log itself announces; a log of one attempt has 0 throughout."""
    needs: str = ""
    """What the node needs: `reset` (of the GPU, when idle) or `reboot`; empty: nothing that is known."""

    @property
    def line_number(self) -> int | None:
        """As people count, from 1; None: not known."""
        return line_number(self.line)


class Sighting(Model):
    """A finding, and how it stands to the rest of what the logs said."""

    finding: Finding
    at: UtcDatetime
    """When it happened, as well as that is known: its own time, or when it was seen."""
    timed: bool = True
    """`at` can be compared with times from other files."""
    outlived: int = 0
    """Different steps that its attempt printed after it: training went on."""
    historic: bool = False
    """It was in the log when the watch began: it may explain a failure, and is none by itself."""
    told: bool = False
    """It is part of what was reported."""


class StepLine(Model):
    """A line that says how far training has come."""

    step: int
    file: str
    line: int
    """0-based; or `UNKNOWN_LINE`."""
    offset: int
    rank: int | None = None
    total: int | None = None
    """The last step of the run, where the line says it."""
    loss: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None
    step_seconds: float | None = None
    data_seconds: float | None = None
    """The part of `step_seconds` that was waited for data."""
    throughput: float | None = None
    """As printed."""
    skipped: int | None = None
    """Iterations without an update since the last line (fp16 overflow)."""
    no_loss: bool = False
    """The format prints a loss field, and this line has none or a bad one (Megatron drops a NaN loss)."""
    format: str = ""
    attempt: int = 0
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


def line_number(line: int) -> int | None:
    """As people count, from 1, of a 0-based one; None: not known."""
    return None if line == UNKNOWN_LINE else line + 1


_LASTING_TAGS = frozenset(
    {"end", "cancel", "step-cancel", "node-fail", "node-down", "numerics", "finished", "slow"}
)
_LASTING_SIGNATURES = frozenset({"kernel.xid-64", "kernel.gpu-remap-failed", "metrics.remap-failed"})
"""The GPU has broken memory in use: it will go wrong although it still runs."""


def is_lasting(finding: Finding) -> bool:
    """It stays true although steps follow."""
    return finding.tag in _LASTING_TAGS or will_go_wrong(finding)


def will_go_wrong(finding: Finding) -> bool:
    """Something is broken that training has not met yet."""
    return finding.signature in _LASTING_SIGNATURES
