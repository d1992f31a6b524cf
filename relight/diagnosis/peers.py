"""Network errors: whom they name, and when that is enough to suspect a node.

A far end is suspected only when two other nodes name it, and only it, and none of its own processes had
failed before. Errors in both directions, or towards several nodes, speak of the fabric: nobody is blamed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from relight.contracts import Role
from relight.diagnosis.findings import Sighting

REPORTERS = 2
_NETWORK_TAGS = frozenset({"peer", "peer-gone", "near", "rendezvous"})


@dataclass(frozen=True)
class PeerVerdict:
    """What the network errors of an incident amount to."""

    suspect: str | None = None
    """The one node that enough others name."""
    victim: str | None = None
    """The node that is named because its own processes had ended before: the network is not the cause."""
    fabric: bool = False
    """Several nodes name several: the fabric, or nobody can tell."""


def judge(sightings: Sequence[Sighting]) -> PeerVerdict:
    """Weighs the accusations. Sightings must have node names resolved, and be in order of time."""
    reporters: dict[str, set[str]] = {}
    first: dict[str, int] = {}
    for n, s in enumerate(sightings):
        f = s.finding
        if f.tag != "peer" or not f.peer or f.peer == f.node:
            continue
        reporters.setdefault(f.peer, set()).add(f.node or f"rank {f.rank}")
        first.setdefault(f.peer, n)
    if not reporters:
        return PeerVerdict()
    accused = [peer for peer, by in reporters.items() if len(by) >= REPORTERS]
    accusers = {by for names in reporters.values() for by in names}
    if len(reporters) > 1 and (len(accused) != 1 or accused[0] in accusers or _spread(reporters, accused[0])):
        return PeerVerdict(fabric=True)
    if not accused:
        return PeerVerdict()
    peer = accused[0]
    if _had_failed(sightings[: first[peer]], peer):
        return PeerVerdict(victim=peer)
    return PeerVerdict(suspect=peer)


def _spread(reporters: dict[str, set[str]], accused: str) -> bool:
    """Others are named by about as many as the accused."""
    return any(len(by) >= len(reporters[accused]) for peer, by in reporters.items() if peer != accused)


def _had_failed(earlier: Sequence[Sighting], node: str) -> bool:
    return any(
        s.finding.node == node
        and s.finding.tag not in _NETWORK_TAGS
        and s.finding.role is not Role.CONTEXT
        and s.finding.ends_rank
        for s in earlier
    )
