"""The JSON that `--json` prints. Fields are only ever added; `relight.contracts` has the models inside."""

from relight.audit.record import AuditRecord, RecoveryAudit
from relight.config import Written
from relight.contracts import (
    Action,
    Cause,
    Mode,
    Model,
    Outcome,
    Plan,
    Policy,
    RecoveryOutcome,
    Role,
    Symptom,
    TrainingJob,
    UtcDatetime,
)
from relight.contracts.messages import MonitorStatus, RecoveryStatus
from relight.contracts.outcome import Timeline
from relight.diagnosis.findings import PhaseLine, StepLine
from relight.quality.case import Case
from relight.quality.figures import Figures
from relight.report.contents import Report


class StandStill(Model):
    """A hang that goes on, and that nobody is asked about again: its plan was declined."""

    since: UtcDatetime | None = None
    step: int | None = None
    """At which it hangs; null: before its first step."""
    outcome: Outcome
    """`rejected` or `expired`."""
    reason: str = ""
    """Who said no and why, or how long nobody decided."""
    recovery_id: str


class WatchedJob(Model):
    """One element of `relight jobs --json`."""

    monitor_id: str
    job: TrainingJob
    state: str
    """watching, settling, recovering, awaiting-approval, paused, ended."""
    started: UtcDatetime
    """When relight began to watch it."""
    ended: UtcDatetime | None = None
    """None: it is watched now."""
    status: MonitorStatus | None = None
    """None: no worker answered."""
    stands_still: StandStill | None = None
    """It hangs, its plan was declined, and no later step was seen since."""


class RecoveryView(Model):
    """One recovery of a job, in `relight show --json`."""

    recovery_id: str
    started: UtcDatetime
    ended: UtcDatetime | None = None
    status: RecoveryStatus | None = None
    """Of an open one, and of the latest: evidence, plan, digest, deadline, log. None: no worker answered."""
    outcome: RecoveryOutcome | None = None
    """Of an ended one. None: it ended without a result (terminated, say)."""
    times: Timeline | None = None
    """When each thing happened; of an open recovery, as far as it has come. None: not asked for (only the
    latest open one and ended ones have it), or its history cannot be read."""


class JobView(WatchedJob):
    """`relight show --json`."""

    recoveries: tuple[RecoveryView, ...] = ()
    """Oldest first."""
    earlier_ids: tuple[str, ...] = ()
    """Job ids that this run had before it was submitted anew, oldest first."""


class LogQuote(Model):
    """A piece of evidence, and where it is now."""

    source: str
    """`job_log`, `scheduler`, `kernel`, `nvml`, `prometheus` or `operator`."""
    observed_at: UtcDatetime
    text: str
    """As it was recorded: one line, cleaned and bounded."""
    node: str | None = None
    rank: int | None = None
    signature: str = ""
    where: str = ""
    """`file:byte offset`, or the query or command that showed it."""
    place: str = ""
    """The same in words: `file:line` for a line of a file whose number is known."""
    file: str = ""
    """The log file; empty: it is not from one."""
    line: int | None = None
    """Number of the line in the file, from 1: counted now, or, where the file is gone or too long for that,
    as it was recorded. None: not known."""
    verbatim: bool = False
    """The file says just this there now. False where it cannot be read, was written anew, or where the text
    is about the line ("no step since", for example)."""
    problem: str = ""
    """Why the file cannot tell; empty: it can, or there is none."""


class LogLine(Model):
    """One line of a log file."""

    line: int | None
    offset: int
    """Of its first byte."""
    text: str
    """Cleaned and bounded."""
    evidence: bool
    """It is an evidence line, and not one around it."""


class LogExcerpt(Model):
    """Lines of a log file that follow each other."""

    file: str
    lines: tuple[LogLine, ...]


class LogsView(Model):
    """`relight logs --json`."""

    job_id: str
    monitor_id: str
    recovery_id: str
    outcome: str = ""
    """How the recovery ended; empty: it is open, or ended without a result."""
    evidence: tuple[LogQuote, ...] = ()
    """In the order in which it came in."""
    excerpts: tuple[LogExcerpt, ...] = ()


class GateView(Model):
    """A closed gate: what keeps relight from acting, and how to open it."""

    gate: str
    why: str
    opens: str
    """A command, or what to do."""


class WhyView(Model):
    """`relight why --json`."""

    monitor_id: str
    job: TrainingJob
    state: str
    """Of the open recovery, or else of the monitor."""
    recovery_id: str = ""
    closed: tuple[GateView, ...] = ()
    """In the order in which relight meets them; empty: nothing keeps it from acting."""


