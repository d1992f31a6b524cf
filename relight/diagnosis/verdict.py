"""From the anomalies of one incident to one diagnosis. Pure: no I/O, no clock, no pattern engine.

Kind first, then time. A local cause (broken memory, an exception, a full disk, a dead node) outranks what its
peers say of it (connection closed, watchdog, remote error), whatever was printed first. Where two
local causes compete, the one that explains the other wins: hardware before the exception it raised.
"""

from collections.abc import Sequence

from relight.contracts import (
    GPU_HARDWARE_CAUSES,
    Anomaly,
    Cause,
    Diagnosis,
    Evidence,
    Role,
    Sign,
    Source,
    Suspect,
    Symptom,
    TrainingJob,
)

MAX_EVIDENCE = 20
MAX_SUSPECTS = 16
MAX_RULES = 16

_BY_DESIGN = frozenset({Cause.USER_CANCEL, Cause.TIME_LIMIT, Cause.PREEMPTION})
"""Somebody wanted this end: what follows it is teardown, what comes before it is not."""

_HARDWARE = GPU_HARDWARE_CAUSES | {Cause.NODE_FAILURE}
"""One broken machine can show itself as each of these."""

_RANK = {
    Cause.NODE_FAILURE: 90,
    Cause.GPU_FALLEN_OFF_BUS: 88,
    Cause.GPU_MEMORY_ECC: 86,
    Cause.NVLINK: 84,
    Cause.USER_CANCEL: 82,
    Cause.PREEMPTION: 82,
    Cause.TIME_LIMIT: 82,
    Cause.GPU_HARDWARE: 80,
    Cause.HOST_OOM: 74,
    Cause.GPU_OOM: 70,
    Cause.STORAGE: 68,
    Cause.CHECKPOINT_CORRUPT: 66,
    Cause.NUMERICAL: 64,
    Cause.SOFTWARE_ENV: 60,
    Cause.SCHEDULER: 58,
    Cause.DATA_LOADER: 55,
    Cause.USER_CODE: 50,
    Cause.NETWORK_FABRIC: 40,
    Cause.UNKNOWN: 5,
    Cause.HEALTHY: 0,
}
"""Which cause explains which: the higher one is the root when both are seen."""

_ROLE_RANK = {Role.ROOT: 2, Role.CASCADE: 1, Role.CONTEXT: 0}
_TRUSTED_BONUS = 4
_BARE_MALUS = 3
"""Silence alone explains less than any line."""
NO_FIRST_STEP = "no-first-step"
"""The detector of attempts that hang before their first step."""
SILENCE_DETECTORS = frozenset({"no-progress", NO_FIRST_STEP, "silence"})
_WORDS = {
    Symptom.CRASH: "The job crashed",
    Symptom.HANG: "The job hung",
    Symptom.SLOW: "The job is slow",
    Symptom.DEGRADED: "Training goes wrong",
    Symptom.NONE: "Nothing is wrong",
}


def diagnose(anomalies: Sequence[Anomaly], job: TrainingJob) -> Diagnosis:
    """The one diagnosis of these anomalies; their order does not matter.

    Raises:
        ValueError: there are no anomalies.
    """
    if not anomalies:
        raise ValueError("a diagnosis needs at least one anomaly")
    ordered = sorted(anomalies, key=lambda a: (a.occurred_at, a.detected_at, a.anomaly_id))
    root = _root(ordered)
    supporting = [a for a in ordered if a is root or _supports(a, root)]
    suspects = _suspects(root, supporting, job)
    evidence = _evidence(root, supporting, ordered)
    detected = min(a.detected_at for a in ordered)
    return Diagnosis(
        symptom=_symptom(root, ordered),
        cause=root.cause,
        retryable=root.retryable,
        suspects=suspects,
        confidence=_confidence(root, supporting, ordered),
        evidence=evidence,
        explanation=_explanation(root, suspects, ordered),
        anomaly_ids=tuple(dict.fromkeys(a.anomaly_id for a in ordered)),
        root_key=root.key
        or (f"{root.detector}|{root.cause.value}" if root.cause is not Cause.UNKNOWN else ""),
        occurred_at=min(root.occurred_at, detected),
        detected_at=detected,
        where=_where(suspects, supporting),
        signs=_signs(root, ordered),
        rules=_rules(root, supporting),
        progress=max(
            (a.progress for a in ordered if a.progress is not None), key=lambda p: p.at, default=None
        ),
    )


