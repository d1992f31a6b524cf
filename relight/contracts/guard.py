"""What travels to and from a cluster's guard: permits, node reports, limits, and the state it keeps.

The guard decides how much relight may do at once in one cluster. Sensors and recoveries signal it, and it
answers by signal: an entity that answered by update would collapse above ten requests at a time.
"""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from relight.contracts.base import CleanText, Model, UtcDatetime, clean_text
from relight.contracts.cause import Cause

MAX_DRAIN_NODES = 64
"""Nodes that one request may ask to drain."""

Name = Annotated[str, AfterValidator(lambda text: clean_text(text, 64))]
"""Name of a node, user or partition: cleaned, at most 64 characters."""
Holder = Annotated[str, AfterValidator(lambda text: clean_text(text, 300))]
"""Workflow id of who holds or wants a permit; it is also where the answer goes."""
Quote = Annotated[str, AfterValidator(lambda text: clean_text(text, 80))]
"""A short piece of evidence: thousands of them must fit into the guard's state."""


class PermitKind(StrEnum):
    """What a permit allows."""

    RECOVERY = "recovery"
    """To carry out the mutating steps of one recovery of one job."""
    DRAIN = "drain"
    """To take nodes away from everyone."""


class PermitRequest(Model):
    """Signal `request_permit`. Asking again changes nothing, and is answered again."""

    holder: Holder
    kind: PermitKind = PermitKind.RECOVERY
    nodes: tuple[Name, ...] = Field(default=(), max_length=MAX_DRAIN_NODES)
    """For a drain: which nodes."""
    partition: Name = ""
    user: Name = ""
    """Whose job it is."""
    job: Name = ""
    """The attempt, for people to read."""
    cause: Cause = Cause.UNKNOWN
    evidence_at: UtcDatetime | None = None
    """When the fault was seen. A drain for a fault from before a reset of the breaker is refused."""
    lease: timedelta | None = None
    """How long the permit may be held without a word of its holder; None: as the limits say."""


class PermitRelease(Model):
    """Signal `release_permit`."""

    holder: Holder
    kind: PermitKind = PermitKind.RECOVERY


class PermitDecision(Model):
    """Signal `permit_decided`, from the guard to the holder; also sent when a pause begins or ends."""

    holder: Holder
    kind: PermitKind = PermitKind.RECOVERY
    granted: bool = False
    waits: bool = False
    """Not granted yet: it stays in the queue. Neither granted nor waiting: refused for good."""
    paused: bool = False
    """Nothing may be changed now, permit or not: the cluster is paused, or for a drain a breaker tripped."""
    observe: bool = False
    """The whole cluster observes: the holder changes nothing unless a person approved that plan."""
    gate: str = ""
    """Which gate is closed; empty when granted."""
    reason: CleanText = ""
    lease_until: UtcDatetime | None = None


class NodeReport(Model):
    """Signal `report_node`: nodes are implicated in a fault. A repeat changes nothing."""

    nodes: tuple[Name, ...] = Field(min_length=1, max_length=MAX_DRAIN_NODES)
    cause: Cause
    at: UtcDatetime
    """When the fault was seen."""
    partition: Name = ""
    partition_nodes: int | None = Field(default=None, ge=1)
    """How many nodes the partition has, where the reporter knows."""
    job: Name = ""
    """The job that failed; strikes count distinct jobs."""
    evidence: Quote = ""
    trusted: bool = True
    """Not only the job's own log says so."""
    hardware: Name = ""
    """What changes when the node's hardware is replaced (a serial number); a boot id does not."""
    needs: Name = ""
    """What the node needs when it is idle: `reset` or `reboot`; empty: nothing that is known."""
    faulty: bool = True
    """It failed a job, or will: a strike, and the breakers count it. Else only `needs` is noted."""


class NodeClear(Model):
    """Signal `clear_node`: a person has mended a node, and nothing is held against it any more."""

    node: Name
    by: CleanText = ""
    reason: CleanText = ""


class FaultReport(Model):
    """Signal `report_fault`: a job failed by what other jobs may share too. A repeat changes nothing."""

    job: Name
    user: Name = ""
    cause: Cause
    at: UtcDatetime
    """When the fault was seen."""


class Incident(Model):
    """Many jobs that failed alike: recoveries from this cause wait, and no node is drained."""

    cause: Cause
    since: UtcDatetime
    last_fault: UtcDatetime
    """When the latest fault that belongs to it was seen."""
    jobs: tuple[Name, ...] = ()
    """The first of them."""
    reason: CleanText = ""


