"""torchtitan: `step-1000/`, each a PyTorch distributed checkpoint; the last may be exported as safetensors.

torchtitan/components/checkpoint.py; it resumes from the highest step whose `.metadata` is there.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from relight.checkpoints.access import Access
from relight.checkpoints.layouts import dcp, weights
from relight.checkpoints.layouts.base import Candidate, Structure, stepped
from relight.checkpoints.tree import Tree

_NAME = re.compile(r"step-(\d{1,18})")


class TorchTitan:
    """See the module."""

    name = "torchtitan"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        found = stepped(tree, _NAME)
        if not any("" in dcp.directories(e.inside()) for e, _ in found):
            return []
        return [Candidate(e.name, e.files, step=int(m[1])) for e, m in found]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """None: torchtitan takes the highest step."""
        return None

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        inside = candidate.inside()
        if not dcp.directories(inside) and any(p.endswith(".safetensors") for p in inside):
            return replace(weights.check(inside, access), inventory=True)
        return dcp.check_directories(inside, access)
