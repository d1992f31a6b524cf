"""Follows log files by looking at them again and again: works on every filesystem, with no inotify.

A file is known by device, inode and a fingerprint of its content, so these are told apart: it grew; it was
truncated or rewritten, also when it has since grown beyond the old size; it was rotated (the old one is found
by its inode and read to its end, the new one from its start). Reads are bounded per look, so that one job
that writes much does not starve others.

Only regular files are read, and for a job whose user named the files only those that this user owns.
"""

import errno
import glob
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, model_validator

CHUNK = 256 * 1024
"""Bytes of one file that one look reads at most."""
CHUNKS = 16
"""Files of one job that one look reads at most; the others come first next time."""
HISTORY = 1024 * 1024
"""Bytes before the watch that are read, to learn the rhythm and the context."""
MAX_FILES = 4096
"""Files of one job that are followed at most."""
GLOB_EVERY = 1.0
"""Seconds between two expansions of the globs."""
REWIND = 64 * 1024
"""Bytes before the place to read on from that a new reader is fed again: a traceback may be open there."""
QUIET_AFTER = 60.0
"""Seconds without growth after which a file is looked at only every `QUIET_EVERY` seconds."""
QUIET_EVERY = 1.0
COUNTED_AT_ONCE = 8 * 1024 * 1024
"""Bytes that one look reads at most to count the lines of what came before the watch."""
COUNTED = 1024 * 1024 * 1024
"""Of a longer part of a file before the watch the lines are not counted: their numbers stay unknown."""
_HEAD = 1024
_TAIL = 64
_NOT_THERE = {errno.ENOENT, errno.ENOTDIR}


class Position(BaseModel):
    """How far a file was read, and how to know the file again."""

    path: str
    device: int
    inode: int
    read: int = 0
    """Bytes read."""
    taken: int = 0
    """Bytes up to which whole lines were taken: where a restarted sensor reads on. Never beyond `read`."""
    line: int = 0
    """Lines between `front` and `taken`."""
    front: int = 0
    """Bytes at the begin of the file that were not read; their lines are counted when there is time."""
    front_counted: int = 0
    """How many of these bytes were looked through for lines so far."""
    front_lines: int = 0
    """Lines that were found in them."""
    history_until: int = 0
    """Bytes before this one were there when the watch began."""
    head: str = ""
    head_size: int = 0
    tail: str = ""
    tail_size: int = 0

    @property
    def file_id(self) -> str:
        """Names the file on this machine, whatever its path."""
        return f"{self.device}:{self.inode}"

    @property
    def lines_before(self) -> int | None:
        """Lines in the part that was not read; None: not known, or not yet."""
        return self.front_lines if self.front_counted >= self.front else None

    @property
    def is_to_be_counted(self) -> bool:
        """Some lines of the part that was not read are not counted, and will be."""
        return self.front_counted < self.front <= COUNTED

    @model_validator(mode="before")
    @classmethod
    def _of_an_older_version(cls, values: Any) -> Any:
        """That one counted the lines from wherever it began: of a long history, they are counted anew."""
        if isinstance(values, dict) and "front" not in values and values.get("history_until", 0) > HISTORY:
            return {**values, "front": values.get("taken", 0), "line": 0}
        return values


@dataclass(frozen=True)
class Chunk:
    """Some bytes of one file, in order."""

    file_id: str
    path: str
    offset: int
    """Of `data` in the file."""
    data: bytes
    starts: bool
    """A new reader is needed: the first bytes of the file, or of a place further on to read from."""
    resume_at: int
    """What `data` has before this offset was taken before, and is only there for a new reader to warm up."""
    ends: bool
    """Nothing will follow: the file is gone or about to be read anew."""
    historic: bool
    """Written before the watch began."""
    late: bool
    """Written at some time since the last look, which was long ago; else just now."""
    written: datetime
    """When the file was last changed, by the clock of its filesystem."""
    lines_before: int | None = 0
    """Lines of the file before those that the position counts; None: not known."""


