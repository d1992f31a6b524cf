"""Reads step lines from a job's logs: from the end, or everything that was written since a mark.

A mark is how far a file had been written: its inode, its size, and a hash of the bytes just before. A file
that was truncated, replaced or rewritten since does not continue its mark, and is read from its beginning.
"""

import hashlib
import os
import pwd
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from glob import glob
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO

from temporalio import activity

from relight.contracts import JobInfo, Model, TrainingJob
from relight.contracts.steps import LogMark
from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.findings import PhaseKind, PhaseLine, StepLine
from relight.diagnosis.reader import LogReader
from relight.diagnosis.steplines import StepFormat, with_custom
from relight.scheduler.port import log_files

MAX_FILES = 64
"""Of more files than this, those written last are read."""
TAIL = 2 * 1024 * 1024
"""Bytes at the end of a file that are searched for its last step line."""
BUDGET = 64 * 1024 * 1024
"""Bytes of one file that are read in one look; the next look goes on from there."""
ENDS = 8
"""Step lines kept of the begin, and of the end, of what was read of a file."""
_CHUNK = 1024 * 1024
_HASHED = 4096


class Reading(Model):
    """What one look at the logs found."""

    steps: tuple[StepLine, ...] = ()
    """The first, the second and the last step line of each file, in order."""
    more_steps: tuple[StepLine, ...] = ()
    """The first and the last few step lines of each file, in order."""
    loads: tuple[PhaseLine, ...] = ()
    """The last line of each file that tells of a checkpoint being loaded."""
    marks: tuple[LogMark, ...] = ()
    """Where the next look goes on."""
    unread: tuple[str, ...] = ()
    """Files that could not be read, and why."""


Formats = tuple[StepFormat, ...] | None
"""How steps look; None: as the built-in formats know them."""


def formats_of(job: TrainingJob) -> Formats:
    """The step formats of a job's policy. Patterns of no use are left out, as its sensor leaves them out."""
    patterns = job.policy.step_patterns
    try:
        return with_custom(patterns) if patterns else None
    except ValueError as error:
        activity.logger.warning("the policy's step patterns cannot be used: %s", error)
        return None


def warm_up() -> None:
    """Compiles the signatures now (a second or two), so that the first step to read a log need not wait."""
    LogReader(Catalogue.load(), "")


def find_logs(job: TrainingJob, info: JobInfo | None) -> tuple[str, ...]:
    """The existing log files of a job: its output as the scheduler reports it, and the globs given for it.

    Where the job's own user named the files, files of other users are left out: the worker may be allowed to
    read more than that user.
    """
    owner = owner_of_files(job)
    outputs = [str(path) for path in log_files(info)] if info else []
    found: dict[str, float] = {}
    for pattern in (*outputs, *job.log_paths):
        names = [pattern] if Path(pattern).exists() else glob(pattern)  # noqa: PTH207 - absolute
        for name in names:
            try:
                stat = Path(name).stat()
                if S_ISREG(stat.st_mode) and owner in (None, stat.st_uid):
                    found[name] = stat.st_mtime
            except OSError:  # gone again, or out of reach: reported when it is read, if it is still there
                continue
    newest = sorted(found, key=lambda name: found[name], reverse=True)[:MAX_FILES]
    return tuple(name for name in found if name in newest)


def owner_of_files(job: TrainingJob) -> int | None:
    """The only user whose files may be read for this job; None: any that the worker can read."""
    if not job.opted_in:
        return None
    try:
        return pwd.getpwnam(job.user).pw_uid
    except KeyError:
        return os.geteuid()


def mark_logs(paths: Iterable[str]) -> tuple[LogMark, ...]:
    """How far each file has been written now; one that cannot be read gets no mark, and is read whole."""
    marks = []
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                stat = os.fstat(file.fileno())
                marks.append(_mark(file, path, stat.st_ino, stat.st_size))
        except OSError:
            continue
    return tuple(marks)


def last_written(paths: Iterable[str]) -> datetime | None:
    """When any of the files was last written, by the clock of its file system; None: none can be read.

    The files are opened for it: NFS asks its server for a file's times then, and not only once a minute
    (close-to-open consistency, nfs(5)).
    """
    times = []
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                times.append(os.fstat(file.fileno()).st_mtime)
        except OSError:
            continue
    return datetime.fromtimestamp(max(times), UTC) if times else None


