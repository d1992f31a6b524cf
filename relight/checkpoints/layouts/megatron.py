"""Megatron-LM: `iter_0001500/` and the tracker `latest_checkpointed_iteration.txt`.

Formats (megatron/training/checkpointing.py): `torch`, with a directory `mp_rank_TT[_PPP[_EEE]]` for each
model-parallel rank; `torch_dist`, a PyTorch distributed checkpoint with `common.pt` and `metadata.json`;
`zarr`, its forerunner. The tracker is written after the save ended.
"""

import re
from collections.abc import Mapping, Sequence

from relight.checkpoints.access import Access
from relight.checkpoints.layouts import dcp
from relight.checkpoints.layouts.base import (
    Candidate,
    Problem,
    Structure,
    missing,
    some,
    stepped,
    unfinished,
)
from relight.checkpoints.layouts.ranks import absent
from relight.checkpoints.tree import File, Tree

TRACKER = "latest_checkpointed_iteration.txt"
_NAME = re.compile(r"iter_(\d{1,18})")
_RANK = re.compile(r"mp_rank_(\d+)(?:_(\d+))?(?:_(\d+))?")
_ITERATION = re.compile(r"\d{1,18}")
_LAST = frozenset({"metadata.json", "common.pt"})


class Megatron:
    """See the module."""

    name = "megatron"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        return [Candidate(e.name, e.files, step=int(m[1])) for e, m in stepped(tree, _NAME)]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """See `Layout.pointer`."""
        text = access.pointer_text(TRACKER)
        if text is None or not _ITERATION.fullmatch(text):
            return text
        named = (c.name for c in candidates if c.step == int(text))
        return next(named, f"iter_{int(text):07d}")

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        inside = candidate.inside()
        committed = _is_tracked(candidate, access)
        if not inside:
            return Structure([unfinished("the directory is empty")], committed)
        if ranks := _ranks(inside):
            others = [_ranks(c.inside()) for c in candidates if c is not candidate]
            problems = _rank_problems(ranks, others)
            return Structure(problems, committed, checked=["set of model-parallel ranks"])
        is_dcp = bool(dcp.directories(inside))
        structure = dcp.check_directories(inside, access) if is_dcp else Structure(committed=committed)
        # torch_dist and zarr have both files; PyTorch's own formats (torch_dcp, fsdp_dtensor) have neither.
        used = _LAST if not is_dcp or any(_LAST & c.inside().keys() for c in candidates) else frozenset()
        lacking = used - inside.keys()
        return Structure(
            [
                *([unfinished(f"{some(lacking)} missing, written when a save ends")] if lacking else []),
                *structure.problems,
            ],
            committed,
            needed=None
            if structure.needed is None
            else [*structure.needed, *(inside[p] for p in used - lacking)],
            parts=structure.parts,
            inventory=structure.inventory,
            checked=structure.checked,
        )


def _is_tracked(candidate: Candidate, access: Access) -> bool:
    """The tracker names this iteration or a later one: the save of this one ended."""
    text = access.pointer_text(TRACKER)
    if text is None or not _ITERATION.fullmatch(text) or candidate.step is None:
        return False
    return candidate.step <= int(text)


def _ranks(inside: Mapping[str, File]) -> dict[str, set[str]]:
    """Directory of a model-parallel rank to the names of its files."""
    ranks: dict[str, set[str]] = {}
    for path in inside:
        rank, _, rest = path.partition("/")
        if rest and _RANK.fullmatch(rank):
            ranks.setdefault(rank, set()).add(rest)
    return ranks


def _rank_problems(ranks: Mapping[str, set[str]], others: Sequence[Mapping[str, set[str]]]) -> list[Problem]:
    """Ranks form a full grid, no other checkpoint has more of them, and each has the same files."""
    lost = absent(ranks, _RANK)
    for other in others:
        if other.keys() > ranks.keys():
            lost |= other.keys() - ranks.keys()
    problems = [missing(f"no files of {some(lost)}")] if lost else []
    names = set().union(*ranks.values())
    uneven = {f"{rank}/{name}" for rank, have in ranks.items() for name in names - have}
    if uneven:
        problems.append(missing(f"{some(uneven)} missing, which other ranks have"))
    return problems
