"""Megatron-LM: `iter_0001500/` and the tracker `latest_checkpointed_iteration.txt`.

Formats (megatron/training/checkpointing.py): `torch`, with a directory `mp_rank_TT[_PPP[_EEE]]` for each
model-parallel rank; `torch_dist`, a PyTorch distributed checkpoint with `common.pt` and `metadata.json`;
`zarr`, its forerunner. The tracker is written after the save ended.
"""

import itertools
import re
from collections.abc import Mapping, Sequence

from relight.checkpoints.access import Access
from relight.checkpoints.layouts.base import (
    Candidate,
    Problem,
    Structure,
    missing,
    some,
    stepped,
    unfinished,
)
from relight.checkpoints.tree import File, Tree

TRACKER = "latest_checkpointed_iteration.txt"
_NAME = re.compile(r"iter_(\d{1,18})")
_RANK = re.compile(r"mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?/(.+)")


class Megatron:
    """See the module."""

    name = "megatron"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        return [Candidate(e.name, e.files, step=int(m[1])) for e, m in stepped(tree, _NAME)]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """See `Layout.pointer`."""
        text = access.pointer_text(TRACKER)
        if text is None or not re.fullmatch(r"\d{1,18}", text):
            return text
        named = (c.name for c in candidates if c.step == int(text))
        return next(named, f"iter_{int(text):07d}")

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        inside = candidate.inside()
        tracked = access.pointer_text(TRACKER)
        committed = (
            tracked is not None
            and bool(re.fullmatch(r"\d{1,18}", tracked))
            and candidate.step is not None
            and candidate.step <= int(tracked)
        )
        ranks = _ranks(inside)
        if ranks:
            others = [_ranks(c.inside()) for c in candidates if c is not candidate]
            return Structure(
                _rank_problems(ranks, others), committed, checked=["set of model-parallel ranks"]
            )
        if not inside:
            return Structure([unfinished("the directory is empty")], committed)
        lacking = {"metadata.json", "common.pt"} - inside.keys()
        if lacking:
            return Structure([unfinished(f"{some(lacking)} missing, written when a save ends")], committed)
        return Structure(committed=True, checked=["markers"])


Ranks = Mapping[tuple[int, ...], frozenset[str]]
"""Model-parallel rank to the names of its files."""


def _ranks(inside: Mapping[str, File]) -> Ranks:
    ranks: dict[tuple[int, ...], set[str]] = {}
    for match in filter(None, map(_RANK.fullmatch, inside)):
        ranks.setdefault(tuple(int(g) for g in match.groups()[:3] if g), set()).add(match[4])
    return {rank: frozenset(names) for rank, names in ranks.items()}


def _rank_problems(ranks: Ranks, others: Sequence[Ranks]) -> list[Problem]:
    """Ranks form a full grid, no other checkpoint has more of them, and each has the same files."""
    width = max(map(len, ranks))
    sizes = [max((r[i] if i < len(r) else 0) for r in ranks) + 1 for i in range(width)]
    expected = set(ranks)
    if len(ranks) * 4 >= _product(sizes):  # else the numbers are not a grid at all
        expected |= set(itertools.product(*map(range, sizes)))
    for other in others:
        if other.keys() > ranks.keys():
            expected |= other.keys()
    absent = {"mp_rank_" + _label(r) for r in expected - ranks.keys()}
    problems = [missing(f"no files of {some(absent)}")] if absent else []
    names = frozenset().union(*ranks.values())
    uneven = {f"mp_rank_{_label(r)}/{n}" for r, have in ranks.items() for n in names - have}
    if uneven:
        problems.append(missing(f"{some(uneven)} missing, which other ranks have"))
    return problems


def _product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def _label(rank: tuple[int, ...]) -> str:
    return "_".join(f"{n:02d}" if i == 0 else f"{n:03d}" for i, n in enumerate(rank))
