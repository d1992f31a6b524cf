"""What a layout is: how one training framework arranges its checkpoints under a directory."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from relight.checkpoints.access import Access
from relight.checkpoints.tree import Entry, File, Tree


class Kind(Enum):
    """In what way a checkpoint is not whole."""

    UNFINISHED = "unfinished"
    """The save did not end: a marker that is written last is missing, or a name says so."""
    MISSING = "missing"
    """A file or range that the checkpoint needs is not there."""
    BAD = "bad"
    """Bytes are there but wrong."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a checkpoint."""

    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a name under the root claims to be: a checkpoint of some step."""

    name: str
    """Relative to the root: a directory, a file, or what the names of several files have in common."""
    files: tuple[File, ...]
    step: int | None = None
    epoch: int | None = None
    """For names that count epochs only. Orders candidates that have no step."""
    unfinished: str = ""
    """Why the name or a marker beside it says that the save did not end; empty when none does."""
    alias: bool = False
    """A name like `last`, which repeats another checkpoint or is one more save outside the count."""

    def inside(self) -> Mapping[str, File]:
        """Files by their path within the candidate; a single file has the path ``.

        Where the candidate is several files beside each other, its name in their paths is written as `*`.
        """
        if self.name == ".":
            return {f.path: f for f in self.files}
        stem = self.name.rpartition(".")[0] or self.name
        start = len(self.name) + 1
        return {
            f.path[start:]
            if f.path == self.name or f.path.startswith(self.name + "/")
            else f.path.replace(self.name if self.name in f.path else stem, "*", 1): f
            for f in self.files
        }


@dataclass(frozen=True)
class Structure:
    """What names, markers, indexes and manifests of one candidate say."""

    problems: Sequence[Problem] = ()
    committed: bool = False
    """A marker that is written last is there: the save did end, whatever is wrong since."""
    needed: Sequence[File] | None = None
    """The files that a load reads, where an index names them; None: all."""
    parts: Mapping[str, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """Path of a file to the (offset, length) of the archives in it, where an index names them."""
    inventory: bool = False
    """An index named every file that is needed, so that other checkpoints need not be compared."""
    step: int | None = None
    """The step that the contents tell."""
    checked: Sequence[str] = ()
    """What was looked at beyond names, in words."""


class Layout(Protocol):
    """One framework's way."""

    name: str

    def find(self, tree: Tree, access: Access) -> list[Candidate]:
        """The candidates under the root; none if the directory does not look like this layout.

        Looks at names; reads at most a pointer.
        """
        ...

    def pointer(self, candidates: Sequence[Candidate], access: Access) -> str | None:
        """The name that the framework's own pointer gives; None where it has none."""
        ...

    def check(self, candidate: Candidate, candidates: Sequence[Candidate], access: Access) -> Structure:
        """Judges one candidate by its names, markers and indexes.

        Raises:
            OverBudgetError: the budget ended before that was possible.
        """
        ...


def missing(text: str) -> Problem:
    """Something that must be there is not."""
    return Problem(Kind.MISSING, text)


def bad(text: str) -> Problem:
    """Something is there but wrong."""
    return Problem(Kind.BAD, text)


def unfinished(text: str) -> Problem:
    """The save did not end."""
    return Problem(Kind.UNFINISHED, text)


def some(names: Sequence[str] | frozenset[str] | set[str], limit: int = 3) -> str:
    """The first few names, and how many more."""
    ordered = sorted(names)
    more = f" and {len(ordered) - limit} more" if len(ordered) > limit else ""
    return ", ".join(ordered[:limit]) + more


def stepped(tree: Tree, pattern: re.Pattern[str]) -> list[tuple[Entry, re.Match[str]]]:
    """The directories directly under the root whose whole name matches."""
    found = ((e, pattern.fullmatch(e.name)) for e in tree.entries.values() if e.is_dir)
    return [(e, m) for e, m in found if m]


def singles(tree: Tree, pattern: re.Pattern[str]) -> list[tuple[File, re.Match[str]]]:
    """The files directly under the root whose whole name matches; no links."""
    found = (
        (e.files[0], pattern.fullmatch(e.name))
        for e in tree.entries.values()
        if not e.is_dir and e.name not in tree.links
    )
    return [(f, m) for f, m in found if m]


def join(*structures: Structure) -> Structure:
    """One structure of several parts of a checkpoint: every part must be whole."""
    needed: list[File] = []
    parts: dict[str, Sequence[tuple[int, int]]] = {}
    for structure in structures:
        needed += structure.needed or ()
        parts.update(structure.parts)
    return Structure(
        problems=[p for s in structures for p in s.problems],
        committed=all(s.committed for s in structures),
        needed=needed if all(s.needed is not None for s in structures) else None,
        parts=parts,
        inventory=all(s.inventory for s in structures),
        step=next((s.step for s in structures if s.step is not None), None),
        checked=list(dict.fromkeys(c for s in structures for c in s.checked)),
    )


def under(inside: Mapping[str, File], directory: str) -> dict[str, File]:
    """The files beneath a directory of a candidate, by their path within it; `` is the candidate itself."""
    start = f"{directory}/" if directory else ""
    return {p[len(start) :]: f for p, f in inside.items() if p.startswith(start)}