class BreakerReset(Model):
    """Signal `reset_breaker`: a person has looked, and drains may go on."""

    partition: Name = ""
    """Only this partition's breaker; empty: all of the cluster's, and incidents."""
    by: CleanText = ""
    reason: CleanText = ""


class GuardLimits(Model):
    """What a cluster can take. Shares are fractions of 1."""

    recoveries_at_once: int = Field(default=50, ge=1, le=500)
    """Recoveries between their first change and their end."""
    recoveries_per_hour: int = Field(default=200, ge=1, le=1000)
    """Recoveries that get their permit within an hour."""
    recoveries_per_user: int = Field(default=20, ge=1, le=500)
    """Recoveries at once of one user's jobs."""
    drains_per_hour: int = Field(default=4, ge=0, le=500)
    """Nodes taken away from everyone in an hour."""
    drain_share: float = Field(default=0.1, ge=0, le=1)
    """The most of a partition that may be drained at one time. One node always may; where the partition's
    size is not known, no more than one."""
    breaker_nodes: int = Field(default=3, ge=1)
    """So many faulty nodes trip a breaker, where `breaker_share` of all is not more."""
    breaker_share: float = Field(default=0.05, ge=0, le=1)
    """So many faulty nodes trip the breaker: `breaker_nodes`, or this share of all if that is more."""
    breaker_window: timedelta = Field(default=timedelta(minutes=10), gt=timedelta(0))
    """Only nodes whose faults were seen within this time count together."""
    breaker_cool_down: timedelta = Field(default=timedelta(minutes=30), gt=timedelta(0))
    """How long no new fault must be seen before an open breaker lets one drain try, or an incident ends."""
    incident_jobs: int = Field(default=3, ge=0)
    """So many different jobs that fail within `breaker_window` by the same shared cause (storage or
    network_fabric) are one incident; 0: never."""
    lease: timedelta = Field(default=timedelta(days=1), gt=timedelta(0), le=timedelta(days=14))
    """How long a permit is kept for a holder that says nothing."""
    strike_window: timedelta = Field(default=timedelta(days=28), gt=timedelta(0))
    """How long a node's strikes are remembered."""
    strike_half_life: timedelta = Field(default=timedelta(days=7), gt=timedelta(0))
    """A strike counts half after this time."""
    lemon_jobs: int = Field(default=3, ge=1)
    """A lemon failed at least so many different jobs ..."""
    lemon_score: float = Field(default=2.0, gt=0)
    """... and its strikes, decayed, add up to this."""
    cluster_nodes: int | None = Field(default=None, ge=1)
    """How many nodes the cluster has; None: as the scheduler told the worker."""
    partition_nodes: dict[str, int] = Field(default={})
    """How many nodes each partition has, where nobody else can tell."""


class BreakerState(StrEnum):
    """A circuit breaker's state."""

    CLOSED = "closed"
    """Drains are allowed, within the budgets."""
    OPEN = "open"
    """Too many nodes at once: something else is wrong, and no drain is allowed."""
    HALF_OPEN = "half_open"
    """It has been quiet: one drain of one node may try."""


class Breaker(Model):
    """The circuit breaker of a partition, or of the cluster."""

    state: BreakerState = BreakerState.CLOSED
    since: UtcDatetime | None = None
    """When it came into this state; None: it never left `closed`."""
    last_fault: UtcDatetime | None = None
    """While open: when the latest fault that counts was heard of."""
    reason: CleanText = ""
    """Why it tripped, or how it closed again."""
    reset_at: UtcDatetime | None = None
    """When a person reset it last: what was seen before does not count any more."""
    probe: str = ""
    """While half open: the permit that tries."""
    probe_ended: UtcDatetime | None = None
    trips: int = 0


class Strike(Model):
    """One cause with which one job failed on one node."""

    job: Name
    cause: Cause
    at: UtcDatetime
    """The latest time."""
    evidence: Quote = ""
    trusted: bool = True
    count: int = 1


class NodeRecord(Model):
    """What is held against a node."""

    strikes: tuple[Strike, ...] = ()
    """Oldest first, one for each job and cause."""
    hardware: Name = ""
    needs: Name = ""
    """`reset` or `reboot`, when it is idle."""
    needs_since: UtcDatetime | None = None


class Sighting(Model):
    """The latest fault of a node, as far as breakers are concerned."""

    partition: Name
    at: UtcDatetime
    cause: Cause


class Permit(Model):
    """A permit that is held."""

    request: PermitRequest
    granted_at: UtcDatetime
    until: UtcDatetime
    """The lease; without a word of the holder the permit ends then."""
    held_back: bool = False
    """A drain whose holder was told that a breaker tripped: what is not drained yet must not be any more."""


