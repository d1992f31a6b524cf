"""The lines of the kernel log from now on: from `/dev/kmsg`, or from a file that holds kernel messages.

`/dev/kmsg` is the better source: the kernel itself marks what a program has written there, and such lines are
left out, so that nobody can forge one. A file is as trustworthy as what writes it.
"""

import errno
import os
import re
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from sensor.follow import Follower

KMSG = Path("/dev/kmsg")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
MOST_LINES = 2000
"""Lines that one look takes at most; the rest waits in the kernel's buffer or in the file."""
LONGEST_LINE = 4096
"""Bytes of one line that are kept."""
FILE_EVERY = 0.2
"""Seconds between two looks at a file."""
_RECORD = 16 * 1024
"""The kernel refuses to read a record into less than it needs (8 KiB at most)."""
_FACILITY_USER = 1
_APART, _DRIFT = 60.0, 1e-3
"""How many seconds, and what part of the uptime, the kernel's stamps may be apart from our clock."""
_HEAD = re.compile(rb"(?P<level>\d+),(?P<seq>\d+),(?P<us>\d+),[^;]*;(?P<text>[^\n]*)")
_PADDED_DAY = re.compile(rb"^([A-Z][a-z][a-z])  (\d )")
"""syslog pads the day of the month (`Dec  2`), which the reader of time stamps does not expect."""


@dataclass(frozen=True)
class Line:
    """One line of the kernel log."""

    text: bytes
    at: datetime
    """When the kernel printed it; for a file, when it was read."""
    where: str
    """Where to see it again; never the same for two lines of one boot."""
    stamped: bool = False
    """The text may carry a time of its own (a file's lines do)."""
    number: int | None = None
    """Of the line in its file, from 1; None: it is from no file, or not known."""


class KernelLog(Protocol):
    """A source of kernel lines."""

    name: str
    overruns: int
    """How often lines were lost because they came faster than they were read."""

    def look(self, timeout: float) -> list[Line]:
        """New lines, at most `MOST_LINES`; waits up to `timeout` seconds for the first one.

        Raises:
            OSError: the source cannot be read.
        """

    def close(self) -> None:
        """Ends reading."""


def open_kernel_log(path: Path) -> KernelLog:
    """The source behind a path: `/dev/kmsg` and the like (a character device), or a file.

    Raises:
        OSError: it cannot be opened. A file need not be there yet.
    """
    return Kmsg(path) if path.is_char_device() else LogFile(path)


def boot_id() -> str:
    """Names the present boot of this machine; empty where the kernel does not tell."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


class Kmsg:
    """`/dev/kmsg`, from now on.

    Args:
        path: the device.
        programs: take also what programs wrote into the kernel log (for tests only: anybody may have).
        read: reads one record.
    """

    def __init__(
        self, path: Path = KMSG, *, programs: bool = False, read: Callable[[int, int], bytes] = os.read
    ) -> None:
        self.name = str(path)
        self.overruns = 0
        self.lost = 0
        """Records that were overwritten before they were read."""
        self._programs = programs
        self._read = read
        self._boot = boot_id()[:8]
        self._last = -1
        self._ahead: float | None = None
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(self._fd, 0, os.SEEK_END)  # what is there already is history
        self._opened = time.monotonic()
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def look(self, timeout: float) -> list[Line]:
        """See `KernelLog`."""
        self._poll.poll(timeout * 1000)
        lines: list[Line] = []
        while len(lines) < MOST_LINES:
            try:
                record = self._read(self._fd, _RECORD)
            except BlockingIOError:
                break
            except OSError as e:
                if e.errno != errno.EPIPE:
                    raise
                self.overruns += 1  # the next read goes on with the oldest record that is still there
                continue
            line = self._line(record)
            if line is not None:
                lines.append(line)
        return lines

    def close(self) -> None:
        """See `KernelLog`."""
        os.close(self._fd)

    def _line(self, record: bytes) -> Line | None:
        m = _HEAD.match(record)
        if m is None:
            return None
        number, printed = int(m["seq"]), int(m["us"]) / 1e6
        first = self._last < 0
        if 0 <= self._last < number - 1:
            self.lost += number - 1 - self._last
        self._last = number
        if first and printed < self._opened - max(_APART, self._opened * _DRIFT):
            return None  # the last message from before; its newline had not come yet, so it passes for new
        if not self._programs and int(m["level"]) >> 3 >= _FACILITY_USER:
            return None
        text = m["text"][:LONGEST_LINE]
        return Line(text, self._time(printed), f"kmsg:{self._boot}:{number}")

    def _time(self, printed: float) -> datetime:
        """The kernel stamps with a clock of its own, which starts and drifts as it likes.

        How far ours is ahead of it is known best from the line that was read soonest after it was printed.
        """
        ahead = time.monotonic() - printed
        self._ahead = ahead if self._ahead is None else min(self._ahead, ahead)
        return datetime.now(UTC) - timedelta(seconds=ahead - self._ahead)


class LogFile:
    """A file that something else writes kernel messages into, from now on. It may be rotated or truncated."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.overruns = 0
        self._follower = Follower([str(path)], fresh=True)
        self._rest: dict[str, bytes] = {}
        self._lines: dict[str, int] = {}
        """Lines of each file after those that the follower counts."""
        self._waiting: list[Line] = []
        self._read()  # now is when it is opened, not when it is first looked at

    def look(self, timeout: float) -> list[Line]:
        """See `KernelLog`."""
        deadline = time.monotonic() + timeout
        while not self._waiting:
            self._read()
            left = deadline - time.monotonic()
            if self._waiting or left <= 0:
                break
            time.sleep(min(FILE_EVERY, left))
        lines, self._waiting = self._waiting[:MOST_LINES], self._waiting[MOST_LINES:]
        return lines

    def close(self) -> None:
        """See `KernelLog`."""

    def _read(self) -> None:
        look = self._follower.look(time.monotonic())
        if look.troubles:
            path, why = next(iter(look.troubles.items()))
            raise OSError(errno.EACCES, why, path)
        for chunk in look.chunks:
            if chunk.ends:
                self._rest.pop(chunk.file_id, None)
                self._lines.pop(chunk.file_id, None)
                continue
            if chunk.starts:
                self._lines[chunk.file_id] = -chunk.data.count(b"\n", 0, chunk.resume_at - chunk.offset)
            if chunk.historic:
                self._lines[chunk.file_id] += chunk.data.count(b"\n")
                continue
            rest = self._rest.pop(chunk.file_id, b"")
            offset = chunk.offset - len(rest)
            *whole, rest = (rest + chunk.data).split(b"\n")
            self._rest[chunk.file_id] = rest[:LONGEST_LINE]
            now = datetime.now(UTC)
            for number, text in enumerate(whole, self._lines[chunk.file_id] + 1):
                where = f"{chunk.path}:{chunk.file_id}:{offset}"
                line = _PADDED_DAY.sub(rb"\1 \2", text[:LONGEST_LINE])
                known = None if chunk.lines_before is None else chunk.lines_before + number
                self._waiting.append(Line(line, now, where, stamped=True, number=known))
                offset += len(text) + 1
            self._lines[chunk.file_id] += len(whole)