@dataclass
class Look:
    """What one look at the files of a job brought."""

    chunks: list[Chunk] = field(default_factory=list)
    behind: bool = False
    """There is more to read at once."""
    troubles: dict[str, str] = field(default_factory=dict)
    """Files that are there and cannot be read, and why."""
    files: int = 0
    """Files that are followed and could be looked at."""
    counted: str = ""
    """Id of the file in whose first part lines were counted; empty: none."""


@dataclass
class _Tracked:
    position: Position
    reader_started: bool = False
    size: int = -1
    mtime_ns: int = -1
    grew_at: float = 0.0
    looked_at: float = -1e9
    caught_up: bool = False


class Follower:
    """Follows the files of one job. Not thread-safe; `look` blocks on the filesystem.

    Args:
        patterns: file names and globs. `**` is not special.
        positions: where an earlier follower stopped.
        fresh: the watch begins now: what is in the files already is history, of which only the end is read.
        owner: when given, only files of this user id are read.
        late_after: seconds between two looks after which what is found counts as late.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        positions: Iterable[Position] = (),
        *,
        fresh: bool = False,
        owner: int | None = None,
        chunk: int = CHUNK,
        late_after: float = 2.0,
    ) -> None:
        self.patterns = tuple(dict.fromkeys(patterns))
        self.owner = owner
        self._chunk = chunk
        self._late_after = late_after
        self._fresh = fresh
        self._tracked = {p.file_id: _Tracked(p.model_copy()) for p in positions}
        self._globbed: list[str] = []
        self._globbed_at = -1e9
        self._next = 0

    @property
    def positions(self) -> dict[str, Position]:
        """The files that are followed, by file id. The caller fills `taken` and `line` in."""
        return {file_id: tracked.position for file_id, tracked in self._tracked.items()}

    def restart_readers(self) -> None:
        """The next chunk of every file is for a new reader."""
        for tracked in self._tracked.values():
            tracked.reader_started = False
            tracked.caught_up = False

    def look(self, now: float) -> Look:
        """Looks at all files once and reads what is new, up to the bounds.

        Args:
            now: seconds of a clock that only goes forward.
        """
        look = Look()
        found = self._find(look, now)
        self._follow_moves(found, look)
        self._begin(found)
        self._fresh = False
        due = [t for t in self._tracked.values() if t.position.file_id in found and self._due(t, now)]
        start = self._next % len(due) if due else 0
        order = due[start:] + due[:start]
        read = 0
        for tracked in order:
            if read >= CHUNKS:
                look.behind = True
                break
            read += self._read(tracked, found[tracked.position.file_id], look, now)
            self._next += 1
        if not look.behind:
            self._count(found, look)
        look.files = sum(1 for file_id in found if file_id in self._tracked) - len(look.troubles)
        return look

    # Which files are there

    def _find(self, look: Look, now: float) -> dict[str, tuple[str, os.stat_result]]:
        """The files that the patterns name now, and moved ones, by file id; a file with two names is one."""
        if now - self._globbed_at >= GLOB_EVERY:
            self._globbed = list(islice(_expand(self.patterns), MAX_FILES))
            self._globbed_at = now
        # A pattern may also be the very name of a file: a job may be called `train[1]`.
        moved = [t.position.path for t in self._tracked.values()]
        found: dict[str, tuple[str, os.stat_result]] = {}
        for path in dict.fromkeys([*self.patterns, *self._globbed, *moved]):
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError as e:
                if e.errno not in _NOT_THERE:
                    look.troubles[path] = e.strerror or str(e)
                continue
            if len(found) < MAX_FILES and self._may_read(path, status, look):
                found.setdefault(f"{status.st_dev}:{status.st_ino}", (path, status))
        return found

    def _may_read(self, path: str, status: os.stat_result, look: Look) -> bool:
        if not stat.S_ISREG(status.st_mode):
            if not (stat.S_ISCHR(status.st_mode) and path == os.devnull):
                look.troubles[path] = "not a regular file"
            return False
        if self.owner is not None and status.st_uid != self.owner:
            look.troubles[path] = "not a file of the job's user"
            return False
        return True

    def _follow_moves(self, found: dict[str, tuple[str, os.stat_result]], look: Look) -> None:
        """Files that lost their name: found again by inode in their directory, or given up."""
        for file_id, tracked in list(self._tracked.items()):
            if file_id in found:
                tracked.position.path = found[file_id][0]
                continue
            if tracked.position.path in look.troubles:
                continue  # it may still be there
            where = _by_inode(tracked.position)
            if where is not None and self._may_read(where, status := os.stat(where), look):  # noqa: PTH116
                tracked.position.path = where
                found[file_id] = (where, status)
            else:
                look.chunks.append(self._end_of(tracked))
                del self._tracked[file_id]

    def _begin(self, found: dict[str, tuple[str, os.stat_result]]) -> None:
        for file_id, (path, status) in found.items():
            if file_id in self._tracked:
                continue
            position = Position(path=path, device=status.st_dev, inode=status.st_ino)
            if self._fresh:
                position.history_until = status.st_size
                position.read = position.taken = position.front = max(0, status.st_size - HISTORY)
            self._tracked[file_id] = _Tracked(position)

    def _due(self, tracked: _Tracked, now: float) -> bool:
        quiet = tracked.caught_up and now - tracked.grew_at > QUIET_AFTER
        return not quiet or now - tracked.looked_at >= QUIET_EVERY

    # Reading

    def _read(self, tracked: _Tracked, found: tuple[str, os.stat_result], look: Look, now: float) -> int:
        """Reads what is new in one file. Returns 1 if there was something, else 0."""
        path, status = found
        position = tracked.position
        gap = now - tracked.looked_at
        same = (status.st_size, status.st_mtime_ns) == (tracked.size, tracked.mtime_ns)
        if same and tracked.caught_up:
            tracked.looked_at = now
            return 0
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            if e.errno not in _NOT_THERE:
                look.troubles[path] = e.strerror or str(e)
            return 0
        try:
            status = os.fstat(fd)
            if f"{status.st_dev}:{status.st_ino}" != position.file_id or not self._may_read(
                path, status, look
            ):
                return 0  # replaced between the two calls: next time
            self._take(tracked, fd, status, look, now, late=gap > self._late_after)
        except OSError as e:
            look.troubles[path] = e.strerror or str(e)
            return 0
        finally:
            os.close(fd)
        tracked.looked_at = now
        return 1

    def _take(
        self, tracked: _Tracked, fd: int, status: os.stat_result, look: Look, now: float, *, late: bool
    ) -> None:
        position = tracked.position
        late = late or not tracked.caught_up
        if not _same_content(fd, status.st_size, position):
            look.chunks.append(self._end_of(tracked))
            path, device, inode = position.path, position.device, position.inode
            position = tracked.position = Position(path=path, device=device, inode=inode)
            tracked.reader_started = False
        starts, resume_at = not tracked.reader_started, position.taken
        if starts:
            # Whatever was not complete when the sensor stopped is read once more.
            position.read = max(0, position.taken - REWIND)
        # What a new reader is fed once more tells nothing new, and comes in one chunk with what follows it.
        historic = (resume_at if starts else position.read) < position.history_until
        wanted = self._chunk + (resume_at - position.read if starts else 0)
        if historic:
            wanted = min(wanted, position.history_until - position.read)
        data, offset = os.pread(fd, wanted, position.read), position.read
        if data:
            if starts and offset:
                data, offset = _from_next_line(data, offset, resume_at)
            look.chunks.append(
                Chunk(
                    file_id=position.file_id,
                    path=position.path,
                    offset=offset,
                    data=data,
                    starts=starts,
                    resume_at=resume_at,
                    ends=False,
                    historic=historic,
                    late=late,
                    written=_time(status.st_mtime),
                    lines_before=position.lines_before,
                )
            )
            tracked.reader_started = True
            tracked.grew_at = now
            position.read = offset + len(data)
            _fingerprint(fd, position)
        tracked.size, tracked.mtime_ns = status.st_size, status.st_mtime_ns
        tracked.caught_up = position.read >= status.st_size or not data
        look.behind = look.behind or not tracked.caught_up

    def _end_of(self, tracked: _Tracked) -> Chunk:
        position = tracked.position
        return Chunk(
            file_id=position.file_id,
            path=position.path,
            offset=position.read,
            data=b"",
            starts=False,
            resume_at=position.taken,
            ends=True,
            historic=position.read < position.history_until,
            late=False,
            written=datetime.now(UTC),
            lines_before=position.lines_before,
        )

    # Counting

    def _count(self, found: dict[str, tuple[str, os.stat_result]], look: Look) -> None:
        """Counts some more lines of what was in a file before the watch, one file and one piece at a look."""
        waiting = (t.position for t in self._tracked.values() if t.position.is_to_be_counted)
        position = next((p for p in waiting if p.file_id in found), None)
        if position is None:
            return
        path, _ = found[position.file_id]
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as e:
            if e.errno not in _NOT_THERE:
                look.troubles[path] = e.strerror or str(e)
            return
        try:
            status = os.fstat(fd)
            same = f"{status.st_dev}:{status.st_ino}" == position.file_id
            if not same or not self._may_read(path, status, look):
                return  # replaced between the two calls: next time
            wanted = min(COUNTED_AT_ONCE, position.front - position.front_counted)
            piece = os.pread(fd, wanted, position.front_counted)
        except OSError as e:
            look.troubles[path] = e.strerror or str(e)
            return
        finally:
            os.close(fd)
        position.front_counted += len(piece)  # nothing, if the file was cut off: the next look notices
        position.front_lines += piece.count(b"\n")
        look.counted = position.file_id


def _expand(patterns: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        if glob.has_magic(pattern):
            yield from sorted(glob.iglob(pattern))  # noqa: PTH207  (Path.glob refuses absolute patterns)


def _time(seconds: float) -> datetime:
    """A file's time stamp; its owner may have set it to anything."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.now(UTC)


