"""Signals, updates and queries of the workflows, and the inputs they start with.

One frozen model in, one out. `by` and `reason` travel in the payload: Temporal's own identity field is
whatever the client says it is.
"""

from datetime import timedelta
from enum import StrEnum

from pydantic import Field

from relight.contracts.anomaly import Anomaly, Diagnosis, Progress, Symptom
from relight.contracts.base import CleanText, Model, UtcDatetime
from relight.contracts.cause import Cause
from relight.contracts.job import Attempt, JobState, Mode, TrainingJob
from relight.contracts.outcome import CheckpointRef, RecoveryOutcome
from relight.contracts.plan import Plan


class AttemptEvent(StrEnum):
    """What a sensor tells of an attempt."""

    STARTED = "started"
    ENDED = "ended"
    PROGRESS = "progress"


class AttemptReport(Model):
    """Signal `report_attempt`: a sensor tells how an attempt goes. A repeat changes nothing."""

    attempt: Attempt
    event: AttemptEvent
    at: UtcDatetime
    state: JobState | None = None
    """For `ended`: how."""
    reason: CleanText = ""
    exit_code: int | None = None
    nodes: tuple[str, ...] = ()
    """For `started`: the allocation."""
    progress: Progress | None = None


class Decision(Model):
    """A person's word on a plan (update `decide`, signals `approve` and `reject`)."""

    approved: bool = True
    by: CleanText = ""
    reason: CleanText = ""
    plan_digest: str = ""
    """Which plan. The `decide` update needs it; in a signal, empty means the plan now shown."""


class DecisionResult(Model):
    """What came of a decision."""

    accepted: bool
    message: str
    recovery_id: str = ""


class ModeChange(Model):
    """Signal and update `set_mode`."""

    mode: Mode
    by: CleanText = ""
    reason: CleanText = ""


class Note(Model):
    """Signals `pause`, `unpause` and `unwatch`: who and why."""

    by: CleanText = ""
    reason: CleanText = ""


class RecoveryEnded(Model):
    """Signal `recovery_ended`, from a recovery to its monitor."""

    outcome: RecoveryOutcome


class RecoveryNews(Model):
    """Signal `recovery_news`, from a recovery to its monitor: it waits for a person, or no longer does."""

    recovery_id: str
    state: str
    """As `RecoveryStatus.state`."""


class EndReason(StrEnum):
    """Why a monitor ended."""

    COMPLETED = "completed"
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    STOPPED = "stopped"
    """By policy, or because a person rejected or did not decide."""
    UNWATCHED = "unwatched"
    GONE = "gone"
    """The scheduler says that it knows no such job, and accounting does not tell how it ended."""


class RecoveryRecord(Model):
    """One recovery in a monitor's memory."""

    recovery_id: str
    anomaly_ids: tuple[str, ...] = ()
    started: UtcDatetime
    lease: UtcDatetime
    """When the monitor stops counting on the recovery to report."""
    outcome: RecoveryOutcome | None = None
    """None while it is open, and for good when it was lost: terminated, or silent beyond its lease."""
    attempt: Attempt | None = None
    """The attempt that failed."""
    symptom: Symptom = Symptom.NONE
    state: str = ""
    """The last news of it."""


class PastFailure(Model):
    """A failure that a restart followed."""

    root_key: str
    """As in the diagnosis: what a replay of the same failure names again; empty when it names nothing."""
    cause: Cause
    step: int | None = None
    """How far training had come; None: it had printed no step."""
    allocation: str = ""
    """The nodes of the attempt, folded: `node[001-064]`."""
    where: tuple[str, ...] = ()
    """The nodes on which it went wrong."""
    at: UtcDatetime | None = None
    """When the restart was ordered; None: noted by an older version."""


class UnknownSignal(Model):
    """A monitor was sent a signal of a name that it does not know."""

    name: CleanText


class MonitorState(Model):
    """Everything of a monitor that survives continue-as-new. Bounded by construction."""

    seen: tuple[str, ...] = ()
    """Ids of anomalies already taken in, oldest first."""
    inbox: tuple[Anomaly, ...] = ()
    settle_until: UtcDatetime | None = None
    progress: Progress | None = None
    paused: bool = False
    active: tuple[RecoveryRecord, ...] = ()
    ended_recoveries: tuple[RecoveryRecord, ...] = ()
    ledger: tuple[PastFailure, ...] = ()
    """Failures of this run that a restart followed, oldest first."""
    noticed: tuple[str, ...] = ()
    """What was seen and needs no recovery, newest last: a slowdown, for example."""
    saves: tuple[UtcDatetime, ...] = ()
    """When the latest usable checkpoints were saved, oldest first."""
    attempts: tuple[AttemptReport, ...] = ()
    """How the latest attempts began and ended."""
    ahead: AttemptReport | None = None
    """The newest progress of another attempt than the current one, told while a recovery is open."""
    end: EndReason | None = None
    end_detail: str = ""
    next_poll: UtcDatetime | None = None
    unknown_polls: int = 0
    signals: int = 0
    duplicates: int = 0
    stale: int = 0
    missed: int = 0
    """Faults that only the monitor's own look at the scheduler found."""
    refuted: int = 0
    """Suspected faults that were none."""
    renewals: int = 0
    malformed: int = 0
    """Signals whose payload could not be read."""
    overflow: int = 0
    """Anomalies beyond what one diagnosis can take; counted, then dropped."""
    lost: int = 0
    """Recoveries that never reported their end."""
    recoveries: int = 0
    """Recoveries started over the monitor's life."""
    furthest_step: int | None = None
    """The furthest step of any attempt."""
    unknown_signals: int = 0
    """Signals of names that the monitor does not know."""
    unknown_signal: CleanText = ""
    """What people are told of the latest one."""
    snapshot_saved: bool = False
    """What it takes to submit the job again has been saved."""
    diverged_from: CheckpointRef | None = None
    """Training diverged after it resumed here, and has not resumed since."""
    excluded: dict[str, UtcDatetime] = Field(default={})
    """Nodes that relight keeps the job off, and since when it was last sure of that; oldest first."""
    would_have: dict[str, int] = Field(default={})
    """For rules that only count: of how many recoveries they alone were the reason."""


