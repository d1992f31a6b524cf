"""MosaicML Composer and LLM Foundry: `ep0-ba1000-rank0.pt`, or a distributed checkpoint `ep0-ba1000/`.

composer/callbacks/checkpoint_saver.py. `latest-rank0.pt` is a link, or on object stores a text file
`latest-rank0.pt.symlink`.
"""

import re
from collections.abc import Sequence

from relight.checkpoints.access import Access
from relight.checkpoints.layouts import dcp
from relight.checkpoints.layouts.base import Candidate, Structure, missing, singles, some, stepped, unfinished
from relight.checkpoints.layouts.ranks import absent
from relight.checkpoints.tree import File, Tree

_FILE = re.compile(r"ep(\d{1,18})-ba(\d{1,18})(?:-rank(\d+))?(?:\.pt)?")
_RANKED = re.compile(r".*-rank(\d+)(?:\.pt)?")
_POINTERS = ("latest-rank0.pt", "latest-rank0", "latest", "latest-rank0.pt.symlink", "latest.symlink")


class Composer:
    """See the module."""

    name = "composer"

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        groups: dict[tuple[int, int], list[File]] = {}
        for file, match in singles(tree, _FILE):
            groups.setdefault((int(match[1]), int(match[2])), []).append(file)
        found = [
            Candidate(
                files[0].path if len(files) == 1 else f"ep{epoch}-ba{batch}",
                tuple(files),
                step=batch,
                epoch=epoch,
            )
            for (epoch, batch), files in groups.items()
        ]
        return found + [
            Candidate(e.name, e.files, step=int(m[2]), epoch=int(m[1])) for e, m in stepped(tree, _FILE)
        ]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """See `Layout.pointer`."""
        text = next(filter(None, map(access.pointer_text, _POINTERS)), None)
        if text is None:
            return None
        target = text.rstrip("/").rpartition("/")[2]
        named = (c.name for c in candidates if c.name == target or any(f.path == target for f in c.files))
        return next(named, target)

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        if not candidate.files:
            return Structure([unfinished("the directory is empty")])
        if candidate.files[0].path.startswith(candidate.name + "/"):
            return dcp.check_directories(candidate.inside(), access)
        lost = absent((f.path for f in candidate.files), _RANKED)
        fewer = len(candidate.files) < max(len(c.files) for c in candidates)
        problems = [missing(f"{some(lost)} missing")] if lost else []
        if fewer and not lost:
            problems.append(missing("files of ranks missing, which other checkpoints have"))
        return Structure(problems, checked=["set of ranks"])
