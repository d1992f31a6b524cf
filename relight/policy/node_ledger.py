"""The ledger of nodes: which of them are implicated in failures of different jobs. Pure.

A node that failed one job twice had one bad day; one that failed three jobs is worth a technician's time.
"""

from datetime import datetime, timedelta

from relight.contracts.guard import GuardLimits, GuardState, NodeRecord, NodeReport, NodeView, Strike

_NEEDS = ("", "reset", "reboot")
MAX_NODE_STRIKES = 8
"""Strikes kept of one node."""
MAX_NODES = 1000
"""Nodes with strikes that are remembered; those that were reported least recently are forgotten first."""
MAX_STRIKES = 2000
"""Strikes of all nodes together."""


def note_strikes(limits: GuardLimits, state: GuardState, report: NodeReport, now: datetime) -> None:
    """Takes a report into the ledger. The same job and cause is one strike, however often it is told."""
    at = min(report.at, now)
    if at <= now - limits.strike_window:
        return
    for name in report.nodes:
        record = state.nodes.pop(name, NodeRecord())
        if report.hardware and record.hardware and report.hardware != record.hardware:
            record = NodeRecord()  # another machine under the old name
        needs = _worse(record.needs, report.needs)
        state.nodes[name] = NodeRecord(
            strikes=_with(record.strikes, report, at) if report.faulty else record.strikes,
            hardware=report.hardware or record.hardware,
            needs=needs,
            needs_since=record.needs_since if needs == record.needs else at,
        )


def forget_old(limits: GuardLimits, state: GuardState, now: datetime) -> None:
    """Drops the strikes that are too old, and the least recently reported nodes beyond the bounds."""
    old = now - limits.strike_window
    for name, record in list(state.nodes.items()):
        if all(strike.at > old for strike in record.strikes):
            continue
        kept = tuple(strike for strike in record.strikes if strike.at > old)
        if kept or record.needs:
            state.nodes[name] = record.model_copy(update={"strikes": kept})
        else:
            del state.nodes[name]
    _shrink(state)


def score(limits: GuardLimits, record: NodeRecord, now: datetime) -> float:
    """The strikes of a node, each counting half after each half life."""
    return float(
        sum(
            0.5 ** (max(now - strike.at, timedelta(0)) / limits.strike_half_life)
            for strike in record.strikes
            if strike.at > now - limits.strike_window
        )
    )


def view(limits: GuardLimits, name: str, record: NodeRecord, now: datetime) -> NodeView:
    """A node as people read it: is it a lemon, and why.

    What only job logs say makes no lemon: the jobs' users write them.
    """
    strikes = tuple(s for s in reversed(record.strikes) if s.at > now - limits.strike_window)
    points = score(limits, record, now)
    jobs = len({strike.job for strike in strikes})
    trusted = any(strike.trusted for strike in strikes)
    enough = jobs >= limits.lemon_jobs and points >= limits.lemon_score
    causes = ", ".join(dict.fromkeys(strike.cause.value for strike in strikes))
    why = f"{jobs} {'job' if jobs == 1 else 'jobs'} failed on it ({causes})"
    if enough and not trusted:
        why += "; only job logs say so"
    return NodeView(
        node=name,
        score=round(points, 3),
        jobs=jobs,
        lemon=enough and trusted,
        why=why,
        strikes=strikes,
        hardware=record.hardware,
        needs=record.needs,
        needs_since=record.needs_since,
    )


def clear(state: GuardState, node: str) -> None:
    """A person has mended it: nothing is held against it any more."""
    state.nodes.pop(node, None)


def ranked(limits: GuardLimits, state: GuardState, now: datetime) -> tuple[NodeView, ...]:
    """All nodes with strikes, the worst first."""
    views = [view(limits, name, record, now) for name, record in state.nodes.items()]
    return tuple(
        sorted(
            (v for v in views if v.strikes or v.needs), key=lambda v: (not v.lemon, -v.jobs, -v.score, v.node)
        )
    )


def lemons(limits: GuardLimits, state: GuardState, now: datetime) -> tuple[NodeView, ...]:
    """The lemons alone, the worst first: cheap, since few nodes have strikes enough."""
    found = [
        view(limits, name, record, now)
        for name, record in state.nodes.items()
        if len(record.strikes) >= limits.lemon_jobs
    ]
    return tuple(sorted((v for v in found if v.lemon), key=lambda v: (-v.jobs, -v.score, v.node)))


def _with(strikes: tuple[Strike, ...], report: NodeReport, at: datetime) -> tuple[Strike, ...]:
    known = next((s for s in strikes if (s.job, s.cause) == (report.job, report.cause)), None)
    strike = Strike(
        job=report.job, cause=report.cause, at=at, evidence=report.evidence, trusted=report.trusted
    )
    if known is not None:
        newer = known.at < at
        strike = known.model_copy(
            update={
                "at": max(known.at, at),
                "evidence": report.evidence if newer and report.evidence else known.evidence,
                "trusted": known.trusted or report.trusted,
                "count": known.count + newer,
            }
        )
    rest = [s for s in strikes if s is not known]
    return tuple(sorted([*rest, strike], key=lambda s: s.at)[-MAX_NODE_STRIKES:])


def _worse(before: str, now: str) -> str:
    """A reboot resets the GPUs too."""
    return max(before, now, key=_NEEDS.index) if {before, now} <= set(_NEEDS) else now or before


def _shrink(state: GuardState) -> None:
    total = sum(len(record.strikes) for record in state.nodes.values())
    while len(state.nodes) > MAX_NODES or total > MAX_STRIKES:
        oldest = next(iter(state.nodes))
        total -= len(state.nodes.pop(oldest).strikes)
