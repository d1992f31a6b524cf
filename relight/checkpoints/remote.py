"""Object stores and other remote file systems, through fsspec (`s3://`, `gs://`, ...), which is optional."""

import time
from datetime import datetime
from importlib import import_module
from typing import Any

from relight.checkpoints.budget import Budget
from relight.checkpoints.report import CheckpointError, WronglyAsked
from relight.checkpoints.stores import MAX_FILES, UnreadableError
from relight.checkpoints.tree import File, Tree

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
"""What file systems call the time of the last change (fsspec leaves it to them)."""


class FsspecStore:
    """A directory that fsspec can list and read."""

    def __init__(self, url: str) -> None:
        """Opens the file system.

        Raises:
            WronglyAsked: fsspec or the file system's package is not installed, or the address is wrong.
        """
        self.root = url
        try:
            fsspec = import_module("fsspec.core")
        except ImportError as error:
            raise WronglyAsked(
                f"{url} needs fsspec: install `fsspec` and the package for its protocol (s3fs, gcsfs, adlfs)"
            ) from error
        try:
            self._fs, path = fsspec.url_to_fs(url)
        except (ImportError, ValueError, OSError) as error:
            raise WronglyAsked(f"cannot open {url}: {error}") from error
        self._path = str(path).rstrip("/")
        self._sizes: dict[str, int] = {}

    def scan(self, budget: Budget) -> Tree:
        """See `Store.scan`. Object stores have no links and no empty directories."""
        try:
            found: dict[str, dict[str, Any]] = self._fs.find(self._path, detail=True)
            if not found and not self._fs.isdir(self._path):
                raise WronglyAsked(f"cannot read {self.root}: there is no such directory")
        except CheckpointError:
            raise
        except Exception as error:  # each file system raises errors of its own library
            raise CheckpointError(f"cannot read {self.root}: {error}") from error
        if len(found) > MAX_FILES:
            raise CheckpointError(f"{self.root} holds more than {MAX_FILES} files")
        files: dict[str, File] = {}
        directories: set[str] = set()
        for full, info in found.items():
            path = full[len(self._path) :].strip("/")
            if not path or path.endswith("/") or not isinstance(info.get("size"), int):
                continue
            files[path] = File(path, info["size"], _time(info))
            parent = path
            while parent := parent.rpartition("/")[0]:
                directories.add(parent)
        budget.check_time()
        self._sizes = {path: file.size for path, file in files.items()}
        return Tree(self.root, files, frozenset(directories))

    def read(self, path: str, offset: int, length: int) -> bytes:
        """See `Store.read`."""
        end = min(offset + length, self._sizes.get(path, offset + length))
        if end <= offset:
            return b""
        try:
            data: bytes = self._fs.cat_file(f"{self._path}/{path}", start=offset, end=end)
        except Exception as error:  # each file system raises errors of its own library
            raise UnreadableError(f"cannot be read: {error}") from error
        return data

    def now(self) -> float:
        """See `Store.now`."""
        return time.time()


def _time(info: dict[str, Any]) -> float | None:
    """The time of the last change, in whatever form the file system gives it."""
    value = next((info[key] for key in _TIMES if info.get(key) is not None), None)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value) if isinstance(value, int | float) else None
