"""Collective timeouts: who is missing, who lags, who does something else.

A watchdog line speaks of the past: the collective began one timeout earlier. It accuses whoever did not
print one, lags in sequence number, or was in another operation, not the ranks that print it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from relight.contracts import Cause
from relight.diagnosis.findings import Finding

MAX_TIMEOUT = timedelta(hours=6)


@dataclass(frozen=True)
class WatchdogVerdict:
    """What the timeouts of an incident amount to."""

    cause: Cause
    ranks: tuple[int, ...] = ()
    """The ranks to look at: lagging, diverging or silent."""
    node: str | None = None
    """All silent ranks are exactly the ranks of this node."""
    ago: timedelta = timedelta(0)
    """How long before the lines the fault happened."""
    says: str = ""
    silent: bool = False
    """Some ranks never reported."""


def judge(
    findings: Sequence[Finding], *, nodes: Sequence[str], tasks_per_node: int | None, finished: bool
) -> WatchdogVerdict:
    """Compares the ranks' timeouts.

    Args:
        findings: watchdog lines.
        nodes: the job's nodes, in rank order.
        tasks_per_node: ranks on each of them, if known.
        finished: training had said that it was done before.
    """
    by_rank: dict[int, tuple[int, str]] = {}
    ago = timedelta(0)
    for f in findings:
        if f.rank is not None and f.groups.get("seq", "").isdigit():
            by_rank.setdefault(f.rank, (int(f.groups["seq"]), f.groups.get("op", "")))
        timeout = f.groups.get("timeout", "")
        if timeout.isdigit() and len(timeout) < 12:
            ago = max(ago, min(MAX_TIMEOUT, timedelta(milliseconds=int(timeout))))
    world = len(nodes) * tasks_per_node if tasks_per_node else 0
    silent = tuple(r for r in range(world) if r not in by_rank) if by_rank else ()
    if finished:
        return WatchdogVerdict(
            Cause.USER_CODE, silent[:1], None, ago, "Training was over; some rank was busy alone."
        )
    operations = Counter(by_rank.values())
    if len({op for _, op in operations}) > 1:
        return WatchdogVerdict(
            Cause.USER_CODE,
            _odd_ones(by_rank, operations) or silent,
            None,
            ago,
            "The ranks were in different operations: they took different paths through the program.",
            bool(silent),
        )
    if len(operations) > 1:
        low = min(seq for seq, _ in operations)
        lagging = tuple(r for r, (seq, _) in sorted(by_rank.items()) if seq == low)
        return WatchdogVerdict(Cause.UNKNOWN, lagging, None, ago, "Some ranks lagged behind the others.")
    if world and not silent:
        return WatchdogVerdict(
            Cause.NETWORK_FABRIC,
            (),
            None,
            ago,
            "All ranks waited in the same operation: the transport stood still.",
        )
    node = _node_of_all(silent, nodes, tasks_per_node, len(by_rank), world)
    says = f"All ranks but those of {node} waited." if node else "Some ranks never reported."
    return WatchdogVerdict(Cause.UNKNOWN, silent[:8] if len(silent) <= world // 2 else (), node, ago, says)


def _odd_ones(by_rank: dict[int, tuple[int, str]], operations: Counter[tuple[int, str]]) -> tuple[int, ...]:
    usual, count = operations.most_common(1)[0]
    if 2 * count <= len(by_rank):
        return ()
    return tuple(r for r, what in sorted(by_rank.items()) if what != usual)


def _node_of_all(
    silent: Sequence[int], nodes: Sequence[str], per_node: int | None, reported: int, world: int
) -> str | None:
    """The node whose ranks, all of them and no others, are silent."""
    if not per_node or len(nodes) < 2 or len(silent) != per_node or reported != world - per_node:
        return None
    which = {r // per_node for r in silent}
    return nodes[which.pop()] if len(which) == 1 else None
