"""Reading within a budget: what layouts and format checks get instead of a file system."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from relight.checkpoints.budget import Budget, Level, OverBudgetError
from relight.checkpoints.stores import NotListedError, Store, UnreadableError
from relight.checkpoints.tree import File, Tree
from relight.contracts import clean_text

MAX_TEXT_FILE = 64 << 20
"""The largest index or state file (JSON) that is read."""
MAX_POINTER = 4096
"""The largest pointer file that is read."""

JsonObject = dict[str, Any]

ReadAt = Callable[[int, int], bytes]
"""Reads `length` bytes from `offset` on; fewer only at the end."""


class BadContentError(Exception):
    """A file's bytes are not what its format demands; the message says in what way."""


@dataclass(frozen=True)
class Access:
    """One store, one scan of it, one budget."""

    store: Store
    tree: Tree
    budget: Budget
    prefix: str = ""
    """Where the tree lies under the store's root: empty, or a directory with its `/`."""
    names_only: bool = False
    """Nothing but pointers may be read: names and sizes have to do."""

    def read(self, level: Level, path: str, offset: int, length: int) -> bytes:
        """Reads a range of a file, counted against the level.

        Raises:
            UnreadableError: the file is gone or cannot be read; `NotListedError` where a listing lacks it.
            OverBudgetError: the level's bytes or the time are used up.
        """
        if self.names_only:
            raise OverBudgetError("newer checkpoints are usable")
        self.budget.spend(level, length)
        return self.store.read(self.prefix + path, offset, length)

    def reader(self, level: Level, path: str) -> ReadAt:
        """`read` for one file at one level."""
        return lambda offset, length: self.read(level, path, offset, length)

    def json(self, file: File) -> JsonObject:
        """A file that must hold one JSON object.

        Raises:
            BadContentError: it does not, or it is larger than `MAX_TEXT_FILE`.
            UnreadableError, OverBudgetError: as `read`.
        """
        if file.size > MAX_TEXT_FILE:
            raise BadContentError(f"{file.size} bytes of JSON: too large to be what it is named for")
        try:
            data = json.loads(self.read(Level.STRUCTURE, file.path, 0, file.size + 1))
        except (ValueError, RecursionError) as error:
            raise BadContentError("not valid JSON") from error
        if not isinstance(data, dict):
            raise BadContentError("not a JSON object")
        return data

    def pointer_text(self, path: str) -> str | None:
        """What a pointer says: the target of the link, or the text of the file; None if there is neither."""
        if path in self.tree.links:
            return clean_text(self.tree.links[path])
        if path not in self.tree.files:
            return None
        try:
            return clean_text(self.store.read(self.prefix + path, 0, MAX_POINTER).decode("utf-8", "replace"))
        except NotListedError:
            return None
        except UnreadableError as error:
            return f"({error})"
