"""Hugging Face Accelerate: `checkpoint_3/`, `checkpoint-500/`, `step_500/` or `epoch_2/`.

`accelerator.save_state` writes weights, optimizer and, on each rank, `random_states_<rank>.pkl`
(accelerate/checkpointing.py). There is no marker of the end.
"""

import re
from collections.abc import Sequence

from relight.checkpoints.access import Access
from relight.checkpoints.layouts import weights
from relight.checkpoints.layouts.base import Candidate, Structure, stepped, unfinished
from relight.checkpoints.layouts.hf_trainer import STATE
from relight.checkpoints.tree import Tree

_NAME = re.compile(r"(?:(?:checkpoint|step)[_-](\d{1,18})|epoch[_-](\d{1,18}))")
_RANDOM = re.compile(r"random_states_\d+\.pkl")


class Accelerate:
    """See the module."""

    name = "accelerate"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        found = stepped(tree, _NAME)
        names = {p for e, _ in found for p in e.inside()}
        if STATE in names or not any(map(_RANDOM.fullmatch, names)):
            return []
        return [
            Candidate(e.name, e.files, step=int(m[1]) if m[1] else None, epoch=int(m[2]) if m[2] else None)
            for e, m in found
        ]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """None: the script says what to load."""
        return None

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        inside = candidate.inside()
        structure = weights.check(inside, access)
        problems = list(structure.problems)
        if not any(map(_RANDOM.fullmatch, inside)):
            problems.insert(0, unfinished("random_states_<rank>.pkl, written last, are missing"))
        return Structure(problems, committed=False, parts=structure.parts, checked=structure.checked)
