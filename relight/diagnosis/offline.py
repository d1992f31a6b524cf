"""A diagnosis of whole files: what `relight diagnose` does. The same engine as the live sensor's.

Files are read in pieces, one event at a time, into one `Trail` per attempt; then `assemble`, `diagnose` and
`decide` do what they do live.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from relight.contracts import (
    Action,
    Anomaly,
    Attempt,
    Cause,
    Diagnosis,
    Policy,
    Role,
    Source,
    Symptom,
    TrainingJob,
)
from relight.contracts.messages import PastFailure
from relight.diagnosis import metrics as csv_metrics
from relight.diagnosis.assemble import Silence, assemble
from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.findings import Event, Finding, Sighting
from relight.diagnosis.reader import LogReader
from relight.diagnosis.steplines import StepFormat
from relight.diagnosis.trail import Trail
from relight.diagnosis.verdict import diagnose
from relight.policy.decision import Decision, decide
from relight.policy.ledger import fold


class LogKind(StrEnum):
    """What a file is."""

    JOB_LOG = "job_log"
    KERNEL_LOG = "kernel_log"
    SLURM_LOG = "slurm_log"
    METRICS = "metrics"


_SOURCES = {
    LogKind.JOB_LOG: Source.JOB_LOG,
    LogKind.KERNEL_LOG: Source.KERNEL,
    LogKind.SLURM_LOG: Source.SCHEDULER,
    LogKind.METRICS: Source.PROMETHEUS,
}


SPECIFIC = -10
"""Signatures of at least this weight name a fault; lighter ones would fit many."""
_APPLICATION = frozenset(
    {Cause.USER_CODE, Cause.NUMERICAL, Cause.DATA_LOADER, Cause.CHECKPOINT_CORRUPT, Cause.GPU_OOM}
)


@dataclass(frozen=True)
class LogInput:
    """One file, as pieces of bytes."""

    kind: LogKind
    name: str
    pieces: Iterable[bytes]
    node: str | None = None


@dataclass(frozen=True)
class Line:
    """A quoted line."""

    file: str
    line: int
    """0-based."""
    text: str
    signature: str
    role: Role
    node: str | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Report:
    """The result."""

    symptom: Symptom
    cause: Cause
    retryable: bool
    blame_nodes: tuple[str, ...]
    action: Action
    confidence: float
    explanation: str
    because: str
    first_error: Line | None = None
    last_step: int | None = None
    throughput: float | None = None
    blind: bool = True
    """No step line was recognised."""
    evidence: tuple[Line, ...] = ()
    dropped: tuple[str, ...] = ()
    """Causes that were considered and dropped, in words."""
    attempts: int = 1
    problems: tuple[str, ...] = ()


@dataclass
class _Seen:
    """Everything that was read."""

    trails: dict[int, Trail] = field(default_factory=dict)
    nodes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    per_node: int | None = None
    lines: dict[str, Line] = field(default_factory=dict)
    metrics: list[csv_metrics.Metrics] = field(default_factory=list)
    silent_for: timedelta | None = None


def investigate(
    inputs: Sequence[LogInput],
    catalogue: Catalogue,
    *,
    now: datetime,
    nodes: Sequence[str] = (),
    tasks_per_node: int | None = None,
    still_running: bool = False,
    silent_for: timedelta | None = None,
    exit_code: int | None = None,
    policy: Policy | None = None,
    steps: tuple[StepFormat, ...] | None = None,
) -> Report:
    """Reads the files and says what happened.

    Args:
        inputs: the files, job logs first.
        catalogue: the signatures.
        now: the time of the diagnosis; also gives the year to times without one.
        nodes: the job's nodes, in rank order; logs may say them themselves.
        tasks_per_node: ranks on each.
        still_running: the job has not ended.
        silent_for: it runs, and printed nothing for so long.
        exit_code: of the job, if known.
        policy: how patient to be; the default one if None.
        steps: step formats in place of the built-in ones.
    """
    seen = _Seen(per_node=tasks_per_node, silent_for=silent_for)
    _read(inputs, catalogue, seen, now=now, nodes=nodes, steps=steps)
    policy = policy or Policy()
    history: list[PastFailure] = []
    firsts: dict[str, Line | None] = {}
    report = _nothing(Trail())
    attempts = sorted(seen.trails)
    for n, number in enumerate(attempts):
        last = n == len(attempts) - 1
        report, past = _judge(
            seen,
            number,
            history,
            last=last,
            now=now,
            running=still_running and last,
            exit_code=exit_code if last else None,
            policy=policy,
        )
        if past is not None:
            history.append(past)
            first = firsts.setdefault(past.root_key, report.first_error)
            if report.action is Action.STOP:  # the first time it happened
                report = replace(report, first_error=first)
    return report if len(attempts) <= 1 else _with_attempts(report, len(attempts))


def _read(
    inputs: Sequence[LogInput],
    catalogue: Catalogue,
    seen: _Seen,
    *,
    now: datetime,
    nodes: Sequence[str],
    steps: tuple[StepFormat, ...] | None,
) -> None:
    events: list[tuple[Event, datetime | None]] = []
    known: tuple[str, ...] = tuple(nodes)
    for i in inputs:
        if i.kind is LogKind.METRICS:
            text = b"".join(i.pieces).decode("utf-8", "replace")
            found = csv_metrics.read(text.splitlines(), i.name, node=i.node, xid=catalogue.xid)
            seen.metrics.append(found)
            events += [(f, None) for f in found.findings]
            if found.silent_for is not None and seen.silent_for is None:
                seen.silent_for = timedelta(seconds=found.silent_for)
            continue
        reader = LogReader(
            catalogue,
            i.name,
            nodes=known,
            tasks_per_node=seen.per_node,
            source=_SOURCES[i.kind],
            node=i.node if i.kind is LogKind.KERNEL_LOG else None,
            year=now.year,
            steps=steps,
        )
        last: datetime | None = None
        for piece in _with_end(i.pieces):
            for e in reader.flush() if piece is None else reader.feed(piece):
                stamp = getattr(e, "logged_at", None)
                last = stamp or last
                events.append((e, last))
        if i.kind is LogKind.JOB_LOG:
            known = reader.nodes or known
            seen.nodes.update(reader.attempt_nodes)
            seen.per_node = reader.tasks_per_node
            seen.nodes.setdefault(0, known)
    csv_metrics.merge_throttled(seen.metrics)
    _fill(events, seen, now)
    for number in seen.trails:
        seen.nodes.setdefault(number, known)


def _with_end(pieces: Iterable[bytes]) -> Iterable[bytes | None]:
    yield from pieces
    yield None


def _fill(events: Sequence[tuple[Event, datetime | None]], seen: _Seen, now: datetime) -> None:
    """Puts every event into the trail of its attempt. Lines without a time of their own take the nearest."""
    start = min((at for _, at in events if at is not None), default=now)
    latest = max((getattr(e, "attempt", 0) for e, _ in events), default=0)
    seen.trails = {latest: Trail()} if not events else {}
    for event, at in events:
        number = getattr(event, "attempt", None)
        outside = isinstance(event, Finding) and event.source is not Source.JOB_LOG
        if number is None or outside:
            number = latest
        trail = seen.trails.setdefault(number, Trail())
        trail.add(event, at or start, timed=at is not None)
        if isinstance(event, Finding):
            seen.lines.setdefault(
                f"{event.file}:{event.offset}:{event.signature}",
                _quoted(event),
            )


def _judge(
    seen: _Seen,
    number: int,
    history: Sequence[PastFailure],
    *,
    last: bool,
    now: datetime,
    running: bool,
    exit_code: int | None,
    policy: Policy,
) -> tuple[Report, PastFailure | None]:
    trail = seen.trails[number]
    nodes = seen.nodes.get(number, ())
    attempt = Attempt(
        cluster="offline", job_id="0", submit_time=datetime(1970, 1, 1, tzinfo=UTC), restart_count=number
    )
    job = TrainingJob(
        cluster="offline", run="offline", attempt=attempt, nodes=nodes, tasks_per_node=seen.per_node
    )
    sightings = trail.seen(now)
    slow = trail.slow(now)
    if slow and last:
        sightings += slow
        sightings += [Sighting(finding=f, at=now, timed=False) for m in seen.metrics for f in m.slow_nodes]
    silence = _silence(trail, seen.silent_for if last else None, now, policy)
    anomalies = assemble(
        sightings,
        attempt=attempt,
        now=now,
        nodes=nodes,
        tasks_per_node=seen.per_node,
        progress=trail.progress(),
        silence=silence,
        ended=_has_ended(running, exit_code),
    )
    if not anomalies:
        return _nothing(trail), None
    diagnosis = diagnose(anomalies, job)
    decision = decide(diagnosis, history, policy=policy, nodes=nodes, exit_code=exit_code)
    past = PastFailure(
        root_key=diagnosis.root_key,
        cause=diagnosis.cause,
        step=trail.furthest,
        allocation=fold(nodes),
        where=diagnosis.where,
    )
    return _report(diagnosis, decision, anomalies, trail, seen, sightings), past


def _has_ended(running: bool, exit_code: int | None) -> bool | None:
    if running:
        return False
    return True if exit_code is not None else None


def _silence(trail: Trail, silent_for: timedelta | None, now: datetime, policy: Policy) -> Silence | None:
    if silent_for is None:
        return None
    interval, allowed = trail.rhythm.interval, policy.hang_floor
    if trail.last is None:
        allowed = max(allowed, policy.start_floor)
    elif interval:
        allowed = max(allowed, interval * policy.hang_factor)
    if silent_for < allowed:
        return None
    last = f"The last step was {trail.last.step}." if trail.last else "No step line was ever recognised."
    return Silence(now - silent_for, last)


def _nothing(trail: Trail) -> Report:
    return Report(
        symptom=Symptom.NONE,
        cause=Cause.HEALTHY,
        retryable=False,
        blame_nodes=(),
        action=Action.NONE,
        confidence=0.6 if trail.last is None else 0.8,
        explanation="Nothing in these files says that something is wrong.",
        because="",
        last_step=trail.last.step if trail.last else None,
        throughput=trail.overall_throughput or trail.throughput,
        blind=trail.last is None,
    )


def _report(
    diagnosis: Diagnosis,
    decision: Decision,
    anomalies: Sequence[Anomaly],
    trail: Trail,
    seen: _Seen,
    sightings: Sequence[Sighting],
) -> Report:
    lines = dict(seen.lines)
    for s in sightings:
        f = s.finding
        lines.setdefault(_place(f), _quoted(f))
    evidence = tuple(
        line for e in diagnosis.evidence if (line := lines.get(f"{e.where}:{e.signature}")) is not None
    )
    first = _first_error(diagnosis, sightings)
    return Report(
        symptom=diagnosis.symptom,
        cause=diagnosis.cause,
        retryable=decision.action is not Action.STOP,
        blame_nodes=decision.nodes if decision.action is Action.RESTART_EXCLUDE_NODE else (),
        action=decision.action,
        confidence=diagnosis.confidence,
        explanation=diagnosis.explanation,
        because=decision.because,
        first_error=lines[_place(first.finding)] if first is not None else None,
        last_step=trail.last.step if trail.last else None,
        throughput=trail.overall_throughput or trail.throughput,
        blind=trail.last is None,
        evidence=evidence,
        dropped=tuple(
            sorted(
                {
                    f"{a.cause.value}: {a.says or a.symptom.value}"
                    for a in anomalies
                    if a.cause is not diagnosis.cause and a.role is not Role.CONTEXT
                }
            )
        ),
    )


def _first_error(diagnosis: Diagnosis, sightings: Sequence[Sighting]) -> Sighting | None:
    """The line that shows the fault first: of an application's own failure, in its own log if it is there."""
    shown = {f"{e.where}:{e.signature}" for e in diagnosis.evidence}
    if diagnosis.symptom is Symptom.SLOW:
        slow = [s for s in sightings if s.finding.signature == "watch.slow"]
        if slow:
            return slow[0]
    candidates = [
        s for s in sightings if _place(s.finding) in shown and (s.finding.cause is diagnosis.cause)
    ] or [s for s in sightings if _place(s.finding) in shown]
    for better in (_is_root, _is_specific):
        candidates = [s for s in candidates if better(s.finding)] or candidates
    if diagnosis.cause in _APPLICATION:
        candidates = [s for s in candidates if s.finding.source is Source.JOB_LOG] or candidates
    order = {f"{e.where}:{e.signature}": n for n, e in enumerate(diagnosis.evidence)}
    if any(s.finding.tag == "watchdog" for s in candidates):  # the odd one comes first there
        return min(candidates, key=lambda s: order[_place(s.finding)])
    return min(candidates, key=lambda s: (s.at, s.finding.file, s.finding.line), default=None)


def _is_root(f: Finding) -> bool:
    return f.role is Role.ROOT


def _is_specific(f: Finding) -> bool:
    return f.weight >= SPECIFIC


def _quoted(f: Finding) -> Line:
    return Line(f.file, f.line, f.text, f.signature, f.role, f.node, f.rank)


def _place(f: Finding) -> str:
    return f"{f.file}:{f.offset}:{f.signature}"


def _with_attempts(report: Report, attempts: int) -> Report:
    return replace(report, attempts=attempts)
