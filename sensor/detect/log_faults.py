"""What the job's logs say of faults: the same judgement as `relight diagnose`, at any moment of a run."""

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from relight.contracts import Anomaly, Attempt, Evidence, Role
from relight.diagnosis.assemble import OUTLIVED, Silence, assemble
from relight.diagnosis.findings import Sighting
from sensor.memory import Memory

MAX_QUOTES = 10
"""Quoted lines, each of another kind."""


def candidates(memory: Memory) -> list[Sighting]:
    """The findings that are a reason to report: they end a rank, and training has not gone on after them."""
    return [
        s
        for s in memory.trail.sightings
        if s.finding.ends_rank and not s.historic and not s.told and s.outlived < OUTLIVED
    ]


def while_it_runs(
    memory: Memory,
    attempt: Attempt,
    nodes: Sequence[str],
    tasks_per_node: int | None,
    now: datetime,
    *,
    silence: Silence | None = None,
    slow: bool = False,
) -> list[Anomaly]:
    """The anomalies of an attempt that runs; what only follows from a fault stays a cascade.

    Args:
        memory: what is known of the job.
        attempt: the attempt.
        nodes: its allocation, in rank order.
        tasks_per_node: ranks on each.
        now: the time of detection.
        silence: it has been silent for too long.
        slow: a slowdown is wanted too.
    """
    seen = [s for s in memory.trail.seen(now) if not s.historic]
    return assemble(
        [*seen, *(memory.trail.slow(now) if slow else ())],
        attempt=attempt,
        now=now,
        nodes=nodes,
        tasks_per_node=tasks_per_node,
        progress=memory.progress,
        silence=silence,
        ended=False,
        complete=False,
    )


def after_it_failed(
    memory: Memory, attempt: Attempt, nodes: Sequence[str], tasks_per_node: int | None, now: datetime
) -> list[Anomaly]:
    """The anomalies of an attempt that the scheduler says has failed. The arguments are as above."""
    return assemble(
        memory.trail.seen(now),
        attempt=attempt,
        now=now,
        nodes=nodes,
        tasks_per_node=tasks_per_node,
        progress=memory.progress,
        ended=True,
    )


def quotes(sightings: Sequence[Sighting]) -> tuple[Evidence, ...]:
    """What else was said, as evidence, one line of each kind."""
    first: dict[tuple[str, str], Sighting] = {}
    for s in sightings:
        first.setdefault((s.finding.signature, s.finding.key), s)
    return tuple(_evidence(s) for s in islice(first.values(), MAX_QUOTES))


def has_root(anomalies: Sequence[Anomaly]) -> bool:
    """One of them explains the others."""
    return any(a.role is Role.ROOT for a in anomalies)


def _evidence(s: Sighting) -> Evidence:
    f = s.finding
    return Evidence(
        source=f.source,
        observed_at=s.at,
        text=f.text,
        node=f.node,
        rank=f.rank,
        gpu=f.gpu,
        where=f"{f.file}:{f.offset}",
        line=f.line_number,
        signature=f.signature,
    )
