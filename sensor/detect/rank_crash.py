"""Rank crash: lines in the job's log say that processes ended."""

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from relight.contracts import Anomaly, Attempt, Cause, Evidence, Progress, Role, Suspect, Symptom
from relight.diagnosis.findings import Finding
from sensor.memory import PendingFinding

DETECTOR = "rank-crash"
MAX_EVIDENCE = 10
"""Quoted lines of one anomaly, each of another kind."""
MAX_SUSPECTS = 16
OUTLIVED = 2
"""Progress after a finding that proves that it ended nothing."""

_RANKING = {Role.ROOT: 0, Role.CASCADE: 1, Role.CONTEXT: 2}


def candidates(pending: Sequence[PendingFinding]) -> list[PendingFinding]:
    """The findings that are a reason to report: they end a rank, and training has not gone on after them."""
    return [p for p in pending if p.finding.ends_rank and not p.historic and p.outlived < OUTLIVED]


def rank_crash(
    pending: Sequence[PendingFinding],
    attempt: Attempt,
    progress: Progress | None,
    now: datetime,
    *,
    more: int = 0,
) -> list[Anomaly]:
    """One anomaly for a whole cascade, named after its most telling line; none if no line ends a rank.

    Lines that name different causes become an anomaly for each cause: which one explains the others is for
    the diagnosis to say. What only follows (peers that lost their connection) is counted with the first.

    Args:
        pending: what the logs said, context too.
        attempt: whose logs.
        progress: how far training had come.
        now: the time of detection.
        more: findings that were only counted.
    """
    ending = [p for p in pending if p.finding.ends_rank]
    if not ending:
        return []
    ranked = sorted(pending, key=_telling)
    roots = [p for p in ranked if p.finding.role is Role.ROOT]
    causes: dict[Cause, list[PendingFinding]] = {}
    for p in roots:
        causes.setdefault(p.finding.cause, []).append(p)
    first, *others = list(causes.values()) or [sorted(ending, key=_telling)]
    rest = [p for p in ranked if p not in first and p not in roots]
    follow = sum(p.finding.ends_rank for p in rest)
    return [
        _anomaly(first, [*first, *rest], ending, attempt, progress, now, len(first) + follow + more),
        *(_anomaly(group, group, group, attempt, progress, now, len(group)) for group in others),
    ]


def _anomaly(
    group: Sequence[PendingFinding],
    quoted: Sequence[PendingFinding],
    timed: Sequence[PendingFinding],
    attempt: Attempt,
    progress: Progress | None,
    now: datetime,
    count: int,
) -> Anomaly:
    f = group[0].finding
    return Anomaly(
        anomaly_id=Anomaly.make_id(attempt, DETECTOR, f.signature, f.file, f.offset),
        attempt=attempt,
        symptom=Symptom.CRASH,
        cause=f.cause,
        role=f.role,
        suspects=tuple(dict.fromkeys(s for p in group for s in _suspects(p.finding)))[:MAX_SUSPECTS],
        evidence=quotes(quoted),
        occurred_at=min(min(p.at, p.written_by) for p in timed),
        detected_at=now,
        count=count,
        retryable=all(p.finding.retryable for p in group),
        progress=progress,
        detector=DETECTOR,
        hold_out=any(p.finding.hold_out for p in group),
        key=f.key,
        weight=f.weight,
        says=f.says,
    )


def quotes(pending: Sequence[PendingFinding]) -> tuple[Evidence, ...]:
    """Findings as evidence, one of each kind, the first ones first."""
    first: dict[tuple[str, str], PendingFinding] = {}
    for p in pending:
        first.setdefault((p.finding.signature, p.finding.key), p)
    return tuple(_evidence(p) for p in islice(first.values(), MAX_EVIDENCE))


def _telling(p: PendingFinding) -> tuple[int, int, int, datetime, int]:
    f = p.finding
    return (_RANKING[f.role], -f.weight, int(p.historic), p.at, f.offset)


def _suspects(f: Finding) -> tuple[Suspect, ...]:
    if f.node is None and f.rank is None and f.gpu is None:
        return ()
    return (Suspect(node=f.node, rank=f.rank, gpu=f.gpu, because=f.says or f.text),)


def _evidence(p: PendingFinding) -> Evidence:
    f = p.finding
    return Evidence(
        source=f.source,
        observed_at=p.at,
        text=f.text,
        node=f.node,
        rank=f.rank,
        gpu=f.gpu,
        where=f"{f.file}:{f.offset}",
        signature=f.signature,
    )
