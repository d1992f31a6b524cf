"""What the scheduler said at one moment, for all watched jobs at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from relight.contracts import JobInfo, NodeInfo


@dataclass(frozen=True)
class View:
    """One answer. What is missing from it is unknown, and nothing may be concluded from that."""

    asked_at: datetime
    jobs: Mapping[str, JobInfo] = field(default_factory=dict)
    nodes: Mapping[str, NodeInfo] | None = None
    """None: the question for nodes failed, or was not asked."""
    reachable: bool = True


NOTHING = View(asked_at=datetime.fromtimestamp(0, UTC), reachable=False)
"""Before the first answer."""


def is_down(node: NodeInfo) -> bool:
    """The scheduler has given the node up: no process on it counts any more.

    Not responding alone is not that: the scheduler itself still waits for the node (Slurm: SlurmdTimeout).
    """
    return node.state in {"DOWN", "FAIL", "ERROR"}


def is_silent(node: NodeInfo) -> bool:
    """The node does not answer the scheduler."""
    return is_down(node) or "NOT_RESPONDING" in node.flags
