"""From what the logs of one attempt said to anomalies: the same way live and offline.

Findings of one role and cause become one anomaly. Before that, what only looked bad is dropped (training
went on, the file server came back), and the rules that need several lines are applied: network errors,
collective timeouts, what happened on exactly one node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from relight.contracts import (
    Anomaly,
    Attempt,
    Cause,
    Evidence,
    Progress,
    Role,
    Source,
    Suspect,
    Symptom,
)
from relight.diagnosis import peers, watchdogs
from relight.diagnosis.findings import Finding, Sighting, is_lasting, will_go_wrong
from relight.diagnosis.names import Names, expand

DETECTOR = "log"
MAX_EVIDENCE = 8
MAX_SUSPECTS = 16
OUTLIVED = 2
"""Steps after a finding that prove that it ended nothing."""

_TOLD_EARLY = frozenset({"end", "cancel", "step-cancel"})
_RESTARTED = 8
"""Steps after an end was announced that prove that the log goes on with a later attempt."""
_ENDS = frozenset({Cause.USER_CANCEL, Cause.TIME_LIMIT, Cause.PREEMPTION})
_BACK = {"storage-back": "storage-wait", "link-up": "link-down"}


@dataclass(frozen=True)
class Silence:
    """The attempt runs and has printed nothing for too long."""

    since: datetime
    last: str = ""
    """What was seen last, in words."""


def assemble(
    sightings: Sequence[Sighting],
    *,
    attempt: Attempt,
    now: datetime,
    nodes: Sequence[str] = (),
    tasks_per_node: int | None = None,
    progress: Progress | None = None,
    silence: Silence | None = None,
    ended: bool | None = True,
    complete: bool = True,
) -> list[Anomaly]:
    """The anomalies of one attempt. Pure: the same sightings in any order give the same anomalies.

    Args:
        sightings: what was found, context included. Findings of other attempts must not be among them.
        attempt: whose logs they are.
        now: the time of detection.
        nodes: the job's nodes, in rank order.
        tasks_per_node: ranks on each.
        progress: how far training had come.
        silence: it runs, and nothing has come for too long.
        ended: the attempt is over. While it runs (False), findings that end no process and are not the
            kernel's or the scheduler's are no reason to act. None: nobody knows; then a kernel's word on a
            job whose own log only shows steps is none either.
        complete: nothing is still to be read. Else what only follows from a fault is not taken for one.
    """
    names = Names(sightings, nodes, tasks_per_node)
    ordered = sorted((names.resolve(s) for s in sightings), key=_order)
    ordered = _relevant(ordered)
    if ended is None and silence is None and progress is not None:
        ordered = _unless_all_is_well(ordered, progress)
    finished = _finished(ordered)
    if finished is not None and not _has_fault(ordered, finished):
        return []
    groups = _groups(ordered, nodes, tasks_per_node)
    drafts = [_draft(g, nodes, ordered) for g in groups.values()]
    drafts += _hangs(ordered, silence, nodes, tasks_per_node, finished)
    if ended is False and silence is None and not any(d.alone for d in drafts):
        return []
    if complete and drafts and not any(d.role is Role.ROOT for d in drafts):
        best = max((d for d in drafts if d.role is Role.CASCADE), key=_telling, default=None)
        if best is None:
            return []
        best.role = Role.ROOT
    return [d.anomaly(attempt, now, progress) for d in drafts if d.role is not Role.CONTEXT or d.sightings]


def _telling(d: "_Draft") -> tuple[bool, bool]:
    """Which cascade to take for the root when nothing else is seen."""
    return (d.cause is not Cause.UNKNOWN, d.symptom is Symptom.HANG)


@dataclass
class _Draft:
    """An anomaly in the making."""

    role: Role
    cause: Cause
    symptom: Symptom
    sightings: list[Sighting]
    retryable: bool = True
    hold_out: bool = False
    suspects: tuple[Suspect, ...] = ()
    says: str = ""
    key: str = ""
    weight: int = 0
    occurred: datetime | None = None
    detector: str = DETECTOR

    @property
    def alone(self) -> bool:
        """It is a reason to tell of this attempt while it still runs."""
        return self.symptom is Symptom.SLOW or any(
            s.finding.ends_rank or s.finding.source is not Source.JOB_LOG for s in self.sightings
        )

    def anomaly(self, attempt: Attempt, now: datetime, progress: Progress | None) -> Anomaly:
        """The finished anomaly."""
        occurred = self.occurred or min((s.at for s in self.sightings), default=now)
        return Anomaly(
            anomaly_id=Anomaly.make_id(attempt, self.detector, self.role, self.cause, self.key),
            attempt=attempt,
            symptom=self.symptom,
            cause=self.cause,
            role=self.role,
            suspects=self.suspects[:MAX_SUSPECTS],
            evidence=_evidence(self.sightings, self.key),
            occurred_at=min(occurred, now),
            detected_at=now,
            count=max(1, len(self.sightings)),
            retryable=self.retryable,
            progress=progress,
            detector=self.detector,
            hold_out=self.hold_out,
            key=self.key,
            weight=self.weight,
            says=self.says,
        )


def _order(s: Sighting) -> tuple[datetime, str, int, int]:
    f = s.finding
    return (s.at, f.file, f.line, f.offset)


def _relevant(ordered: Sequence[Sighting]) -> list[Sighting]:
    """Without what training outlived, what came back, and what follows a failure that srun cleans up."""
    failed = [s for s in ordered if _says_why(s)]
    kept = []
    for s in ordered:
        f = s.finding
        needed = OUTLIVED if f.ends_rank else 1
        if f.tag in _TOLD_EARLY and s.outlived >= _RESTARTED:
            continue
        if s.outlived >= needed and not is_lasting(f):
            continue
        if f.tag in _BACK.values() and _came_back(s, ordered):
            continue
        if f.tag == "step-cancel" and any(_before(x, s) for x in failed):
            continue
        kept.append(s)
    return kept


def _unless_all_is_well(ordered: Sequence[Sighting], progress: Progress) -> list[Sighting]:
    """Steps beat text: a kernel error before the last step, or at a time that nobody knows, ended nothing."""
    if any(s.finding.source is not Source.KERNEL and s.finding.role is not Role.CONTEXT for s in ordered):
        return list(ordered)
    return [
        s
        for s in ordered
        if s.finding.source is not Source.KERNEL
        or will_go_wrong(s.finding)
        or (s.timed and s.at > progress.at)
    ]


def _says_why(s: Sighting) -> bool:
    """A failure after which srun ends the other tasks, as a cancelled step."""
    f = s.finding
    if f.tag in {"exit", "exception", "abort"}:
        return _is_bad_exit(f)
    return f.role is Role.ROOT and f.cause not in {*_ENDS, Cause.UNKNOWN, Cause.HEALTHY} and not s.outlived


def _is_bad_exit(f: Finding) -> bool:
    return not (f.tag == "exit" and (": Killed" in f.text or ": Terminated" in f.text))


def _before(a: Sighting, b: Sighting) -> bool:
    if a.finding.file == b.finding.file:
        return (a.finding.line, a.finding.offset) < (b.finding.line, b.finding.offset)
    return a.timed and b.timed and a.at < b.at


def _came_back(s: Sighting, ordered: Sequence[Sighting]) -> bool:
    return any(
        _BACK.get(x.finding.tag) == s.finding.tag and x.finding.node == s.finding.node and _before(s, x)
        for x in ordered
    )


def _finished(ordered: Sequence[Sighting]) -> Sighting | None:
    return next((s for s in ordered if s.finding.tag == "finished"), None)


def _has_fault(ordered: Sequence[Sighting], finished: Sighting) -> bool:
    """Something went wrong although training finished; an end by the scheduler after it does not count."""
    for s in ordered:
        f = s.finding
        if f.role is Role.CONTEXT or f.tag in {"signal", "teardown"}:
            continue
        if f.cause in _ENDS and _before(finished, s):
            continue
        return True
    return False


def _groups(
    ordered: Sequence[Sighting], nodes: Sequence[str], tasks_per_node: int | None
) -> dict[tuple[Role, Cause], list[Sighting]]:
    verdict = peers.judge(ordered)
    groups: dict[tuple[Role, Cause], list[Sighting]] = {}
    for s in ordered:
        f = s.finding
        if f.tag in {"watchdog", "finished", "names", "storage-back", "link-up"} or (
            f.role is Role.CONTEXT and f.cause is Cause.HEALTHY
        ):
            continue
        role = f.role
        if verdict.victim is not None and f.tag == "peer" and f.peer == verdict.victim:
            role = Role.CASCADE
        groups.setdefault((role, f.cause), []).append(s)
    return groups


def _draft(group: Sequence[Sighting], nodes: Sequence[str], ordered: Sequence[Sighting]) -> _Draft:
    best = max(group, key=lambda s: s.finding.weight)  # the first among equals: order is time
    f = best.finding
    same = [s for s in group if s.finding.hold_out] if f.hold_out else []
    verdict = peers.judge(ordered) if f.cause is Cause.NETWORK_FABRIC else None
    hold_out, retryable = f.hold_out, f.retryable
    suspects = _suspects(same or [best])
    if verdict is not None and not f.hold_out and verdict.suspect is not None and f.role is Role.ROOT:
        hold_out = True
        suspects = (Suspect(node=verdict.suspect, because="several nodes lost contact to it"),)
    if f.tag == "local-env":
        hold_out, retryable, suspects = _one_node(group, nodes, ordered, retryable)
    draft = _Draft(
        role=f.role,
        cause=f.cause,
        symptom=f.symptom,
        sightings=list(group),
        retryable=retryable,
        hold_out=hold_out,
        suspects=suspects,
        says=f.says,
        key=f.key,
        weight=f.weight,
    )
    if verdict is not None and verdict.victim is not None and f.tag == "peer":
        draft.role = Role.CASCADE
    return draft


def _one_node(
    group: Sequence[Sighting], nodes: Sequence[str], ordered: Sequence[Sighting], retryable: bool
) -> tuple[bool, bool, tuple[Suspect, ...]]:
    """A broken environment is the node's if only one of several nodes shows it, and everybody's if not."""
    where = {s.finding.node for s in group if s.finding.node}
    if not where:  # the lines name nobody: where did tasks end?
        where = {s.finding.node for s in ordered if s.finding.tag == "exit" and s.finding.node}
    if len(where) == 1 and len(nodes) > 1:
        node = next(iter(where))
        return True, True, (Suspect(node=node, because="only this node shows it"),)
    single_hardware = any(s.finding.hold_out for s in group) and len(where) == 1
    return single_hardware, retryable, _suspects(list(group))


def _suspects(sightings: Iterable[Sighting]) -> tuple[Suspect, ...]:
    seen: dict[tuple[str | None, int | None, str | None], Suspect] = {}
    for s in sightings:
        f = s.finding
        for node in expand(f.node) if f.node else (None,):
            if node is not None or f.rank is not None or f.gpu is not None:
                seen.setdefault(
                    (node, f.rank, f.gpu), Suspect(node=node, rank=f.rank, gpu=f.gpu, because=f.says)
                )
    return tuple(seen.values())


def _hangs(
    ordered: Sequence[Sighting],
    silence: Silence | None,
    nodes: Sequence[str],
    tasks_per_node: int | None,
    finished: Sighting | None,
) -> list[_Draft]:
    drafts = []
    dogs = [s for s in ordered if s.finding.tag == "watchdog"]
    if dogs:
        v = watchdogs.judge(
            [s.finding for s in dogs],
            nodes=nodes,
            tasks_per_node=tasks_per_node,
            finished=finished is not None and _before(finished, dogs[0]),
        )
        suspects = tuple(Suspect(rank=r, because="lags, differs or is silent") for r in v.ranks)
        if v.node is not None:
            suspects = (Suspect(node=v.node, because=v.says), *suspects)
        drafts.append(
            _Draft(
                role=Role.CASCADE,
                cause=v.cause,
                symptom=Symptom.HANG,
                sightings=_odd_first(dogs, v.ranks) if not v.silent else dogs,
                hold_out=v.node is not None,
                suspects=suspects,
                says=f"A collective operation timed out. {v.says}",
                key=f"watchdog|{dogs[0].finding.groups.get('op', '')}",
                weight=-30,
                occurred=dogs[0].at - v.ago,
            )
        )
    if silence is not None:
        drafts.append(
            _Draft(
                role=Role.ROOT,
                cause=Cause.UNKNOWN,
                symptom=Symptom.HANG,
                sightings=[],
                says=f"Nothing was printed since {silence.since:%F %H:%M:%S} UTC. {silence.last}".strip(),
                key="silence",
                detector="silence",
                occurred=silence.since,
            )
        )
    return drafts


def _odd_first(dogs: Sequence[Sighting], ranks: Sequence[int]) -> list[Sighting]:
    odd = set(ranks)
    return sorted(dogs, key=lambda s: s.finding.rank not in odd)


def _evidence(sightings: Sequence[Sighting], key: str) -> tuple[Evidence, ...]:
    """At most two lines of one signature on one node; those that carry the key come first."""
    per: dict[tuple[str, str | None], int] = {}
    chosen: list[Sighting] = []
    for s in sorted(sightings, key=lambda s: s.finding.key != key):
        place = (s.finding.signature, s.finding.node)
        per[place] = per.get(place, 0) + 1
        if per[place] <= 2 and len(chosen) < MAX_EVIDENCE:
            chosen.append(s)
    return tuple(
        Evidence(
            source=s.finding.source,
            observed_at=s.at,
            text=s.finding.text,
            node=s.finding.node,
            rank=s.finding.rank,
            gpu=s.finding.gpu,
            where=f"{s.finding.file}:{s.finding.offset}",
            line=s.finding.line_number,
            signature=s.finding.signature,
        )
        for s in chosen
    )