class ProblemView(Model):
    """Something wrong in a policy file."""

    line: int
    key: str = ""
    message: str


class PolicyCheckView(Model):
    """`relight policy check --json`."""

    file: str
    ok: bool
    problems: tuple[ProblemView, ...] = ()
    """What is wrong with it; by line."""
    warnings: tuple[str, ...] = ()
    """What is allowed and may not be meant."""
    policies: tuple[str, ...] = ()
    """The names that jobs may choose."""


class PolicyView(Model):
    """`relight policy show --json`."""

    policy: Policy
    mode: Mode | None = None
    """What a job would get; None: asked about a policy and not about a job."""
    reasons: tuple[str, ...] = ()
    """How it came to that."""
    caps: tuple[GateView, ...] = ()
    """What keeps such a job from acting."""
    job_id: str = ""
    """Empty: not about a job that the scheduler knows."""


class AppliedView(Model):
    """One element of `relight policy apply --json`: a job that was told to observe."""

    job_id: str
    monitor_id: str
    why: str


class RuleCountView(Model):
    """One element of `relight policy would-have --json`."""

    rule: str
    """A detector, a signature or an Xid that only counts."""
    listed: bool
    """It is listed under `observe` in the policy file now."""
    recoveries: int
    """So many recoveries would have acted on its word alone."""
    jobs: tuple[str, ...] = ()
    """The jobs concerned."""


class RolledBackJob(Model):
    """One job of a rollback."""

    job_id: str
    monitor_id: str
    before: Mode
    """As Temporal's list has it."""
    recovering: bool = False
    """A recovery was under way: it asks a person before its next change."""


class RollbackView(Model):
    """`relight rollback --json`."""

    cluster: str
    jobs: tuple[RolledBackJob, ...] = ()
    """Those that were told to observe."""
    recoveries: tuple[str, ...] = ()
    """The recoveries under way that were told."""
    failed: tuple[str, ...] = ()
    """Workflows that could not be told, and why."""
    guard: bool = True
    """The guard was told too: also jobs that are watched from now on observe."""
    heard: bool = True
    """The guard and all monitors say so. False: it is on record, and no worker answers."""


class SetupReport(Model):
    """`relight setup --json`."""

    namespace: str
    added: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """With --check: what a run without it would add."""


class SettingView(Model):
    """One element of `relight config --json`."""

    key: str
    value: Written
    origin: str
    """`default`, `file PATH`, `environment RELIGHT_...` or `flag`."""


class QuotedLine(Model):
    """A line that a diagnosis rests on."""

    file: str
    line: int
    """From 0."""
    text: str
    signature: str
    role: Role


class FirstError(Model):
    """Where a run went wrong first."""

    file: str
    line: int
    """From 0."""


class LastProgress(Model):
    """How far training had come."""

    last_step: int
    throughput: float | None = None
    """As the run printed it."""


class DiagnoseView(Model):
    """`relight diagnose --json`."""

    symptom: Symptom
    cause: Cause
    retryable: bool
    blame_nodes: tuple[str, ...] = ()
    action: Action
    confidence: float
    first_error: FirstError | None = None
    progress: LastProgress | None = None
    evidence: tuple[QuotedLine, ...] = ()
    explanation: str
    because: str
    """Why this action."""
    dropped: tuple[str, ...] = ()
    """Causes that were considered and dropped, in words."""
    blind: bool
    """No step line was recognised."""
    attempts: int
    unread: bool = False
    """No file could be read as a log (all are empty, packed or no text): nothing is known of the run."""


class FaultySignature(Model):
    """A signature with what is wrong with it."""

    signature: str
    where: str
    """`file:line`."""
    faults: tuple[str, ...]


class LintView(Model):
    """`relight catalogue lint --json`."""

    signatures: int
    faulty: tuple[FaultySignature, ...] = ()
    left_out: tuple[str, ...] = ()
    """Entries that cannot be used at all, in words."""


class ProgressView(Model):
    """`relight progress test --json`."""

    step_lines: int
    """0: relight is blind to this job's progress."""
    phase_lines: int
    """Lines about saving, loading, evaluating and the like."""
    steps: tuple[StepLine, ...] = ()
    """The last few."""
    phases: tuple[PhaseLine, ...] = ()
    """The last few."""