def hangs_at_its_start(diagnosis: Diagnosis) -> bool:
    """The attempt hangs before its first step: the progress that is known is an earlier attempt's."""
    return diagnosis.symptom is Symptom.HANG and any(NO_FIRST_STEP in names for names in diagnosis.rules)


def strength(anomaly: Anomaly) -> tuple[int, int]:
    """How much an anomaly explains: by role, then by cause, trust and the signature's own weight."""
    rank = _RANK[anomaly.cause]
    if anomaly.cause is not Cause.UNKNOWN:
        rank += anomaly.weight
    if _trusted(anomaly):
        rank += _TRUSTED_BONUS
    if not anomaly.evidence:
        rank -= _BARE_MALUS
    return _ROLE_RANK[anomaly.role], rank


def _root(ordered: Sequence[Anomaly]) -> Anomaly:
    if any(_trusted(a) and a.symptom is Symptom.CRASH and a.cause not in _BY_DESIGN for a in ordered):
        # The scheduler says that the job failed. "CANCELLED" in its log is then srun ending the other tasks.
        ordered = [a for a in ordered if a.cause not in _BY_DESIGN or _trusted(a)]
    best = max(ordered, key=lambda a: (strength(a), -ordered.index(a)))
    if best.cause in _BY_DESIGN:
        # A fault that was there before the end was asked for is why it was asked for, or what it hid.
        earlier = [
            a
            for a in ordered
            if a.occurred_at < best.occurred_at
            and a.cause not in _BY_DESIGN
            and a.role is Role.ROOT
            and a.cause is not Cause.UNKNOWN
        ]
        if earlier:
            return max(earlier, key=lambda a: (strength(a), -ordered.index(a)))
    return best


def _trusted(anomaly: Anomaly) -> bool:
    return any(e.trust for e in anomaly.evidence)


def _supports(a: Anomaly, root: Anomaly) -> bool:
    return a.cause is root.cause and a.role is root.role


def _suspects(root: Anomaly, supporting: Sequence[Anomaly], job: TrainingJob) -> tuple[Suspect, ...]:
    """Whom the root accuses. Only suspects to hold out carry a node: a plan excludes what it finds there."""
    seen: dict[tuple[str | None, int | None, str | None], Suspect] = {}
    hold_out = root.hold_out and not _everywhere(root, job)
    for a in (root, *(a for a in supporting if a is not root)):
        for s in a.suspects:
            if not hold_out or not a.hold_out:
                s = Suspect(rank=s.rank, gpu=s.gpu, because=_with_node(s))
            seen.setdefault((s.node, s.rank, s.gpu), s)
    return tuple(seen.values())[:MAX_SUSPECTS]


def _where(suspects: Sequence[Suspect], supporting: Sequence[Anomaly]) -> tuple[str, ...]:
    """The nodes under suspicion, and the one that the first telling line is about."""
    first = next((e.node for a in supporting for e in a.evidence if e.node), None)
    return tuple(dict.fromkeys(n for n in (*(s.node for s in suspects), first) if n))


def _signs(root: Anomaly, ordered: Sequence[Anomaly]) -> tuple[Sign, ...]:
    """Which sources say that a node is at fault: those of the root, and of others that tell of the same."""
    found = {}
    for a in ordered:
        same = a.cause is root.cause or {a.cause, root.cause} <= _HARDWARE
        if a.role is not Role.ROOT or not same:
            continue
        for e in a.evidence:
            if e.node and e.trust:
                sign = Sign(node=e.node, source=Source.KERNEL if "xid-" in e.signature else e.source)
                found[sign.node, sign.source] = sign
    return tuple(found[key] for key in sorted(found))


