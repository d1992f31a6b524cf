"""Whose drain it is: what relight writes into a node's reason, and how it knows its own again. Pure.

A node has one reason, and whoever drains it last writes it. So a drain is relight's exactly as long as the
reason says so: what a person or another tool drained is never changed and never given back.
"""

from datetime import datetime, timedelta

from relight.contracts import Cause, NodeInfo, clean_text
from relight.contracts.node_drain import NodeHow, NodeLook

PREFIX = "relight:"
MAX_REASON = 250
KILL_FAILED = "Kill task failed"
"""The reason by which Slurm itself drains a node whose processes survive SIGKILL (slurm.conf(5),
UnkillableStepTimeout)."""
BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})

UNSAVED = timedelta(seconds=10)
"""What slurmctld accepted is surely on disk after this time: it saves its state at least each five seconds
(SAVE_MAX_WAIT in its sources), and forgets in a crash what came after."""
SKEW = timedelta(seconds=2)
"""Slurm tells its start in whole seconds, by another clock than the worker's."""


def reason_for(cause: Cause, recovery_id: str, because: str) -> str:
    """The reason that a drained node shows: for people, and for relight itself to know it again."""
    head = f"{PREFIX} {cause.value} [{recovery_id}]"
    return f"{head} {clean_text(because, max(10, MAX_REASON - len(head) - 1))}".strip()


def stands(info: NodeInfo | None, recovery_id: str) -> NodeHow:
    """How a node stands to the drain that this recovery planned.

    Args:
        info: what the scheduler says of it; None: it knows no such node.
        recovery_id: the recovery.
    """
    if info is None:
        return NodeHow.UNKNOWN
    if info.is_drained:
        if info.reason.startswith(PREFIX):
            return NodeHow.OURS if f"[{recovery_id}]" in info.reason else NodeHow.ANOTHER
        return NodeHow.KILL_FAILED if info.reason.startswith(KILL_FAILED) else NodeHow.OTHERS
    return NodeHow.LOST if info.is_lost else NodeHow.FREE


def was_forgotten(look: NodeLook, drained_at: datetime, seen_at: datetime | None) -> bool:
    """The scheduler crashed before it had saved the drain: nobody gave the node back.

    Args:
        look: how the node stands now.
        drained_at: when the scheduler accepted the drain.
        seen_at: when the node was last seen drained by it; None: never since.
    """
    if look.how is not NodeHow.FREE or look.scheduler_since is None:
        return False
    saved = seen_at is not None and seen_at - drained_at >= UNSAVED
    return not saved and look.scheduler_since + SKEW >= drained_at


def is_idle(info: NodeInfo) -> bool:
    """No job is on it and none leaves it: a draining node is drained."""
    return info.state not in BUSY and "COMPLETING" not in info.flags


def in_words(info: NodeInfo) -> str:
    """A node's state, for a sentence."""
    state = "+".join((info.state, *info.flags))
    if not info.reason:
        return state
    by = f", by {info.reason_user}" if info.reason_user else ""
    return f"{state}, reason {info.reason!r}{by}"
