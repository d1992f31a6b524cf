"""Levanter: `step-9485/`, in which `metadata.json` is written last; arrays through TensorStore.

levanter/checkpoint.py (`save_checkpoint`, `save_metadata`).
"""

import re
from collections.abc import Sequence

from relight.checkpoints.access import Access, BadContentError
from relight.checkpoints.budget import OverBudgetError
from relight.checkpoints.layouts import zarr
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

METADATA = "metadata.json"
_NAME = re.compile(r"step-(\d{1,18})")
_ARRAY = re.compile(r"(?:.*/)?(?:\.zarray|zarr\.json|manifest\.ocdbt)")


class Levanter:
    """See the module."""

    name = "levanter"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        found = stepped(tree, _NAME)
        if not any(METADATA in e.inside() or any(map(_ARRAY.fullmatch, e.inside())) for e, _ in found):
            return []
        return [Candidate(e.name, e.files, step=int(m[1])) for e, m in found]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """None: Levanter takes the checkpoint whose `metadata.json` says the newest time."""
        return None

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        inside = candidate.inside()
        if METADATA not in inside:
            return Structure([unfinished(f"{METADATA}, which is written last, is missing")])
        problems = _step_problems(inside[METADATA], candidate.step, access)
        if len(inside) == 1:
            problems.append(missing("there are no arrays"))
        own = Structure(problems, committed=True, checked=["completion marker"])
        return join(own, zarr.check_databases(inside, access))


def _step_problems(file: File, step: int | None, access: Access) -> list[Problem]:
    try:
        said = access.json(file).get("step", step)
    except (NotListedError, OverBudgetError):
        return []
    except UnreadableError as error:
        return [missing(f"{METADATA} {error}")]
    except BadContentError as error:
        return [bad(f"{METADATA}: {error}")]
    return [] if said == step else [bad(f"{METADATA} says step {said}")]
