"""Asks Prometheus about a fault: an independent witness, that is silent where it does not know."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from activities.common import Context, now
from relight.contracts import GPU_HARDWARE_CAUSES, Diagnosis, Evidence, Source, Symptom
from relight.contracts.steps import Observation
from relight.prometheus import faults, hang
from relight.prometheus.machines import Machines
from relight.prometheus.reading import Reading

LONGEST = timedelta(minutes=10)
"""The most of a silence that is judged: what came long before does not matter any more."""
NORMAL = timedelta(minutes=30)
"""What is normal for a job is told by so long before the silence, if it has run for so long."""
SHORTEST_NORMAL = timedelta(seconds=5)


async def about_silence(
    context: Context,
    diagnosis: Diagnosis,
    nodes: Sequence[str],
    silence: timedelta,
    started: datetime | None = None,
) -> Observation | None:
    """What the GPUs of a silent job say; None: there is no Prometheus, or it is no silence.

    `started` is when the attempt began: what its nodes did before was another job's normal.
    """
    settings = context.settings.prometheus
    machines = Machines.of(settings)
    if machines is None or diagnosis.symptom is not Symptom.HANG or not nodes:
        return None
    reading = await machines.read(
        hang.QUERIES,
        nodes,
        window=min(silence, LONGEST),
        before=normal_time(silence, started, now()),
        ago=silence,
    )
    sign = hang.judge(reading, nodes, silence, settings)
    return _observation(sign.verdict, sign.text, sign.query)


def normal_time(silence: timedelta, started: datetime | None, at: datetime) -> timedelta:
    """How much of the time before the silence tells what is normal for this attempt. Pure."""
    if started is None:
        return NORMAL
    return max(SHORTEST_NORMAL, min(NORMAL, at - silence - started))


async def about_hardware(context: Context, diagnosis: Diagnosis, nodes: Sequence[str]) -> Observation | None:
    """Whether exporters saw the fault of the suspected nodes; None: no Prometheus, or no such fault.

    That they saw nothing refutes nothing: a scrape comes every so often, and counters can miss it.
    """
    settings = context.settings.prometheus
    machines = Machines.of(settings)
    suspects = [node for node in diagnosis.nodes if node in nodes]
    if machines is None or diagnosis.cause not in GPU_HARDWARE_CAUSES or not suspects:
        return None
    window = max(settings.fault_window, now() - diagnosis.occurred_at + settings.stale_after)
    reading = await machines.read(faults.QUERIES, suspects, window=window)
    if reading.problem:
        return _observation("not available", f"Prometheus does not tell: {reading.problem}")
    found = [f for f in faults.faults(reading, suspects) if faults.speaks_for(f, diagnosis.cause)]
    evidence = [
        Evidence(
            source=Source.PROMETHEUS,
            observed_at=now(),
            node=f.node,
            gpu=f.gpu or None,
            text=f.says,
            where=f.query,
            signature=f"prometheus.{f.name}",
        )
        for f in found
    ]
    if evidence:
        text = "; ".join(e.text for e in evidence[:4])
        return Observation(
            source=Source.PROMETHEUS.value, verdict="confirms", text=text, evidence=tuple(evidence[:8])
        )
    return _observation("unknown", _nothing(reading, suspects))


def _nothing(reading: Reading, nodes: Sequence[str]) -> str:
    told = [f"Xid {code} on {node}" for node, _, code in faults.xids(reading, nodes)]
    seen = f"; {', '.join(told[:4])}, as the kernel says" if told else ""
    return f"exporters show no new fault of {', '.join(nodes[:8])}{seen}"


def _observation(verdict: str, text: str, query: str = "") -> Observation:
    evidence: tuple[Evidence, ...] = ()
    if verdict in {"confirms", "refutes"}:
        evidence = (Evidence(source=Source.PROMETHEUS, observed_at=now(), text=text, where=query),)
    return Observation(source=Source.PROMETHEUS.value, verdict=verdict, text=text, evidence=evidence)
