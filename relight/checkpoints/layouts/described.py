"""A layout that the run's policy describes: a glob, where the step is in the name, what marks the end."""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase, translate

from relight.checkpoints.access import Access
from relight.checkpoints.layouts.base import Candidate, Structure, missing, unfinished
from relight.checkpoints.tree import File, Tree
from relight.contracts.policy import CheckpointLayout


class Described:
    """See the module."""

    def __init__(self, description: CheckpointLayout) -> None:
        self.name = description.name
        self._description = description
        self._parts = [re.compile(translate(part)) for part in description.glob.strip("/").split("/")]
        self._step = re.compile(description.step)

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """See `Layout.find`."""
        groups: dict[str, list[File]] = {d: [] for d in tree.directories if self._matches(d)}
        for path, file in tree.files.items():
            name = "/".join(path.split("/")[: len(self._parts)])
            if self._matches(name) and not self._is_marker(path, tree):
                groups.setdefault(name, []).append(file)
        return [Candidate(name, tuple(files), step=self._step_of(name)) for name, files in groups.items()]

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """None: pointers are not described."""
        return None

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """See `Layout.check`."""
        marker = self._description.marker
        if not candidate.files:
            return Structure([unfinished("the directory is empty")])
        is_file = candidate.files[0].path == candidate.name
        path = candidate.name + marker if is_file else f"{candidate.name}/{marker}"
        if marker and path not in access.tree.files:
            return Structure([unfinished(f"the marker {path.rpartition('/')[2]} is missing")])
        lacking = [glob for glob in self._description.needs if not _any(candidate.inside(), glob)]
        problems = [missing(f"nothing matches {glob}") for glob in lacking]
        return Structure(problems, bool(marker), checked=["completion marker"] if marker else [])

    def _matches(self, name: str) -> bool:
        parts = name.split("/")
        return len(parts) == len(self._parts) and all(
            pattern.match(part) for pattern, part in zip(self._parts, parts, strict=True)
        )

    def _is_marker(self, path: str, tree: Tree) -> bool:
        """The file is the marker that stands beside a checkpoint of one file."""
        marker = self._description.marker
        return bool(marker) and path.endswith(marker) and path[: -len(marker)] in tree.files

    def _step_of(self, name: str) -> int | None:
        match = self._step.search(name)
        return int(match[1]) if match and match[1] and match[1].isdecimal() else None


def _any(paths: Iterable[str], glob: str) -> bool:
    return any(fnmatchcase(path, glob) for path in paths)
