"""OLMo and OLMo-core: `step1000/`, `step1000-unsharded/`, a link `latest`; a save under way ends in `-tmp`.

olmo/checkpoint.py; olmo_core/train/checkpoint.py. Sharded: distributed checkpoints in `model/` and `optim/`,
or `model_and_optim/`, and `train/rank<N>.pt`. Unsharded: `model.pt`, `optim.pt`, `train.pt` or safetensors.
"""

import re
from collections.abc import Sequence

from relight.checkpoints.access import Access
from relight.checkpoints.layouts import dcp
from relight.checkpoints.layouts.base import (
    Candidate,
    Structure,
    join,
    missing,
    some,
    stepped,
)
from relight.checkpoints.layouts.ranks import absent
from relight.checkpoints.tree import Tree

_NAME = re.compile(r"step(\d{1,18})(-unsharded)?(-tmp)?")
_RANK = re.compile(r"(?:train/)?rank(\d+)\.pt")
_MODEL = re.compile(r"(?:model|model_and_optim)(?:\.pt|\.safetensors|/.+)|rank\d+\.pt")


class Olmo:
    """See the module."""

    name = "olmo"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        return [
            Candidate(
                e.name,
                e.files,
                step=int(m[1]),
                unfinished="its name ends in -tmp: the save did not end" if m[3] else "",
            )
            for e, m in stepped(tree, _NAME)
        ]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """See `Layout.pointer`."""
        return access.pointer_text("latest")

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        inside = candidate.inside()
        problems = [] if any(map(_MODEL.fullmatch, inside)) else [missing("there is no model")]
        if lost := absent(inside, _RANK):
            problems.append(missing(f"{some(lost)} missing"))
        own = Structure(problems, committed=True, checked=["model and ranks"])
        joined = join(own, dcp.check_directories(inside, access)) if dcp.directories(inside) else own
        return Structure(joined.problems, joined.committed, parts=joined.parts, checked=joined.checked)
