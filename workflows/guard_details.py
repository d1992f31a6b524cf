"""The current details of a cluster's guard, in Markdown: what is allowed now, and what a person can do."""

from collections.abc import Sequence

from relight.contracts.guard import BreakerState, BreakerView, GuardStatus, NodeView
from workflows.details import MAX_DETAILS, clip, code

MAX_LISTED = 10


def guard_details(status: GuardStatus, lemons: Sequence[NodeView]) -> str:
    """The page of a guard."""
    parts = [f"# Cluster {code(status.cluster)}: {state_word(status)}"]
    if status.paused:
        why = f": {code(status.paused_reason)}" if status.paused_reason else ""
        parts.append(
            f"**Paused** by {code(status.paused_by or 'somebody')}{why}. Nothing is changed anywhere. "
            "`relight unpause --cluster` ends it."
        )
    if status.observes:
        why = f": {code(status.observes_reason)}" if status.observes_reason else ""
        parts.append(
            f"**Observes**, by {code(status.observes_by or 'somebody')}{why}. A person must approve each "
            "plan, and no node is drained. `relight guard mode act` ends it."
        )
    parts += [
        f"**Incident**: {code(found.reason)}. Recoveries from {found.cause.value} wait, and no node is "
        "drained, until it has been quiet; `relight guard reset` ends it."
        for found in status.incidents
    ]
    rows = [f"| {b.name} | {b.used} | {b.limit} {b.unit} |" for b in status.budgets]
    parts.append("\n".join(["| budget | used | limit |", "| --- | --- | --- |", *rows]))
    notable = [_breaker(view) for view in status.breakers if _is_notable(view)]
    parts.append("## Breakers\n" + ("\n".join(notable) or "All closed; no faulty node counts now."))
    if status.waiting:
        waiting = [
            f"- {code(w.request.holder)}: **{w.gate}**, {code(w.reason)}" for w in status.waiting[:MAX_LISTED]
        ]
        parts.append(f"## Waiting: {status.queued}\n" + "\n".join(waiting))
    if status.permits:
        held = [
            f"- {code(p.request.holder)} ({p.request.kind.value}, user {code(p.request.user or '?')}), "
            f"until {p.until:%Y-%m-%d %H:%M} UTC"
            for p in status.permits[:MAX_LISTED]
        ]
        parts.append(f"## Permits: {len(status.permits)}\n" + "\n".join(held))
    if lemons:
        listed = [f"- {code(n.node)}: {code(n.why)}, score {n.score:.1f}" for n in lemons[:MAX_LISTED]]
        parts.append("## Lemons\n" + "\n".join(listed))
    counts = status.counts
    parts.append(
        f"{counts.granted} permits granted, {counts.refused} refused, {counts.expired} expired; "
        f"{counts.reports} node reports, {counts.stale} about settled faults."
    )
    return clip("\n\n".join(parts), MAX_DETAILS)


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
    return f"{line}; {code(view.breaker.reason)}. {code(f'relight guard reset{option}')} closes it."
