"""Comparing a checkpoint with the others of the same run: a file that is not there, a file that is too short.

It is a guess, and only asked where a format itself cannot tell: a run writes the same files at every save,
with nearly the same sizes, until it is restarted on another number of ranks.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from statistics import median_high

from relight.checkpoints.layouts.base import Candidate, Problem, bad, missing, some
from relight.checkpoints.tree import File

PAYLOAD = (
    *(".pt", ".pth", ".ckpt", ".bin", ".pkl", ".safetensors", ".distcp", ".npz", ".npy", ".msgpack", ".h5"),
    *(".zarray", "zarr.json", "manifest.ocdbt"),
)
"""Endings of files that hold weights or states, or without which these cannot be read."""
SHORT = 0.7
"""A file shorter than this part of its peers is taken for cut off (a real one had 0.56)."""
NEIGHBOURS = 5
"""With so many others a checkpoint is compared, those with the nearest steps."""
SMALL = 64 << 10
"""Below this size, lengths say nothing."""

_DIGITS = re.compile(r"\d+")


class Peers:
    """The checkpoints of a run, by step."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        """Takes the candidates in the order of their steps."""
        self._order = {c.name: i for i, c in enumerate(candidates)}
        self._whole = [c for c in candidates if not c.unfinished]
        self._known: dict[str, Mapping[str, File]] = {}

    def compare(self, candidate: Candidate, verified: Set[str] = frozenset()) -> list[Problem]:
        """What is missing or short in a candidate, going by its neighbours.

        Args:
            candidate: the one to judge.
            verified: paths whose length the format itself has confirmed.
        """
        place = self._order[candidate.name]
        near = sorted(
            (c for c in self._whole if c.name != candidate.name),
            key=lambda c: abs(self._order[c.name] - place),
        )
        peers = [self._keys(c) for c in near[:NEIGHBOURS]]
        if not peers:
            return []
        own = self._keys(candidate)
        return _missing(own, peers) + _short(own, peers, verified) + _small(own, peers, verified)

    def _keys(self, candidate: Candidate) -> Mapping[str, File]:
        if candidate.name not in self._known:
            self._known[candidate.name] = _keys(candidate)
        return self._known[candidate.name]


def _keys(candidate: Candidate) -> dict[str, File]:
    """Files by their path inside, with the candidate's own step (`global_step500/`) written as `step*`.

    Only after the word: the same number may be that of a rank.
    """
    step = re.compile(rf"step([=_-]?)0*{candidate.step}(?!\d)")
    return {step.sub(r"step\1*", path): file for path, file in candidate.inside().items()}


def _family(path: str) -> str:
    return _DIGITS.sub("#", path)


def _missing(own: Mapping[str, File], peers: Sequence[Mapping[str, File]]) -> list[Problem]:
    counts = Counter(path for peer in peers for path in peer if path.endswith(PAYLOAD))
    usual = {path for path, count in counts.items() if count * 2 > len(peers)}
    absent = usual - own.keys()
    if not absent:
        return []
    whole, lost = Counter(map(_family, usual)), Counter(map(_family, absent))

    def is_loss(family: str) -> bool:
        # Half of a family or more gone, and some still there, is another number of ranks.
        left = whole[family] - lost[family]
        return left < 2 or lost[family] < left

    lost_files = {path for path in absent if is_loss(_family(path))}
    return [missing(f"{some(lost_files)} missing, which other checkpoints have")] if lost_files else []


def _short(own: Mapping[str, File], peers: Sequence[Mapping[str, File]], verified: Set[str]) -> list[Problem]:
    families = Counter(map(_family, own))
    peer_families = [Counter(map(_family, peer)) for peer in peers]
    problems = []
    for path, file in own.items():
        if file.path in verified:
            continue
        family = _family(path)
        sizes = [
            peer[path].size
            for peer, counts in zip(peers, peer_families, strict=True)
            if path in peer and counts[family] == families[family]  # else: another number of ranks
        ]
        if not sizes:
            continue
        usual = median_high(sizes)
        if usual >= SMALL and file.size < usual * SHORT:
            problems.append(
                bad(f"{path or file.name} has {file.size} bytes, in other checkpoints about {usual}")
            )
    return problems


def _small(own: Mapping[str, File], peers: Sequence[Mapping[str, File]], verified: Set[str]) -> list[Problem]:
    """Files whose names are random (OCDBT) can only be compared by what they have together."""
    unshared = [f for p, f in own.items() if not any(p in peer for peer in peers)]
    size = sum(f.size for f in unshared)
    usual = median_high(sum(f.size for p, f in peer.items() if p not in own) for peer in peers)
    if usual < SMALL or not 0 < size < usual * SHORT or any(f.path in verified for f in unshared):
        return []
    return [bad(f"data files have {size} bytes in all, in other checkpoints about {usual}")]