def _by_inode(position: Position) -> str | None:
    """Where a renamed file is now, if it is still in its directory."""
    parent = Path(position.path).parent
    try:
        with os.scandir(parent) as entries:
            for entry in entries:
                if (
                    entry.inode() == position.inode
                    and entry.stat(follow_symlinks=False).st_dev == position.device
                ):
                    return entry.path
    except OSError:
        return None  # the directory is gone with it, or closed to us: it cannot be found either way
    return None


def _same_content(fd: int, size: int, position: Position) -> bool:
    """The bytes that were read are still the ones in the file, as far as its head and the last ones tell."""
    if size < position.read:
        return False
    head = os.pread(fd, position.head_size, 0)
    tail = os.pread(fd, position.tail_size, position.read - position.tail_size)
    return _digest(head) == (position.head or _digest(b"")) and _digest(tail) == (
        position.tail or _digest(b"")
    )


def _fingerprint(fd: int, position: Position) -> None:
    """Remembers the head of the file and the bytes just before the place that was read up to."""
    if position.head_size < _HEAD:
        head = os.pread(fd, min(_HEAD, position.read), 0)
        position.head, position.head_size = _digest(head), len(head)
    tail = os.pread(fd, min(_TAIL, position.read), position.read - min(_TAIL, position.read))
    position.tail, position.tail_size = _digest(tail), len(tail)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _from_next_line(data: bytes, offset: int, limit: int) -> tuple[bytes, int]:
    """Leaves out the line that is cut at the front; one that begins at `limit` is whole."""
    cut = data.find(b"\n", 0, max(0, limit - offset)) + 1
    cut = cut or max(0, limit - offset)
    return data[cut:], offset + cut
