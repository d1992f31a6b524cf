"""What travels to and from the workflow that takes one node away from everyone, until it is given back."""

from enum import StrEnum

from relight.contracts.anomaly import Evidence
from relight.contracts.base import CleanText, Model, UtcDatetime
from relight.contracts.cause import Cause
from relight.contracts.commands import CommandGiven


class DrainEnd(StrEnum):
    """How the drain of a node ended."""

    RELEASED = "released"
    """relight gave the node back: a person said so, or the site's check passed."""
    TAKEN_BACK = "taken_back"
    """Somebody else gave the node back, or drained it for another reason: it is theirs now."""
    NOT_DRAINED = "not_drained"
    """Nothing was done: it was down, or drained by others, already, or the scheduler does not know it."""
    REFUSED = "refused"
    """The guard refuses a permit."""
    EXPIRED = "expired"
    """No permit in time: the fault is too old to drain the node for it."""
    WITHDRAWN = "withdrawn"
    """A person said no before it was drained."""
    FAILED = "failed"
    """The scheduler refused, or did not answer for hours."""


class NodeDrainInput(Model):
    """Starts a `NodeDrain`."""

    cluster: str
    node: str
    cause: Cause
    recovery_id: str
    """On whose plan; the drain's reason carries it, and its workflow is told how it goes."""
    job: str = ""
    """The attempt, for people to read."""
    partition: str = ""
    user: str = ""
    because: CleanText = ""
    evidence: tuple[Evidence, ...] = ()
    evidence_at: UtcDatetime
    guard_id: str
    drained_at: UtcDatetime | None = None
    """Carried over by a renewal: it is drained."""
    log: tuple[str, ...] = ()


class NodeDrainStatus(Model):
    """Query `status` of a `NodeDrain`; an element of `relight nodes drains --json`."""

    drain_id: str
    node: str
    state: str
    """awaiting-permit, draining, drained, checking, releasing, ended."""
    cause: Cause
    job: str = ""
    recovery_id: str = ""
    drained_at: UtcDatetime | None = None
    gate: str = ""
    """Which of the guard's gates is closed."""
    reason: str = ""
    log: tuple[str, ...] = ()
    end: DrainEnd | None = None


class NodeDrainResult(Model):
    """What a `NodeDrain` returns."""

    node: str
    end: DrainEnd
    text: str = ""
    drained_at: UtcDatetime | None = None
    released_at: UtcDatetime | None = None


class DrainNews(Model):
    """Signal `drain_news`, from the drain of a node to the recovery that planned it."""

    node: str
    drained: bool
    text: CleanText


class NodeStep(Model):
    """Input of `drain_node`, `look_at_node`, `check_node` and `release_node`."""

    node: str
    recovery_id: str
    cause: Cause
    because: CleanText = ""


class NodeHow(StrEnum):
    """How a node stands to a drain of relight's."""

    FREE = "free"
    """Not drained."""
    OURS = "ours"
    """Drained, with a reason that carries this recovery."""
    ANOTHER = "another"
    """Drained by relight, for another recovery."""
    OTHERS = "others"
    """Drained by a person or another tool."""
    KILL_FAILED = "kill_failed"
    """Drained by Slurm: a process of a job could not be ended. The node needs a reboot."""
    LOST = "lost"
    """Down, or it does not answer."""
    UNKNOWN = "unknown"
    """The scheduler knows no such node."""


class NodeLook(Model):
    """Result of `drain_node`, `look_at_node` and `release_node`: how the node stands now."""

    how: NodeHow
    idle: bool = False
    """No job is on it any more: DRAINED, not DRAINING."""
    summary: CleanText = ""
    at: UtcDatetime | None = None
    """When the scheduler accepted the command, where one was given."""
    scheduler_since: UtcDatetime | None = None
    """When the scheduler was started last; told of a node that is not drained, where it is known."""
    commands: tuple[CommandGiven, ...] = ()
    """The changing commands that this try gave to the scheduler, in order."""


class NodeCheck(Model):
    """Result of `check_node`."""

    configured: bool = False
    passed: bool = False
    may_release: bool = False
    """The site's settings let relight give the node back when the check passes."""
    most: int = 1
    """So often a check may fail before a person is left with it."""
    again_in_seconds: float = 1800
    summary: CleanText = ""