def _rules(root: Anomaly, supporting: Sequence[Anomaly]) -> tuple[tuple[str, ...], ...]:
    """For each anomaly that says the same as the root: the detector and signatures."""
    carriers = [root, *(a for a in supporting if a is not root)]
    named = (tuple(dict.fromkeys([a.detector, *(e.signature for e in a.evidence)])) for a in carriers)
    return tuple(dict.fromkeys(tuple(n for n in names if n) for names in named))[:MAX_RULES]


def _everywhere(root: Anomaly, job: TrainingJob) -> bool:
    """Most nodes show it: then it is not about nodes."""
    nodes = {s.node for s in root.suspects if s.node}
    return len(nodes) > 1 and len(job.nodes) > 0 and 2 * len(nodes) > len(job.nodes)


def _with_node(s: Suspect) -> str:
    if not s.node:
        return s.because
    return f"{s.because} (on {s.node})" if s.because else f"on {s.node}"


def _symptom(root: Anomaly, ordered: Sequence[Anomaly]) -> Symptom:
    if root.symptom is not Symptom.CRASH or root.cause in _BY_DESIGN:
        return root.symptom
    if any(a.detector in SILENCE_DETECTORS for a in ordered):
        return Symptom.HANG
    # A watchdog that aborts the job is how a hang ends; but a process that said why it ended began it.
    said_why = any(e.source is Source.JOB_LOG for e in root.evidence)
    return Symptom.HANG if not said_why and any(a.symptom is Symptom.HANG for a in ordered) else Symptom.CRASH


def _evidence(
    root: Anomaly, supporting: Sequence[Anomaly], ordered: Sequence[Anomaly]
) -> tuple[Evidence, ...]:
    """The root's own evidence first, then what supports it, then some of the rest."""
    rest = [a for a in ordered if a is not root and a not in supporting]
    parts = [root.evidence, *(a.evidence for a in supporting if a is not root)]
    main = list(dict.fromkeys(e for part in parts for e in part))[: MAX_EVIDENCE - min(6, len(rest))]
    for a in rest:
        for e in a.evidence[:2]:
            if len(main) >= MAX_EVIDENCE:
                return tuple(main)
            if e not in main:
                main.append(e)
    return tuple(main)


def _confidence(root: Anomaly, supporting: Sequence[Anomaly], ordered: Sequence[Anomaly]) -> float:
    if root.cause is Cause.UNKNOWN:
        return 0.3
    value = 0.7 if root.role is Role.ROOT else 0.45
    sources = {e.source for a in supporting for e in a.evidence}
    value += 0.1 * (len(sources) - 1)
    if sources - {Source.JOB_LOG}:
        value += 0.1
    rivals = [
        a
        for a in ordered
        if a.role is Role.ROOT and a.cause not in {root.cause, Cause.UNKNOWN} and a is not root
    ]
    value -= 0.1 * min(2, len(rivals))
    return round(min(0.99, max(0.2, value)), 2)


def _explanation(root: Anomaly, suspects: Sequence[Suspect], ordered: Sequence[Anomaly]) -> str:
    parts = [f"{_WORDS[root.symptom]}: {root.cause.value.replace('_', ' ')}."]
    if root.says:
        parts.append(root.says)
    nodes = list(dict.fromkeys(s.node for s in suspects if s.node))
    if nodes:
        parts.append(f"Suspected: {', '.join(nodes[:8])}.")
    cascades = sum(a.count for a in ordered if a.role is Role.CASCADE and a is not root)
    if cascades:
        parts.append(f"{cascades} messages of peers and watchdogs follow from it.")
    others = {a.cause for a in ordered if a.role is Role.ROOT and a.cause not in {root.cause, Cause.UNKNOWN}}
    if others:
        parts.append(f"Considered and dropped: {', '.join(sorted(c.value for c in others))}.")
    return " ".join(parts)
