"""A directory of checkpoints as one scan found it. Nothing is asked of the file system twice."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True, slots=True)
class File:
    """A regular file."""

    path: str
    """Relative to the root, with `/`."""
    size: int
    mtime: float | None
    """Seconds since the epoch; None where the store does not say."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Entry:
    """A name directly under the root, with all that lies beneath it."""

    name: str
    is_dir: bool
    files: tuple[File, ...]
    """All files beneath, or the file itself."""

    def inside(self) -> frozenset[str]:
        """Paths of the files, relative to the entry."""
        start = len(self.name) + 1
        return frozenset(f.path[start:] for f in self.files)


@dataclass(frozen=True)
class Tree:
    """Everything under a root.

    Symbolic links to directories are in `links`, and followed only where a checkpoint lies elsewhere. Links
    to files are in `links`, and in `files` when they lead to a regular file.
    """

    root: str
    files: Mapping[str, File]
    directories: frozenset[str] = frozenset()
    links: Mapping[str, str] = field(default_factory=dict)
    """Path to the text of the link."""
    notes: tuple[str, ...] = ()

    @cached_property
    def entries(self) -> Mapping[str, Entry]:
        """The names directly under the root."""
        groups: dict[str, list[File]] = {d: [] for d in self.directories if "/" not in d}
        singles: set[str] = set()
        for path, file in self.files.items():
            top, slash, _ = path.partition("/")
            groups.setdefault(top, []).append(file)
            if not slash:
                singles.add(top)
        return {top: Entry(top, top not in singles, tuple(files)) for top, files in groups.items()}

    def beneath(self, prefix: str) -> "Tree":
        """The part under a directory, as a tree of its own."""
        start = prefix.rstrip("/") + "/"
        cut = len(start)
        return Tree(
            root=f"{self.root.rstrip('/')}/{start}".rstrip("/"),
            files={
                p[cut:]: File(p[cut:], f.size, f.mtime) for p, f in self.files.items() if p.startswith(start)
            },
            directories=frozenset(d[cut:] for d in self.directories if d.startswith(start)),
            links={p[cut:]: t for p, t in self.links.items() if p.startswith(start)},
            notes=self.notes,
        )


def newest(files: Iterable[File]) -> float | None:
    """The latest modification time of these files; None when no file has one."""
    return max((f.mtime for f in files if f.mtime is not None), default=None)