class MonitorInput(Model):
    """Starts a `TrainingJobMonitor`."""

    job: TrainingJob
    state: MonitorState = MonitorState()
    guard_id: str = ""
    """The guard that recoveries of this job ask; empty: none."""
    notify: bool = False
    """Recoveries of this job tell people, where the worker's settings say whom."""
    archive: bool = False
    """Recoveries of this job are put into the archive when they have ended."""


class MonitorStatus(Model):
    """Query `status`."""

    job: TrainingJob
    state: str
    """watching, settling, recovering, awaiting-approval, paused, ended."""
    progress: Progress | None = None
    """The last that a sensor told: while steps come, every 30 s, or more rarely in an old attempt, down to
    every 5 min. A suspected hang is told at once."""
    open_recoveries: tuple[str, ...] = ()
    noticed: tuple[str, ...] = ()
    """What was seen and needs no recovery, newest last; at the end, a signal whose name is not known."""
    signals: int = 0
    duplicates: int = 0
    stale: int = 0
    missed: int = 0
    refuted: int = 0
    renewals: int = 0
    malformed: int = 0
    lost: int = 0
    recoveries: int = 0
    end: EndReason | None = None
    end_detail: str = ""
    paused: bool = False
    guard_id: str = ""
    """The guard that recoveries of this job ask; empty: none."""
    last_restart: UtcDatetime | None = None
    """When the latest restart of the run was ordered; None: none was."""
    would_have: dict[str, int] = Field(default={})
    """For rules that only count: of how many recoveries they alone were the reason."""


class MonitorResult(Model):
    """What a monitor returns."""

    end: EndReason
    detail: str = ""
    recoveries: int = 0
    signals: int = 0
    duplicates: int = 0
    missed: int = 0


class RecoveryInput(Model):
    """Starts a `RecoveryWorkflow`."""

    monitor_id: str
    job: TrainingJob
    diagnosis: Diagnosis
    anomalies: tuple[Anomaly, ...] = ()
    """What the diagnosis was made from, so that late evidence can be weighed with it."""
    ledger: tuple[PastFailure, ...] = ()
    paused: bool = False
    diverged_from: CheckpointRef | None = None
    """Training diverged after it resumed from this checkpoint: only earlier ones can be used."""
    readmitted: tuple[str, ...] = ()
    """Nodes that relight excluded so long ago that the job may run there again."""
    guard_id: str = ""
    """The guard to ask for a permit before the first change; empty: none."""
    notify: bool = False
    """Tell people, where the worker's settings say whom."""
    archive: bool = False
    """Put the record of this recovery into the archive when it has ended."""


class RecoveryStatus(Model):
    """Query `status` of a recovery."""

    recovery_id: str
    state: str
    """confirming, planning, awaiting-approval, awaiting-permit, isolating, draining, locating, steering,
    resubmitting, verifying, ended."""
    diagnosis: Diagnosis
    plan: Plan | None = None
    plan_digest: str = ""
    approval_deadline: UtcDatetime | None = None
    paused: bool = False
    mode: Mode = Mode.OBSERVE
    outcome: RecoveryOutcome | None = None
    log: tuple[str, ...] = ()
    """What was done so far, one line a step."""
    approved_by: str = ""
    approvals: tuple[str, ...] = ()
    """Who approved the plan that waits, where the policy wants two people."""
    approvals_needed: int = 1
    last_decision: str = ""
    """The last decision that was complete, in words: which plan, by whom and when; empty: there was none."""
    guard_id: str = ""
    permit: str = ""
    """Of the guard: wanted, waiting, granted, refused; empty: not asked, or there is no guard to ask."""
    permit_gate: str = ""
    """Which of the guard's gates is closed."""
    permit_reason: str = ""
    cluster_paused: bool = False
    """The guard told of a pause of the whole cluster."""
    cluster_observes: bool = False
    """The guard told that the whole cluster observes."""


LEASE = timedelta(days=3)
"""How long a monitor counts on an open recovery, beyond the longest wait of its policy."""
