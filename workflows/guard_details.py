"""The current details of a cluster's guard, in Markdown: what is allowed now, and what a person can do."""

from collections.abc import Sequence

from relight.contracts.guard import BreakerState, BreakerView, GuardStatus, NodeView
from workflows.details import Block, code, counted, page, said

MAX_LISTED = 10

_HEADS = {
    "paused": "paused",
    "incident": "incident",
    "open": "open breaker",
    "half_open": "half-open breaker",
    "closed": "all breakers closed",
}


def guard_details(status: GuardStatus, lemons: Sequence[NodeView]) -> str:
    """The page of a guard."""
    blocks: list[Block] = [
        [f"# Cluster {code(status.cluster)}: {_HEADS[state_word(status)]}"],
        _in_force(status),
    ]
    # A list: the web UI puts no space between the cells of a table.
    blocks.append(
        ["## Limits", *(f"- {b.name}: **{b.used}** of {b.limit} {b.unit}".rstrip() for b in status.budgets)]
    )
    notable = [_breaker(view) for view in status.breakers if _is_notable(view)]
    blocks.append(["## Breakers", *(notable or ["All closed; no faulty node counts now."])])
    if status.waiting:
        waiting = [
            f"- {code(w.request.holder)}: **{w.gate}**, {said(w.reason)}" for w in status.waiting[:MAX_LISTED]
        ]
        blocks.append([f"## Waiting: {status.queued}", *waiting])
    if status.permits:
        held = [
            f"- {code(p.request.holder)} ({p.request.kind.value}, user {code(p.request.user or '?')}), "
            f"until {p.until:%Y-%m-%d %H:%M} UTC"
            for p in status.permits[:MAX_LISTED]
        ]
        blocks.append([f"## Permits: {len(status.permits)}", *held])
    if lemons:
        listed = [
            f"- {code(n.node)}: {said(n.why)}, score {n.score:.1f}; "
            f"{code(f'relight nodes clear {n.node}')} once it is mended"
            for n in lemons[:MAX_LISTED]
        ]
        blocks.append(["## Lemons", *listed])
    counts = status.counts
    blocks.append(
        [
            f"{counted(counts.granted, 'permit')} granted, {counts.refused} refused, "
            f"{counts.expired} expired; {counted(counts.reports, 'node report')}, {counts.stale} about "
            "settled faults. "
            "All of it in a terminal: `relight guard`."
        ]
    )
    return page(blocks)


def _in_force(status: GuardStatus) -> Block:
    """What holds everything up, and how to end it; else that nothing does."""
    lines = []
    if status.paused:
        lines.append(
            f"**Paused** by {code(status.paused_by or 'somebody')}{_because(status.paused_reason)}. "
            "Nothing is changed anywhere. `relight unpause --cluster` ends it."
        )
    if status.observes:
        lines.append(
            f"**Observes**, by {code(status.observes_by or 'somebody')}{_because(status.observes_reason)}. "
            "A person must approve each plan, and no node is drained. `relight guard mode act` ends it."
        )
    lines += [
        f"**Incident**: {said(found.reason)}. Recoveries from {found.cause.value} wait, and no node is "
        "drained, until it has been quiet; `relight guard reset` ends it."
        for found in status.incidents
    ]
    return lines or [
        "Nobody has paused it. To stop every change at once: `relight pause --cluster --reason WHY`."
    ]


def _because(reason: str) -> str:
    return f": {said(reason)}" if reason else ""


def state_word(status: GuardStatus) -> str:
    """`paused`, `incident`, `open` (a breaker is), `half_open` or `closed`: also the search attribute."""
    if status.paused:
        return "paused"
    if status.incidents:
        return "incident"
    states = {view.breaker.state for view in status.breakers}
    for state in (BreakerState.OPEN, BreakerState.HALF_OPEN):
        if state in states:
            return state.value
    return BreakerState.CLOSED.value


def _is_notable(view: BreakerView) -> bool:
    return view.breaker.state is not BreakerState.CLOSED or view.nodes > 0


def _breaker(view: BreakerView) -> str:
    what = f"partition {code(view.partition)}" if view.partition else "the cluster"
    line = f"- {what}: **{view.breaker.state.value}**, {view.nodes} of {view.threshold} faulty nodes"
    if view.breaker.state is BreakerState.CLOSED:
        return line
    option = f" --partition {view.partition}" if view.partition else ""
    return f"{line}; {said(view.breaker.reason)}. {code(f'relight guard reset{option}')} closes it."