def read_tail(paths: Iterable[str], formats: Formats = None) -> Reading:
    """Reads the end of each file, with marks at what was read."""
    steps, more, marks, unread = [], [], [], []
    for path in paths:
        try:
            found, _, mark = _read(path, None, formats, tail=True)
        except OSError as error:
            unread.append(f"{path}: {error.strerror or error}")
            continue
        steps += _ends(found)
        more += _more(found)
        marks.append(mark)
    return Reading(steps=tuple(steps), more_steps=tuple(more), marks=tuple(marks), unread=tuple(unread))


def steps_before(marks: Iterable[LogMark], formats: Formats = None) -> tuple[StepLine, ...]:
    """The step lines at the end of what was written before each mark; none of a file that was rewritten."""
    steps: list[StepLine] = []
    for mark in marks:
        try:
            with Path(mark.path).open("rb") as file:
                if not _continues(file, os.fstat(file.fileno()), mark):
                    continue
                start = max(0, mark.size - TAIL)
                file.seek(start)
                start += len(file.readline()) if start else 0  # the first line may be cut
                reader = LogReader(Catalogue.load(), mark.path, offset=start, steps=formats)
                events = reader.feed(file.read(max(0, mark.size - start)))
        except OSError:
            continue  # it only means that less is known of the time before
        steps += [event for event in events if isinstance(event, StepLine)]
    return tuple(steps)


def read_since(paths: Iterable[str], marks: Sequence[LogMark], formats: Formats = None) -> Reading:
    """Reads what was written since these marks; a file without one is read from its beginning."""
    known = {mark.path: mark for mark in marks}
    steps, more, loads, after, unread = [], [], [], [], []
    for path in paths:
        try:
            found, loaded, mark = _read(path, known.get(path), formats)
        except OSError as error:
            unread.append(f"{path}: {error.strerror or error}")
            if path in known:
                after.append(known[path])
            continue
        steps += _ends(found)
        more += _more(found)
        loads += loaded[-1:]
        after.append(mark)
    return Reading(
        steps=tuple(steps),
        more_steps=tuple(more),
        loads=tuple(loads),
        marks=tuple(after),
        unread=tuple(unread),
    )


def last_step(reading: Reading) -> int | None:
    """The last step of the file that was written last."""
    newest: tuple[float, int] | None = None
    for step in reading.steps:  # of one file, a later line replaces an earlier one
        try:
            written = Path(step.file).stat().st_mtime
        except OSError:
            written = 0.0
        if newest is None or written >= newest[0]:
            newest = (written, step.step)
    return newest[1] if newest else None


def _read(
    path: str, since: LogMark | None, formats: Formats, *, tail: bool = False
) -> tuple[list[StepLine], list[PhaseLine], LogMark]:
    with Path(path).open("rb") as file:
        stat = os.fstat(file.fileno())
        start = since.size if since is not None and _continues(file, stat, since) else 0
        if tail and stat.st_size > TAIL:
            file.seek(stat.st_size - TAIL)
            start = stat.st_size - TAIL + len(file.readline())  # the first line may be cut
        file.seek(start)
        reader = LogReader(Catalogue.load(), path, offset=start, steps=formats)
        steps: list[StepLine] = []
        loads: list[PhaseLine] = []
        left = BUDGET
        while left > 0 and (data := file.read(min(_CHUNK, left))):
            left -= len(data)
            for event in reader.feed(data):
                if isinstance(event, StepLine):
                    steps.append(event)
                elif isinstance(event, PhaseLine) and event.phase is PhaseKind.CHECKPOINT_LOAD:
                    loads.append(event)
        # A line longer than the budget is passed over, not read again and again.
        upto = reader.consumed if left > 0 or reader.consumed > start else file.tell()
        return steps, loads, _mark(file, path, stat.st_ino, upto)


def _ends(steps: list[StepLine]) -> list[StepLine]:
    return steps if len(steps) <= 3 else [*steps[:2], steps[-1]]


def _more(steps: list[StepLine]) -> list[StepLine]:
    return steps if len(steps) <= 2 * ENDS else [*steps[:ENDS], *steps[-ENDS:]]


def _continues(file: BinaryIO, stat: os.stat_result, mark: LogMark) -> bool:
    """The file still begins with what it had when it was marked."""
    if stat.st_ino != mark.inode or stat.st_size < mark.size:
        return False
    return _hash_before(file, mark.size) == mark.tail_hash


def _mark(file: BinaryIO, path: str, inode: int, size: int) -> LogMark:
    return LogMark(path=path, inode=inode, size=size, tail_hash=_hash_before(file, size))


def _hash_before(file: BinaryIO, size: int) -> str:
    start = max(0, size - _HASHED)
    file.seek(start)
    return hashlib.sha256(file.read(size - start)).hexdigest()[:16]
