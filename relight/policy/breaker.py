"""Circuit breakers: many faulty nodes at once are one incident, and draining them all would not cure it.

Pure. A breaker opens when enough different nodes have faults within a window; after a quiet time it lets one
drain of one node try (half open), and closes if that brings no new fault. A person may close it at any time;
then nothing that was seen before counts any more.
"""

import math
from collections import Counter
from datetime import datetime

from relight.contracts.guard import Breaker, BreakerState, GuardLimits, GuardState, NodeReport, Sighting

CLUSTER = ""
"""The cluster's own breaker, beside those of the partitions."""
MAX_PARTITIONS = 100
"""Partitions with a breaker of their own; further ones count for the cluster only."""
MAX_SIGHTINGS = 2000
MAX_THRESHOLD = 1000
"""No breaker needs more faulty nodes than this: more could not be kept apart within `MAX_SIGHTINGS`."""


def threshold(limits: GuardLimits, state: GuardState, partition: str) -> int:
    """So many faulty nodes trip this breaker."""
    size = size_of(limits, state, partition)
    share = math.ceil(limits.breaker_share * size) if size else 0
    return min(max(limits.breaker_nodes, share), MAX_THRESHOLD)


def size_of(limits: GuardLimits, state: GuardState, partition: str) -> int | None:
    """How many nodes the partition (or the cluster) has; None: nobody told."""
    if partition == CLUSTER:
        return limits.cluster_nodes
    return limits.partition_nodes.get(partition) or state.partitions.get(partition)


def scopes(state: GuardState, partition: str) -> tuple[str, ...]:
    """The breakers that a node of this partition is about."""
    room = partition in state.breakers or len(state.breakers) < MAX_PARTITIONS
    return (partition, CLUSTER) if partition and room else (CLUSTER,)


def faulty(limits: GuardLimits, state: GuardState, partition: str, now: datetime) -> dict[str, Sighting]:
    """The nodes that count for this breaker now."""
    breaker = state.breakers.get(partition, Breaker())
    after = now - limits.breaker_window
    if breaker.reset_at is not None:
        after = max(after, breaker.reset_at)
    if breaker.state is BreakerState.HALF_OPEN and breaker.since is not None:
        after = max(after, breaker.since)
    return {
        node: seen
        for node, seen in state.sightings.items()
        if seen.at > after and partition in (CLUSTER, seen.partition)
    }


def is_stale(state: GuardState, partition: str, at: datetime) -> bool:
    """What was seen then has been settled by a person's reset since."""
    return any(
        (breaker := state.breakers.get(scope)) is not None
        and breaker.reset_at is not None
        and at <= breaker.reset_at
        for scope in {partition, CLUSTER}
    )


def note_faults(limits: GuardLimits, state: GuardState, report: NodeReport, now: datetime) -> tuple[str, ...]:
    """Takes the faults of a report into account.

    Returns:
        The breakers that may have to trip: `trip` decides, once for all reports that came together.
    """
    at = min(report.at, now)  # a clock that is ahead must not make a fault count for longer
    if at <= now - limits.breaker_window or is_stale(state, report.partition, at):
        return ()
    for node in report.nodes:
        before = state.sightings.pop(node, None)
        seen = Sighting(partition=report.partition, at=at, cause=report.cause)
        state.sightings[node] = seen if before is None or before.at < at else before
    while len(state.sightings) > MAX_SIGHTINGS:
        del state.sightings[next(iter(state.sightings))]
    concerned = scopes(state, report.partition)
    for scope in concerned:
        breaker = state.breakers.get(scope)
        if breaker is not None and breaker.state is BreakerState.OPEN:
            last = max(breaker.last_fault or at, at)
            state.breakers[scope] = breaker.model_copy(update={"last_fault": last})
    return concerned


