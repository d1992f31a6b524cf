"""Where checkpoints lie: a local directory, or a listing of one. Reading only.

A store knows two things: one scan of everything under its root, and reading a range of one file.
"""

import json
import os
import stat
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from relight.checkpoints.budget import Budget
from relight.checkpoints.report import CheckpointError
from relight.checkpoints.tree import File, Tree

MAX_FILES = 2_000_000
"""A directory with more files is refused: it is not one run's checkpoints."""
MAX_DEPTH = 12
"""Directories deeper than this are not looked into, and the report says so."""


class UnreadableError(Exception):
    """A file cannot be read; the message says why."""


class NotListedError(UnreadableError):
    """A listing does not hold the contents of this file. That says nothing about the file."""


class Store(Protocol):
    """Where checkpoints lie."""

    root: str

    def scan(self, budget: Budget) -> Tree:
        """Everything under the root, asked once.

        Raises:
            CheckpointError: the root is missing, no directory, unreadable or far too large.
            OverBudgetError: the time is used up.
        """
        ...

    def read(self, path: str, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset` on; fewer only at the end of the file.

        Raises:
            UnreadableError: the file is gone or cannot be read.
        """
        ...

    def now(self) -> float | None:
        """Seconds since the epoch against which ages count; None where nothing can be in progress."""
        ...


class LocalStore:
    """A local (or mounted) directory."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)

    def scan(self, budget: Budget) -> Tree:
        """See `Store.scan`."""
        files: dict[str, File] = {}
        links: dict[str, str] = {}
        directories: set[str] = set()
        notes: list[str] = []
        real_root = os.path.realpath(self.root)
        queue = [("", 0)]
        while queue:
            prefix, depth = queue.pop()
            budget.check_time()
            try:
                entries = os.scandir(os.path.join(self.root, prefix))  # noqa: PTH118
            except OSError as error:
                if not prefix:
                    raise CheckpointError(f"cannot read {self.root}: {error.strerror}") from error
                if not isinstance(error, FileNotFoundError):  # gone meanwhile: a run removes old checkpoints
                    notes.append(f"cannot read {prefix}: {error.strerror}")
                continue
            with entries:
                for entry in entries:
                    path = f"{prefix}/{entry.name}" if prefix else entry.name
                    try:
                        if entry.is_symlink():
                            links[path] = os.readlink(entry.path)  # noqa: PTH115
                            if entry.is_dir() and (depth or _is_within(entry.path, real_root)):
                                continue
                        if entry.is_dir():
                            directories.add(path)
                            if depth < MAX_DEPTH:
                                queue.append((path, depth + 1))
                            else:
                                notes.append(f"{path} is nested too deep, not looked into")
                            continue
                        info = entry.stat()
                    except FileNotFoundError:  # gone meanwhile, or a dangling link
                        continue
                    except OSError as error:  # a loop of links, a stale handle
                        notes.append(f"cannot look at {path}: {error.strerror}")
                        continue
                    if stat.S_ISREG(info.st_mode):
                        files[path] = File(path, info.st_size, info.st_mtime)
                    if len(files) > MAX_FILES:
                        raise CheckpointError(f"{self.root} holds more than {MAX_FILES} files")
        return Tree(self.root, files, frozenset(directories), links, tuple(notes[:20]))

    def read(self, path: str, offset: int, length: int) -> bytes:
        """See `Store.read`."""
        try:
            # Without O_NONBLOCK a FIFO that took the file's place since the scan would block for ever.
            handle = os.open(os.path.join(self.root, path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # noqa: PTH118
            try:
                chunks = []
                while length > 0 and (chunk := os.pread(handle, length, offset)):
                    chunks.append(chunk)
                    offset += len(chunk)
                    length -= len(chunk)
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)
            finally:
                os.close(handle)
        except OSError as error:
            raise UnreadableError(f"cannot be read: {error.strerror}") from error

    def now(self) -> float:
        """See `Store.now`."""
        return time.time()


def _is_within(path: str, root: str) -> bool:
    real = os.path.realpath(path)
    return real == root or real.startswith(root + os.sep)


class _ListedFile(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    path: str
    size: NonNegativeInt
    mtime: float | None = None


class Listing(BaseModel):
    """A directory written down: what was in it, and the text of its small files.

    A text that starts with `-> ` is a symbolic link and its target.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    root: str = ""
    files: tuple[_ListedFile, ...]
    contents: Mapping[str, str] = {}


class ListingStore:
    """A listing instead of a directory: names, sizes and some contents; nothing is ever in progress."""

    def __init__(self, listing: Listing) -> None:
        self.root = listing.root
        self._listing = listing
        self._contents = dict(listing.contents)

    @classmethod
    def parse(cls, text: str | bytes) -> "ListingStore":
        """Reads one JSON object with `root`, `files` (path, size, mtime) and `contents`.

        Raises:
            CheckpointError: it is not such an object.
        """
        try:
            data: Any = json.loads(text)
            return cls(Listing.model_validate(data))
        except (ValueError, RecursionError) as error:
            detail = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise CheckpointError(f"not a listing of a checkpoint directory: {detail}") from error

    def scan(self, budget: Budget) -> Tree:
        """See `Store.scan`."""
        files: dict[str, File] = {}
        links = {p: t[3:].strip() for p, t in self._contents.items() if t.startswith("-> ")}
        directories: set[str] = set()
        for listed in self._listing.files:
            path = listed.path.removeprefix("./").strip("/")
            if path not in links:
                files[path] = File(path, listed.size, listed.mtime)
            while path := path.rpartition("/")[0]:
                directories.add(path)
        budget.check_time()
        return Tree(self.root, files, frozenset(directories), links)

    def read(self, path: str, offset: int, length: int) -> bytes:
        """See `Store.read`."""
        if path not in self._contents:
            raise NotListedError("its contents are not in the listing")
        return self._contents[path].encode()[offset : offset + length]

    def now(self) -> None:
        """See `Store.now`."""
        return