class DemoResult(Model):
    """`relight demo --json`."""

    ok: bool
    """The training's own log proves that it passed the step it failed at, and relight says so too."""
    why: str = ""
    """Why not, where it is not."""
    scheduler: str
    fault: str
    mode: Mode
    job_id: str
    monitor_id: str
    fault_at: UtcDatetime | None = None
    failed_at_step: int | None = None
    resumed_at_step: int | None = None
    passed_step: int | None = None
    outcome: RecoveryOutcome | None = None
    """What relight says."""
    ui: str


class SimulationView(Model):
    """`relight simulate --json`."""

    ok: bool
    """Relight saw the fault and said the right thing of it; in act mode it also recovered the job, by the
    training's own log, or stopped with a reason."""
    right: bool
    """What it said of the fault is right; of `pause`, that it said nothing."""
    why: str = ""
    """Why it is not ok, where it is not."""
    fault: str
    partition: str = ""
    mode: Mode
    node: str = ""
    """Where the fault was injected."""
    job_id: str
    monitor_id: str = ""
    recovery_id: str = ""
    """The latest; empty: there was none."""
    fault_at: UtcDatetime | None = None
    """As the training recorded it."""
    detected_at: UtcDatetime | None = None
    symptom: Symptom = Symptom.NONE
    """As relight says; `none`: it noticed nothing."""
    cause: str = ""
    suspects: tuple[str, ...] = ()
    """The nodes that it suspects."""
    plan: Plan | None = None
    """What it would do, or did."""
    outcome: RecoveryOutcome | None = None
    """None: it waits for a person (observe mode), or has not ended."""
    failed_at_step: int | None = None
    resumed_at_step: int | None = None
    passed_step: int | None = None


class AuditView(Model):
    """`relight audit JOB|RECOVERY --json`."""

    target: str
    monitor_id: str = ""
    """Of the latest monitor."""
    monitor_ids: tuple[str, ...] = ()
    """Of all monitors that watched the job, oldest first; empty as `monitor`. A job that was watched again
    without being submitted anew has the same monitor id."""
    monitor: tuple[AuditRecord, ...] = ()
    """From the histories of these monitors, one watch after the other; empty where only a recovery was asked
    for, or the archive had to answer."""
    recoveries: tuple[RecoveryAudit, ...] = ()
    """Oldest first."""
    drains: tuple[AuditRecord, ...] = ()
    """From the workflows that drain nodes on their plans, as far as Temporal still has them."""
    from_archive: tuple[str, ...] = ()
    """Ids of those recoveries that the archive told of."""


class VerifyCheck(Model):
    """One thing that was decided again."""

    what: str
    recorded: str
    now: str
    same: bool


class VerifyView(Model):
    """`relight audit verify --json`."""

    recovery_id: str
    checks: tuple[VerifyCheck, ...] = ()
    same: bool


class ArchiveCheckView(Model):
    """One element of `relight audit check-archive --json`."""

    chain: str
    records: int
    """Before the problem, if there is one."""
    hash: str
    """Of the last good record."""
    problem: str = ""
    """The first one; empty: the chain is whole."""


class QualityView(Model):
    """`relight quality --json`."""

    since: UtcDatetime
    """When observing began: the window asked for, or the first watch in it."""
    until: UtcDatetime
    min_precision: float
    groups: tuple[Figures, ...] = ()
    cases: tuple[Case, ...] = ()
    """Oldest first."""
    simulated_left_out: int = 0
    """So many recoveries of `relight simulate` are not counted."""


class ReportView(Report):
    """`relight report --json`."""


class StageView(Model):
    """One stage that `relight doctor` looked at."""

    stage: str
    state: str
    """`ok`, `note` (works, but see `note`) or `broken`."""
    found: str
    note: str = ""
    mend: str = ""
    """How to mend it, where it is broken."""


class DoctorView(Model):
    """`relight doctor --json`."""

    stages: tuple[StageView, ...] = ()
    """Up to the first broken one: later ones rely on it."""
    broken: str = ""
    """The first broken stage; empty: none."""


class OverdueHold(Model):
    """One element of `relight watchdog --json`: a job that relight held for longer than it said."""

    job_id: str
    user: str
    recovery_id: str
    held: str
    """Why it was held, as the job's comment says."""
    until: UtcDatetime | None = None
    """The deadline in the comment; None: there is none."""
    why: str
    """Why it is overdue, and why it is only reported where it is."""
    releasable: bool
    """Relight itself requeued and held it, and nobody else since."""
    released: bool = False
    """It was released just now."""
