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
from relight.checkpoints.report import CheckpointError, WronglyAsked
from relight.checkpoints.tree import File, Tree

MAX_FILES = 2_000_000
"""A directory with more files is refused: it is not one run's checkpoints."""
MAX_DEPTH = 12
"""Directories deeper than this are not looked into, and the report says so."""


_MAX_NOTES = 20
_TICK = 1000
"""The time is looked at each time so many names were read."""


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
            WronglyAsked: the root is missing, or no directory.
            CheckpointError: it is unreadable or far too large.
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
        scan = _Scan(self.root, budget)
        try:
            scan.look_into("")
        except (FileNotFoundError, NotADirectoryError) as error:
            raise WronglyAsked(f"cannot read {self.root}: {error.strerror}") from error
        except OSError as error:
            raise CheckpointError(f"cannot read {self.root}: {error.strerror}") from error
        while scan.queue:
            path = scan.queue.pop()
            try:
                scan.look_into(path)
            except FileNotFoundError:  # gone meanwhile: a run removes old checkpoints
                continue
            except OSError as error:
                scan.notes.append(f"cannot read {path}: {error.strerror}")
        notes = tuple(scan.notes[:_MAX_NOTES])
        return Tree(self.root, scan.files, frozenset(scan.directories), scan.links, notes)

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


class _Scan:
    """One walk over a local directory: what was found so far, and where it still has to look."""

    def __init__(self, root: str, budget: Budget) -> None:
        self.root = root
        self.budget = budget
        self.queue: list[str] = []
        self.files: dict[str, File] = {}
        self.links: dict[str, str] = {}
        self.directories: set[str] = set()
        self.notes: list[str] = []

    def look_into(self, prefix: str) -> None:
        """Notes everything in one directory.

        Raises:
            OSError: it cannot be read.
            CheckpointError, OverBudgetError: as `Store.scan`.
        """
        with os.scandir(os.path.join(self.root, prefix)) as entries:  # noqa: PTH118
            for count, entry in enumerate(entries):
                if not count % _TICK:
                    self.budget.check_time()
                path = f"{prefix}/{entry.name}" if prefix else entry.name
                try:
                    self._note(entry, path)
                except FileNotFoundError:  # gone meanwhile, or a dangling link
                    continue
                except OSError as error:  # a loop of links, a stale handle
                    self.notes.append(f"cannot look at {path}: {error.strerror}")
                if len(self.files) + len(self.directories) > MAX_FILES:
                    raise CheckpointError(f"{self.root} holds more than {MAX_FILES} files")

    def _note(self, entry: "os.DirEntry[str]", path: str) -> None:
        try:
            entry.name.encode()
        except UnicodeEncodeError:
            self.notes.append("a name that is not UTF-8 was left out")
            return
        is_link = entry.is_symlink()
        if is_link:
            self.links[path] = os.readlink(entry.path)  # noqa: PTH115
        if entry.is_dir():
            if is_link and not self._may_follow(entry, path):
                return
            self.directories.add(path)
            if path.count("/") < MAX_DEPTH:
                self.queue.append(path)
            else:
                self.notes.append(f"{path} is nested too deep, not looked into")
            return
        info = entry.stat()
        if stat.S_ISREG(info.st_mode):
            self.files[path] = File(path, info.st_size, info.st_mtime)

    def _may_follow(self, entry: "os.DirEntry[str]", path: str) -> bool:
        """A link to a directory is followed if it is a checkpoint that was put elsewhere.

        That is: directly under the root, leading out of it but to none of its parents, and to a directory of
        the same owner. The job's user writes these links, and this process may be allowed to read more.
        """
        real, root = os.path.realpath(entry.path), os.path.realpath(self.root)
        if "/" in path or f"{real}/".startswith(f"{root}/"):
            return False
        same_owner = entry.stat().st_uid == os.stat(self.root).st_uid  # noqa: PTH116
        if f"{root}/".startswith(f"{real.rstrip('/')}/") or not same_owner:
            self.notes.append(f"{path} is a link out of the directory, not followed")
            return False
        return True


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
            WronglyAsked: it is not such an object.
        """
        try:
            data: Any = json.loads(text)
            return cls(Listing.model_validate(data))
        except (ValueError, RecursionError) as error:
            detail = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise WronglyAsked(f"not a listing of a checkpoint directory: {detail}") from error

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
