"""Directories by step with a marker file that is written last: `step_00000120/COMPLETE`."""

import re
from collections.abc import Sequence

from relight.checkpoints.access import Access
from relight.checkpoints.layouts.base import Candidate, Structure, missing, stepped, unfinished
from relight.checkpoints.tree import Tree

MARKERS = frozenset({"COMPLETE", "_SUCCESS"})
_NAME = re.compile(
    r"(?P<tmp>\.)?(?:step|iter|iteration|global_step|ckpt|checkpoint)[_-]?(?P<step>\d{1,18})(?P<end>\.tmp)?"
)


class Marker:
    """See the module."""

    name = "marker"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        found = stepped(tree, _NAME)
        if not any(MARKERS & entry.inside() for entry, _ in found):
            return []
        return [
            Candidate(
                name=entry.name,
                files=entry.files,
                step=int(match["step"]),
                unfinished="its name is that of a save under way" if match["tmp"] or match["end"] else "",
            )
            for entry, match in found
        ]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """See `Layout.pointer`."""
        return access.pointer_text("latest")

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        inside = candidate.inside().keys()
        if not inside & MARKERS:
            return Structure([unfinished("the marker COMPLETE, which is written last, is missing")])
        if not inside - MARKERS:
            return Structure([missing("nothing but the marker is there")], committed=True)
        return Structure(committed=True, checked=["completion marker"])
