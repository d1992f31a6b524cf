"""Hugging Face Trainer: `checkpoint-500/`, where `trainer_state.json` is written after weights and optimizer.

transformers/trainer.py (`_save_checkpoint`). Older versions save to `tmp-checkpoint-500` and rename.
"""

import re
from collections.abc import Sequence

from relight.checkpoints.access import Access, BadContentError
from relight.checkpoints.budget import OverBudgetError
from relight.checkpoints.layouts import weights
from relight.checkpoints.layouts.base import (
    Candidate,
    Problem,
    Structure,
    bad,
    join,
    missing,
    stepped,
    unfinished,
)
from relight.checkpoints.stores import NotListedError, UnreadableError
from relight.checkpoints.tree import File, Tree

STATE = "trainer_state.json"
_NAME = re.compile(r"(tmp-)?checkpoint-(\d{1,18})")


class HfTrainer:
    """See the module."""

    name = "hf-trainer"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        return [
            Candidate(
                e.name,
                e.files,
                step=int(m[2]),
                unfinished="its name is that of a save under way" if m[1] else "",
            )
            for e, m in stepped(tree, _NAME)
        ]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """None: the Trainer takes the highest number."""
        return None

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        inside = candidate.inside()
        if STATE not in inside:
            return Structure([unfinished(f"{STATE}, which is written last, is missing")])
        state = Structure(_state_problems(inside[STATE], candidate.step, access), committed=True)
        deepspeed = any(p.startswith("global_step") for p in inside)
        if deepspeed and "latest" not in inside:
            state = join(
                state, Structure([missing("latest, which names the DeepSpeed files, is missing")], True)
            )
        return join(state, weights.check(inside, access))


def _state_problems(state: File, step: int | None, access: Access) -> list[Problem]:
    try:
        said = access.json(state).get("global_step")
    except (NotListedError, OverBudgetError):
        return []
    except UnreadableError as error:
        return [missing(f"{STATE} {error}")]
    except BadContentError as error:
        return [bad(f"{STATE}: {error}")]
    if said != step:
        return [bad(f"{STATE} says step {said}")]
    return []
