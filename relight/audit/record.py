"""What the audit trail consists of. Stored in archives: fields are only ever added."""

from enum import StrEnum

from relight.contracts import Diagnosis, Evidence, Mode, Model, RecoveryOutcome, TrainingJob, UtcDatetime
from relight.contracts.commands import CommandGiven
from relight.contracts.messages import AttemptReport


class Who(StrEnum):
    """Whose deed or word it was."""

    RELIGHT = "relight"
    PERSON = "person"
    SENSOR = "sensor"
    SLURM = "slurm"
    """The scheduler, whichever it is."""
    TEMPORAL = "temporal"


class AuditRecord(Model):
    """One thing that was seen, decided, done or answered, as one event of a workflow's history tells it."""

    at: UtcDatetime
    who: Who
    name: str = ""
    """Of the person, the detector or the source, where known. Temporal does not prove a person's name."""
    what: str
    """A word that stays the same, for filters: `reported`, `diagnosed`, `answered`, `confirmed`, `asked`,
    `approved`, `rejected`, `command`, `did`, `failed`, `ended`, ..."""
    text: str = ""
    """In words."""
    step: str = ""
    """Of the runbook, where it belongs to one."""
    plan_digest: str = ""
    """Of the plan that it is about, where history names one."""
    evidence: tuple[Evidence, ...] = ()
    """Quoted, each with its source and where to see it again."""
    command: CommandGiven | None = None
    """What the scheduler was told to change, and its answer."""
    workflow_id: str
    event_id: int
    """Of the event in that workflow's history (`temporal workflow show`)."""


class RecoveryAudit(Model):
    """All that history tells of one recovery."""

    recovery_id: str
    run_id: str = ""
    monitor_id: str = ""
    job: TrainingJob
    """As it was at the start of the recovery: attempt, mode, policy."""
    diagnosis: Diagnosis
    """As the monitor made it."""
    detectors: tuple[str, ...] = ()
    """Which detectors reported the anomalies that it began with."""
    started: UtcDatetime
    ended: UtcDatetime | None = None
    asked: UtcDatetime | None = None
    """When a plan was first shown to people; None: no person had to be asked."""
    mode: Mode = Mode.OBSERVE
    """At the start."""
    gpus: int | None = None
    """Of the job, as the scheduler told when the fault was confirmed; None: it did not, or was not asked."""
    reports: tuple[AttemptReport, ...] = ()
    """What sensors told of the attempt meanwhile."""
    drains: tuple[str, ...] = ()
    """Ids of the workflows that drain nodes for everyone on its plan. They go on after its end."""
    outcome: RecoveryOutcome | None = None
    """None: it is open, or ended without a result."""
    records: tuple[AuditRecord, ...] = ()
    """In the order of history."""
