"""Where an archive's files are: a directory, or whatever fsspec can reach."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol
from uuid import uuid4


class ArchiveError(Exception):
    """The archive cannot be used. The message says which, why, and what to do."""


class Place(Protocol):
    """A flat set of files, each written as a whole or appended to."""

    grows: bool
    """A file can be appended to; where not, each record is a file of its own."""

    def exists(self) -> bool:
        """Something was written here once, or somebody made the place."""

    def try_out(self) -> None:
        """Finds out whether it can be written and read, and leaves nothing behind.

        Raises:
            OSError: it cannot.
        """

    def names(self) -> list[str]:
        """All files, sorted; those of chains are named `<chain>/<file>`."""

    def read(self, name: str, start: int = 0) -> bytes | None:
        """The content of a file, from this byte; None: there is no such file."""

    def append(self, name: str, data: bytes, keep: int) -> None:
        """Cuts the file to `keep` bytes and writes `data` after them; on disk when this returns."""

    def write(self, name: str, data: bytes) -> None:
        """Replaces a file as a whole; on disk when this returns."""

    def lock(self) -> AbstractContextManager[None]:
        """Excludes all other writers of the same chain."""


class Directory:
    """A directory. Its lock holds between machines where the locks of its file system do."""

    grows = True

    def __init__(self, root: Path) -> None:
        self._root = root

    def exists(self) -> bool:
        """See `Place`."""
        return self._root.is_dir()

    def try_out(self) -> None:
        """See `Place`. A directory that is not there yet would be made, so its parent is tried."""
        there = next(path for path in (self._root, *self._root.parents) if path.exists())
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
        # By deeds: for root, access(2) allows what a file system (/proc, one mounted read-only) then refuses.
        with TemporaryDirectory(prefix=".relight-", dir=there) as scratch:
            (Path(scratch) / "try").write_bytes(b"")
        chains = {self._root / name.partition("/")[0] for name in self.names()}
        for path in (self._root / ".lock", *sorted(chains)):
            if path.exists() and not os.access(path, os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    def names(self) -> list[str]:
        """See `Place`."""
        return sorted(str(path.relative_to(self._root)) for path in self._root.glob("*/*.json*"))

    def read(self, name: str, start: int = 0) -> bytes | None:
        """See `Place`."""
        try:
            with (self._root / name).open("rb") as file:
                file.seek(start)
                return file.read()
        except FileNotFoundError:
            return None

    def append(self, name: str, data: bytes, keep: int) -> None:
        """See `Place`."""
        path = self._root / name
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        fresh = not path.exists()
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o640), "r+b") as file:
            file.truncate(keep)
            file.seek(keep)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if fresh:
            _sync(path.parent)

    def write(self, name: str, data: bytes) -> None:
        """See `Place`."""
        path = self._root / name
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.new")
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
        _sync(path.parent)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """See `Place`."""
        self._root.mkdir(mode=0o750, parents=True, exist_ok=True)
        with locked(self._root / ".lock"):
            yield


class Remote:
    """A file system or object store that fsspec reaches; each machine writes a chain of its own there."""

    grows = False

    def __init__(self, url: str, lock: Path) -> None:
        """Opens the file system.

        Args:
            url: as fsspec takes it.
            lock: a local file that excludes the other writers on this machine.

        Raises:
            ArchiveError: fsspec or the protocol's package is not installed, or the address is wrong.
        """
        try:
            fsspec = import_module("fsspec.core")
            self._fs, path = fsspec.url_to_fs(url)
        except ImportError as error:
            raise ArchiveError(
                f"archive {url} needs fsspec and its protocol's package ({error}): "
                "pip install 'relight[checkpoints]' s3fs (or gcsfs, adlfs, ...)"
            ) from error
        except (ValueError, OSError) as error:
            raise ArchiveError(f"archive {url} cannot be opened: {error}") from error
        self._root, self._lock = str(path).rstrip("/"), lock

    def exists(self) -> bool:
        """See `Place`."""
        return bool(self._fs.exists(self._root))

    def try_out(self) -> None:
        """See `Place`. Written as records are, beside the chains."""
        before = self.exists()
        name, data = f".relight-{uuid4().hex}", b"try"
        self.write(name, data)
        try:
            if self.read(name) != data:
                raise OSError(f"{self._root}/{name} was written, and cannot be read")
        finally:
            self._fs.rm_file(f"{self._root}/{name}")
        if not before and self.exists():
            self._fs.rmdir(self._root)

    def names(self) -> list[str]:
        """See `Place`."""
        self._fs.invalidate_cache()
        found = self._fs.find(self._root) if self._fs.exists(self._root) else []
        return sorted(str(path)[len(self._root) :].strip("/") for path in found)

    def read(self, name: str, start: int = 0) -> bytes | None:
        """See `Place`."""
        try:
            content: bytes = self._fs.cat_file(f"{self._root}/{name}", start=start)
        except FileNotFoundError:
            return None
        return content

    def append(self, name: str, data: bytes, keep: int) -> None:
        """See `Place`. Objects do not grow, so this writes the file as a whole."""
        before = (self.read(name) or b"")[:keep] if keep else b""
        self.write(name, before + data)

    def write(self, name: str, data: bytes) -> None:
        """See `Place`."""
        path = f"{self._root}/{name}"
        self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._fs.pipe_file(path, data)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """See `Place`."""
        self._lock.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self._lock):
            yield


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file; waits for it."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sync(directory: Path) -> None:
    """The directory's own entry of a new file is on disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