class Waiting(Model):
    """A request in the queue."""

    request: PermitRequest
    since: UtcDatetime
    gate: str = ""
    reason: CleanText = ""


class DrainGrant(Model):
    """Nodes that were allowed to be drained, for the hourly budget."""

    at: UtcDatetime
    nodes: int


class GuardCounts(Model):
    """What the guard did over its life."""

    model_config = ConfigDict(frozen=False)

    granted: int = 0
    refused: int = 0
    expired: int = 0
    """Permits whose lease ran out, or whose holder was gone."""
    reports: int = 0
    stale: int = 0
    """Reports and requests about what was seen before a reset."""
    malformed: int = 0
    renewals: int = 0


class GuardState(Model):
    """Everything a guard knows, and all that survives continue-as-new. Bounded by `relight.policy.guard`.

    Not frozen, unlike other models: thousands of reports may come at once, and copying it for each would take
    longer than a workflow may think.
    """

    model_config = ConfigDict(frozen=False)

    paused: bool = False
    paused_at: UtcDatetime | None = None
    paused_by: CleanText = ""
    paused_reason: CleanText = ""
    observes: bool = False
    """The cluster was rolled back: jobs observe, whatever their own mode is."""
    observes_at: UtcDatetime | None = None
    observes_by: CleanText = ""
    observes_reason: CleanText = ""
    permits: dict[str, Permit] = Field(default={})
    """By `kind:holder`, in the order of the grants."""
    queue: dict[str, Waiting] = Field(default={})
    """By `kind:holder`, first come first."""
    ended: dict[str, UtcDatetime] = Field(default={})
    """Permits that were given back: a late request of the same holder is no new one."""
    recoveries: list[UtcDatetime] = Field(default=[])
    """When recoveries were granted, within the last hour."""
    drains: list[DrainGrant] = Field(default=[])
    breakers: dict[str, Breaker] = Field(default={})
    """By partition; the cluster's own under the empty name."""
    sightings: dict[str, Sighting] = Field(default={})
    """By node, least recently reported first."""
    nodes: dict[str, NodeRecord] = Field(default={})
    """By node, least recently reported first."""
    partitions: dict[str, int] = Field(default={})
    """Sizes, as reporters told."""
    faults: dict[str, FaultReport] = Field(default={})
    """Of causes that jobs share, by `cause:job`, least recently reported first."""
    incidents: dict[str, Incident] = Field(default={})
    """By cause."""
    incidents_settled_at: UtcDatetime | None = None
    """When a person ended them last: what was seen before does not count any more."""
    counts: GuardCounts = Field(default_factory=GuardCounts)


class GuardInput(Model):
    """Starts a `ClusterGuard`."""

    cluster: str
    limits: GuardLimits = GuardLimits()
    state: GuardState = Field(default_factory=GuardState)
    notify: bool = False
    """Tell people, where the worker's settings say whom."""


class Budget(Model):
    """One budget, as people read it."""

    name: str
    used: int
    limit: int
    unit: str = ""


class BreakerView(Model):
    """One breaker, as people read it."""

    partition: str = ""
    """Empty: the cluster's own."""
    breaker: Breaker
    nodes: int = 0
    """Faulty nodes that count now."""
    threshold: int = 0
    """So many trip it."""


class NodeView(Model):
    """One node of the ledger; an element of `relight nodes --json`."""

    node: str
    score: float
    """Its strikes, decayed."""
    jobs: int
    """Different jobs that failed on it."""
    lemon: bool
    why: str = ""
    strikes: tuple[Strike, ...] = ()
    """Newest first."""
    hardware: str = ""
    needs: str = ""
    """What it needs when it is idle: `reset` or `reboot`."""
    needs_since: UtcDatetime | None = None


class GuardStatus(Model):
    """Query `status` of the guard, and `relight guard --json`."""

    cluster: str
    paused: bool = False
    paused_at: UtcDatetime | None = None
    paused_by: str = ""
    paused_reason: str = ""
    observes: bool = False
    """Jobs observe, whatever their own mode is."""
    observes_at: UtcDatetime | None = None
    observes_by: str = ""
    observes_reason: str = ""
    permits: tuple[Permit, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    """The first of the queue, in order."""
    queued: int = 0
    """How many wait in all."""
    budgets: tuple[Budget, ...] = ()
    breakers: tuple[BreakerView, ...] = ()
    incidents: tuple[Incident, ...] = ()
    lemons: tuple[str, ...] = ()
    limits: GuardLimits = GuardLimits()
    counts: GuardCounts = Field(default_factory=GuardCounts)