def trip(limits: GuardLimits, state: GuardState, scope: str, now: datetime) -> bool:
    """Opens a breaker if so many nodes have faults now, or any new one while one drain tries.

    Returns:
        It opened now.
    """
    breaker = state.breakers.get(scope, Breaker())
    half_open = breaker.state is BreakerState.HALF_OPEN
    needed = 1 if half_open else threshold(limits, state, scope)
    if breaker.state is BreakerState.OPEN or len(state.sightings) < needed:
        return False
    found = faulty(limits, state, scope, now)
    if len(found) < needed:
        return False
    causes = ", ".join(f"{c.value} {n}" for c, n in Counter(s.cause for s in found.values()).most_common(4))
    where = f"of partition {scope}" if scope else "of the cluster"
    nodes = "1 node" if len(found) == 1 else f"{len(found)} nodes"
    when = "while one drain tried" if half_open else f"within {limits.breaker_window}"
    state.breakers[scope] = breaker.model_copy(
        update={
            "state": BreakerState.OPEN,
            "since": now,
            "last_fault": max(seen.at for seen in found.values()),
            "reason": f"{nodes} {where} {when}: {causes}",
            "probe": "",
            "probe_ended": None,
            "trips": breaker.trips + 1,
        }
    )
    return True


def tick(limits: GuardLimits, state: GuardState, now: datetime) -> None:
    """Lets time pass: opens half, closes, forgets what is too old to count."""
    for scope, breaker in state.breakers.items():
        when = next_change(limits, breaker)
        if when is None or when > now:
            continue
        if breaker.state is BreakerState.OPEN:
            update: dict[str, object] = {
                "state": BreakerState.HALF_OPEN,
                "reason": f"no new fault for {limits.breaker_cool_down}",
            }
        else:
            why = "one drain brought no new fault" if breaker.probe_ended else "it stayed quiet"
            update = {"state": BreakerState.CLOSED, "reason": why, "probe_ended": None}
        state.breakers[scope] = breaker.model_copy(update={**update, "since": now})
    old = now - limits.breaker_window
    gone = [node for node, seen in state.sightings.items() if seen.at <= old]
    for node in gone:
        del state.sightings[node]


def next_change(limits: GuardLimits, breaker: Breaker) -> datetime | None:
    """When the breaker changes if nothing happens; None: it does not."""
    if breaker.state is BreakerState.OPEN and breaker.last_fault is not None:
        return breaker.last_fault + limits.breaker_cool_down
    if breaker.state is BreakerState.HALF_OPEN:
        if breaker.probe_ended is not None:
            return breaker.probe_ended + limits.breaker_window
        if not breaker.probe and breaker.since is not None:
            return breaker.since + limits.breaker_cool_down
    return None


def begin_probe(state: GuardState, partition: str, key: str) -> None:
    """A drain was allowed: for half open breakers it is the one that tries."""
    for scope in scopes(state, partition):
        breaker = state.breakers.get(scope)
        if breaker is not None and breaker.state is BreakerState.HALF_OPEN:
            state.breakers[scope] = breaker.model_copy(update={"probe": key})


def end_probe(state: GuardState, key: str, now: datetime) -> None:
    """A drain's permit ended; where it was the one that tried, the time to see what it brought begins."""
    for scope, breaker in state.breakers.items():
        if breaker.probe == key:
            state.breakers[scope] = breaker.model_copy(update={"probe": "", "probe_ended": now})


def reset(state: GuardState, partition: str, who: str, now: datetime) -> None:
    """Closes the breaker of a partition, or (empty name) all of them. What was seen before is settled."""
    known = [partition] if partition else [*dict.fromkeys([CLUSTER, *state.breakers])]
    if not partition:
        state.sightings.clear()
    for scope in known:
        if scope not in state.breakers and len(state.breakers) >= MAX_PARTITIONS and scope != CLUSTER:
            continue
        breaker = state.breakers.get(scope, Breaker())
        state.breakers[scope] = breaker.model_copy(
            update={
                "state": BreakerState.CLOSED,
                "since": now,
                "reset_at": now,
                "reason": f"reset by {who}",
                "probe": "",
                "probe_ended": None,
            }
        )
