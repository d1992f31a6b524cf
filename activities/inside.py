"""Changes under one directory that belongs to somebody else, and never outside of it.

The job's user writes there, and this process may be allowed more than that user. So each part of a path is
opened beneath the one before, by file descriptor, and no symbolic link is followed on the way.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

MAX_TEXT = 4096
"""The largest file that is read or written, in bytes."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OutsideError(Exception):
    """A path that leads out of the directory, or to something that is no plain file where one must be."""


class Inside:
    """A directory that is held open. Paths are relative to it, with `/`."""

    def __init__(self, root: int) -> None:
        self._root = root

    @staticmethod
    @contextmanager
    def open(directory: str, owner: int | None) -> Iterator["Inside"]:
        """Opens a directory; links on the way to it are its giver's business, and are followed.

        Args:
            directory: absolute.
            owner: the user id that it must belong to; None: any.

        Raises:
            OutsideError: it belongs to somebody else.
            OSError: it cannot be opened.
        """
        root = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if owner is not None and os.fstat(root).st_uid != owner:
                raise OutsideError(f"{directory} does not belong to the job's user")
            yield Inside(root)
        finally:
            os.close(root)

    def exists(self, path: str) -> bool:
        """Something has this name, a link included."""
        with self._parent(path) as (parent, name):
            return _exists(parent, name)

    def read(self, path: str) -> str | None:
        """The text of a small file; None when there is none.

        Raises:
            OutsideError: it is a link, no plain file, or larger than `MAX_TEXT`.
            OSError: it cannot be read.
        """
        with self._parent(path) as (parent, name):
            return _read(parent, name, path)

    def write(self, path: str, text: str, like: str) -> None:
        """Writes a small file in one piece, in place of what is there.

        Args:
            path: the file.
            text: its content.
            like: a file whose owner and mode it gets; where there is none, it gets its directory's owner.

        Raises:
            OutsideError: as `read`, of what is there.
            OSError: it cannot be written.
        """
        with self._parent(path) as (parent, name), self._parent(like) as (beside, model):
            _read(parent, name, path)  # only a plain file may be replaced
            scratch = f".{name}.relight"
            if _exists(parent, scratch):  # of a try that was lost
                os.unlink(scratch, dir_fd=parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE
            handle = os.open(scratch, flags, 0o600, dir_fd=parent)
            try:
                _give_to_owner(handle, parent, beside, model)
                os.write(handle, text.encode())
                os.fsync(handle)
            finally:
                os.close(handle)
            os.rename(scratch, name, src_dir_fd=parent, dst_dir_fd=parent)
            os.fsync(parent)

    def move(self, path: str, to: str) -> None:
        """Moves a file, a directory or a link; the directories that `to` names are made if need be.

        Raises:
            OutsideError: something of that name is there already.
            OSError: it cannot be moved.
        """
        with self._parent(path) as (parent, name), self._parent(to, make=True) as (target, new):
            if _exists(target, new):
                raise OutsideError(f"there is a {to} already")
            os.rename(name, new, src_dir_fd=parent, dst_dir_fd=target)
            os.fsync(target)
            os.fsync(parent)

    def names(self, path: str) -> tuple[str, ...]:
        """What is in a directory, in order; nothing where there is none.

        Raises:
            OSError: it cannot be read.
        """
        with self._parent(path) as (parent, name):
            try:
                handle = _open_directory(name, parent)
            except FileNotFoundError:
                return ()
            try:
                return tuple(sorted(os.listdir(handle)))  # noqa: PTH208 - of a descriptor
            finally:
                os.close(handle)

    @contextmanager
    def _parent(self, path: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """The directory that a path's last part is in, and that part."""
        *above, name = path.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in (*above, name)):
            raise OutsideError(f"{path!r} does not lead into the directory")
        opened = [os.dup(self._root)]
        try:
            for part in above:
                if make and not _exists(opened[-1], part):
                    os.mkdir(part, 0o755, dir_fd=opened[-1])
                    _give_directory(opened[-1], part)
                opened.append(_open_directory(part, opened[-1]))
            yield opened[-1], name
        finally:
            for handle in opened:
                os.close(handle)


def _open_directory(name: str, parent: int) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _outside(error, name) from error


def _outside(error: OSError, path: str) -> Exception:
    """What a failure to open means: a link in the way leads out, anything else may pass."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return OutsideError(f"{path} is a link, or not what it should be")
    return error


def _exists(parent: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _read(parent: int, name: str, path: str) -> str | None:
    try:
        handle = os.open(name, os.O_RDONLY | _FILE, dir_fd=parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _outside(error, path) from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OutsideError(f"{path} is no plain file")
        data = os.read(handle, MAX_TEXT + 1)
    finally:
        os.close(handle)
    if len(data) > MAX_TEXT:
        raise OutsideError(f"{path} is larger than {MAX_TEXT} bytes")
    return data.decode("utf-8", "surrogateescape")


def _give_to_owner(handle: int, parent: int, beside: int, model: str) -> None:
    """The job must be able to read and replace what is written for it."""
    owner, mode = os.fstat(parent), 0o644
    if _exists(beside, model):
        owner = os.stat(model, dir_fd=beside, follow_symlinks=False)
        mode = stat.S_IMODE(owner.st_mode)
    if owner.st_uid != os.geteuid():
        os.fchown(handle, owner.st_uid, owner.st_gid)
    os.fchmod(handle, mode & 0o777)


def _give_directory(parent: int, name: str) -> None:
    owner = os.fstat(parent)
    if owner.st_uid != os.geteuid():
        os.chown(name, owner.st_uid, owner.st_gid, dir_fd=parent, follow_symlinks=False)
