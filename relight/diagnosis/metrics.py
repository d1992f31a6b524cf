"""Metrics beside a log, as CSV: what a few well-known columns say about nodes and GPUs.

Columns are recognised by name, others are ignored. Utilisation is never used: waiting ranks show 100 %.
One odd sample means nothing; a GPU counts as throttled only when the hardware itself says so by its
clock-event bits *and* its clock is far below that of others.
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from relight.contracts import Cause, Role, Source, Symptom
from relight.diagnosis.findings import Finding
from relight.diagnosis.xid import XidClass, XidPolicy

MAX_ROWS = 200_000
HARDWARE_SLOWDOWN = 0x8 | 0x40 | 0x80
"""Clock event reasons (NVML): hardware slowdown, hardware thermal slowdown, power brake."""
FAR_BELOW = 0.7
"""Share of the others' clock under which a throttled GPU holds them up."""
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass
class Metrics:
    """What a metrics file says."""

    findings: list[Finding] = field(default_factory=list)
    silent_for: float | None = None
    """Seconds since the job last printed anything, at the last sample."""
    silence_line: int = 0
    slow_nodes: list[Finding] = field(default_factory=list)
    """Findings that explain a slow job, and mean nothing for one that is not slow."""


@dataclass
class _Gpu:
    node: str | None
    gpu: str
    line: int
    text: str
    clock: float | None
    reasons: int


def read(lines: Sequence[str], file: str, *, node: str | None, xid: XidPolicy) -> Metrics:
    """Reads a CSV file with a header line."""
    metrics = Metrics()
    rows = list(csv.reader(io.StringIO("\n".join(lines[:MAX_ROWS])), skipinitialspace=True))
    if not rows:
        return metrics
    header = [h.strip().lower() for h in rows[0]]
    gpus: list[_Gpu] = []
    processes: list[tuple[str | None, str, str, int, str]] = []
    for n, row in enumerate(rows[1:], start=1):
        if len(row) != len(header):
            continue
        cell = dict(zip(header, (c.strip() for c in row), strict=True))
        text = ", ".join(row)
        where = cell.get("node") or cell.get("hostname") or node
        if where in {"all", ""}:
            where = None
        _gauges(cell, where, file, n, text, xid, metrics)
        gpu = cell.get("pci.bus_id") or cell.get("gpu") or cell.get("index") or ""
        reasons = next(
            (v for k, v in cell.items() if "clocks_event_reasons" in k or "throttle_reasons" in k), ""
        )
        clock = next(
            (v for k, v in cell.items() if ("clocks" in k and "sm" in k) or k == "dcgm_fi_dev_sm_clock"), ""
        )
        if reasons:
            gpus.append(_Gpu(where, gpu, n, text, _number(clock), _bits(reasons)))
        if cell.get("process"):
            processes.append((where, gpu, cell["process"], n, text))
    _throttled(gpus, file, metrics)
    _foreign(processes, file, metrics)
    return metrics


def _gauges(
    cell: dict[str, str], node: str | None, file: str, line: int, text: str, xid: XidPolicy, metrics: Metrics
) -> None:
    for name, value in cell.items():
        number = _number(value)
        if number is None:
            continue
        if name == "seconds_since_last_log_line":
            metrics.silent_for, metrics.silence_line = number, line
        elif "xid" in name and number > 0:
            entry = xid.entry(int(number))
            if entry.does is XidClass.HOLD_OUT:
                metrics.findings.append(
                    _finding(f"metrics.xid-{int(number)}", entry.cause, entry.says, file, line, text, node)
                )
        elif number > 0 and re.search(r"row_remap_failure|remap.*fail", name):
            metrics.findings.append(
                _finding(
                    "metrics.remap-failed",
                    Cause.GPU_MEMORY_ECC,
                    "Broken memory could not be mapped out.",
                    file,
                    line,
                    text,
                    node,
                )
            )
        elif number > 0 and re.search(
            r"ecc.*(?:dbe|uncorrect).*(?:vol|total|count)|(?:dbe|uncorrected)_vol", name
        ):
            metrics.findings.append(
                _finding(
                    "metrics.ecc",
                    Cause.GPU_MEMORY_ECC,
                    "GPU memory had an uncorrectable error.",
                    file,
                    line,
                    text,
                    node,
                )
            )


def _throttled(gpus: Sequence[_Gpu], file: str, metrics: Metrics) -> None:
    slow = [g for g in gpus if g.reasons & HARDWARE_SLOWDOWN]
    others = [g.clock for g in gpus if not g.reasons & HARDWARE_SLOWDOWN and g.clock is not None]
    for g in slow:
        if g.clock is None or (others and g.clock >= FAR_BELOW * median(others)):
            continue
        metrics.slow_nodes.append(
            _finding(
                "metrics.throttled",
                Cause.GPU_HARDWARE,
                "The hardware slows its GPUs down (power or temperature).",
                file,
                g.line,
                g.text,
                g.node,
                gpu=g.gpu,
                symptom=Symptom.SLOW,
            )
        )


def merge_throttled(parts: Sequence[Metrics]) -> None:
    """Files of several nodes: a GPU that is throttled in all of them is not odd."""
    nodes = {f.node for m in parts for f in m.slow_nodes if f.signature == "metrics.throttled"}
    if len(nodes) > 1 and len(nodes) == len(parts):
        for m in parts:
            m.slow_nodes = [f for f in m.slow_nodes if f.signature != "metrics.throttled"]


def _foreign(processes: Sequence[tuple[str | None, str, str, int, str]], file: str, metrics: Metrics) -> None:
    """A process that is not this job's on a GPU that this job uses."""
    ours = {(node, gpu) for node, gpu, name, _, _ in processes if re.search(r"\bjob \d+", name)}
    for node, gpu, name, line, text in processes:
        if (node, gpu) in ours and not re.search(r"\bjob \d+", name):
            metrics.slow_nodes.append(
                _finding(
                    "metrics.foreign-process",
                    Cause.UNKNOWN,
                    "Somebody else's process runs on a GPU of this job.",
                    file,
                    line,
                    text,
                    node,
                    gpu=gpu,
                    symptom=Symptom.SLOW,
                )
            )


def _finding(
    signature: str,
    cause: Cause,
    says: str,
    file: str,
    line: int,
    text: str,
    node: str | None,
    *,
    gpu: str | None = None,
    symptom: Symptom = Symptom.CRASH,
) -> Finding:
    return Finding(
        signature=signature,
        role=Role.ROOT,
        symptom=symptom,
        cause=cause,
        file=file,
        line=line,
        offset=0,
        text=text,
        node=node,
        gpu=gpu,
        key=signature,
        source=Source.PROMETHEUS,
        hold_out=True,
        tag="slow" if symptom is Symptom.SLOW else "",
        says=says,
    )


def _number(text: str) -> float | None:
    m = _NUMBER.match(text)
    return float(m[0]) if m is not None and len(m[0]) < 40 else None


def _bits(text: str) -> int:
    try:
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        return 0
