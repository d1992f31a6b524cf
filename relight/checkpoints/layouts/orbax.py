"""Orbax, MaxText: `300/`, `checkpoint_300/`; a save under way is `300.orbax-checkpoint-tmp`, then renamed.

On object stores, which cannot rename, `commit_success.txt` is written last. `_CHECKPOINT_METADATA` is at the
top of each checkpoint; arrays are in an OCDBT database or in zarr directories.
"""

import json
import re
from collections.abc import Mapping, Sequence

from relight.checkpoints.access import Access
from relight.checkpoints.budget import Level, OverBudgetError
from relight.checkpoints.formats.ocdbt import MANIFEST
from relight.checkpoints.layouts import zarr
from relight.checkpoints.layouts.base import (
    Candidate,
    Structure,
    join,
    missing,
    some,
    stepped,
    unfinished,
)
from relight.checkpoints.stores import UnreadableError
from relight.checkpoints.tree import File, Tree

METADATA = "_CHECKPOINT_METADATA"
_COMMIT = "commit_success.txt"
_TMP = ".orbax-checkpoint-tmp"
_NAME = re.compile(r"(?:[A-Za-z][\w-]*?[_-])?(\d{1,18})(\.orbax-checkpoint-tmp(?:-\d+)?)?")
_TREE = "_METADATA"
_MARKERS = frozenset({METADATA, _COMMIT, _TREE})
"""What each checkpoint of a run has where one has it; which of them depends on Orbax's version."""
_DATA = re.compile(r"(.*/)?d/[^/]+")
_MAX_TREE = 16 << 20


class Orbax:
    """See the module."""

    name = "orbax"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        found = stepped(tree, _NAME)
        if not any(m[2] or METADATA in e.inside() or _has_database(e.inside()) for e, m in found):
            return []
        return [
            Candidate(
                e.name,
                e.files,
                step=int(m[1]),
                unfinished="its name is that of a save under way" if m[2] else "",
            )
            for e, m in found
        ]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """None: Orbax takes the highest step."""
        return None

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        inside = candidate.inside()
        others = [c.inside() for c in candidates if not c.unfinished and c is not candidate]
        markers = {p for o in others for p in o if p.rpartition("/")[2] in _MARKERS}
        problems = [unfinished(f"{marker} is missing") for marker in sorted(markers - inside.keys())]
        if under_way := {p for p in inside if _TMP in p}:
            problems.append(
                unfinished(f"{some({p.partition(_TMP)[0] for p in under_way})} was not committed")
            )
        if all(p.rpartition("/")[2].startswith("_") or p.endswith(_COMMIT) for p in inside):
            problems.append(missing("there are no arrays"))
        for place in {m[1] or "" for m in map(_DATA.fullmatch, inside) if m}:
            if place + _TREE in inside and place + MANIFEST not in inside:
                problems.append(missing(f"{place}{MANIFEST} is missing"))
        own = Structure(problems, committed=not problems, checked=["commit markers"])
        databases = zarr.check_databases(inside, access)
        chunks = zarr.check_chunks(inside, access) if _stores_all(inside, access) else []
        return join(own, databases, Structure(chunks, committed=True))


def _has_database(inside: frozenset[str]) -> bool:
    return any(p.endswith(MANIFEST) for p in inside)


def _stores_all(inside: Mapping[str, File], access: Access) -> bool:
    """The writer said that it stores every chunk, also those that are all zero."""
    for path, file in inside.items():
        if path.rpartition("/")[2] == _TREE and file.size <= _MAX_TREE:
            try:
                tree = json.loads(access.read(Level.STRUCTURE, file.path, 0, file.size))
            except (UnreadableError, OverBudgetError, ValueError, RecursionError):
                return False  # the check of headers reports a damaged file
            if not isinstance(tree, dict) or tree.get("store_array_data_equal_to_fill_value") is not True:
                return False
    return True
