"""DeepSpeed and GPT-NeoX: `global_step1000/` (or another tag), and `latest`, written after a save."""

import re
from collections.abc import Sequence

from relight.checkpoints.access import Access
from relight.checkpoints.layouts import zero
from relight.checkpoints.layouts.base import Candidate, Structure, stepped, unfinished
from relight.checkpoints.layouts.dcp import last_number
from relight.checkpoints.tree import Tree

_NAME = re.compile(r"global_step(\d{1,18})")


class DeepSpeed:
    """See the module."""

    name = "deepspeed"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        found = {e.name: Candidate(e.name, e.files, step=int(m[1])) for e, m in stepped(tree, _NAME)}
        for entry in tree.entries.values():
            direct = frozenset(p for p in entry.inside() if "/" not in p)
            if entry.is_dir and entry.name not in found and zero.is_zero(direct):
                found[entry.name] = Candidate(entry.name, entry.files, step=last_number(entry.name))
        return list(found.values())

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """See `Layout.pointer`."""
        return access.pointer_text("latest")

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        latest = access.pointer_text("latest")
        steps = [c.step for c in candidates if c.name == latest and c.step is not None]
        committed = candidate.name == latest or any(
            candidate.step is not None and candidate.step <= step for step in steps
        )
        if not candidate.files:
            return Structure([unfinished("the directory is empty")], committed)
        structure = zero.check(candidate.inside())
        return Structure(structure.problems, committed, checked=structure.checked)


class GptNeoX(DeepSpeed):
    """DeepSpeed's layout with the run's configuration in each checkpoint (`configs/`)."""

    name = "gpt-neox"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        found = super().find(tree, access)
        return found if any(p.startswith("configs/") for c in found for p in c.inside()) else []
