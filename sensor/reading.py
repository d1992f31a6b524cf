"""From the bytes of a job's log files to what they say, with the time at which each thing was seen."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.findings import UNKNOWN_LINE, Event, Finding, PhaseLine, StepLine
from relight.diagnosis.reader import LogReader
from relight.diagnosis.steplines import StepFormat
from sensor.follow import Chunk, Follower, Position

log = structlog.get_logger("sensor.reading")


@dataclass(frozen=True)
class Seen:
    """Something that a log says."""

    event: Event
    at: datetime
    """When it happened, by the sensor's clock."""
    historic: bool
    """It was there when the watch began."""
    timed: bool
    """`at` compares with times of other files: somebody looked soon after it was written."""
    written: datetime | None = None
    """By when it was written, where nobody looked soon after that: when its file was last changed."""


@dataclass
class Reading:
    """What one look at a job's logs brought."""

    began: datetime
    """Since when: what was written before is read, unless `behind`."""
    seen: list[Seen] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    """Of the files that were read."""
    gone: list[str] = field(default_factory=list)
    """Ids of files that are followed no more."""
    troubles: dict[str, str] = field(default_factory=dict)
    """Files that are there and cannot be read, and why."""
    behind: bool = False
    """There is more to read at once: silence means nothing yet."""
    files: int = 0
    """Files that could be looked at."""
    bytes: int = 0
    grew: bool = False
    """Something was written to a file since it was last read; also what was there when the watch began."""


class JobLogs:
    """Reads the logs of one job. `look` blocks on the filesystem; one call at a time."""

    def __init__(
        self,
        catalogue: Catalogue,
        patterns: Sequence[str],
        positions: Iterable[Position] = (),
        *,
        fresh: bool,
        owner: int | None = None,
        max_line: int = 65536,
        steps: tuple[StepFormat, ...] | None = None,
    ) -> None:
        """Follows these files; the other arguments are `Follower`'s and `LogReader`'s."""
        self._catalogue = catalogue
        self._follower = Follower(patterns, positions, fresh=fresh, owner=owner)
        self._max_line = max_line
        self._steps = steps
        self._readers: dict[str, LogReader] = {}
        self._resume: dict[str, int] = {}
        self._nodes: tuple[str, ...] = ()
        self._tasks_per_node: int | None = None
        self._looked_at: float | None = None

    @property
    def patterns(self) -> tuple[str, ...]:
        """The files that are followed, as names and globs."""
        return self._follower.patterns

    def follow(self, patterns: Sequence[str]) -> None:
        """Changes which files are followed. What is followed already stays so while it exists."""
        self._follower.patterns = tuple(dict.fromkeys(patterns))

    def teach(self, steps: tuple[StepFormat, ...] | None) -> None:
        """Tells how steps look; None: as the built-in formats know them."""
        if steps != self._steps:
            self._steps = steps
            self._follower.restart_readers()

    def place(self, nodes: Sequence[str], tasks_per_node: int | None) -> None:
        """Tells where the ranks run now."""
        if (tuple(nodes), tasks_per_node) != (self._nodes, self._tasks_per_node):
            self._nodes, self._tasks_per_node = tuple(nodes), tasks_per_node
            self._follower.restart_readers()

    def look(self, monotonic: float, now: datetime) -> Reading:
        """Reads what is new, up to the bounds of one look."""
        before = set(self._follower.positions)
        look = self._follower.look(monotonic)
        reading = Reading(began=now, troubles=look.troubles, behind=look.behind, files=look.files)
        said: list[tuple[list[Event], Chunk]] = []
        read: set[str] = set()
        failed: set[str] = set()
        for chunk in look.chunks:
            if chunk.file_id in failed:
                continue
            reading.bytes += len(chunk.data)
            # What is read once more, by a new reader, is nothing new.
            reading.grew |= bool(chunk.data) and chunk.offset + len(chunk.data) > chunk.resume_at
            try:
                events = self._events(chunk)
            except Exception as e:
                log.exception("a log could not be understood; it is read again", path=chunk.path)
                reading.troubles[chunk.path] = f"could not be understood: {e}"
                failed.add(chunk.file_id)
                continue
            said.append((events, chunk))
            read.add(chunk.file_id)
        since = monotonic - self._looked_at if self._looked_at is not None else 0.0
        reading.seen = _timed(said, now, timedelta(seconds=since))
        self._looked_at = monotonic
        if failed:  # what was not taken in is read once more, by new readers
            self._readers.clear()
            self._follower.restart_readers()
        after = self._follower.positions
        if look.counted:
            read.add(look.counted)
        reading.positions = [after[file_id] for file_id in read if file_id in after]
        reading.gone = [file_id for file_id in before if file_id not in after]
        for file_id in reading.gone:
            self._readers.pop(file_id, None)
            self._resume.pop(file_id, None)
        return reading

    def _events(self, chunk: Chunk) -> list[Event]:
        reader = self._readers.get(chunk.file_id)
        if chunk.ends:
            self._readers.pop(chunk.file_id, None)
            events = reader.flush() if reader is not None else []
        else:
            position = self._follower.positions.get(chunk.file_id)
            if chunk.starts or reader is None:
                reader = self._new_reader(chunk, position.line if position is not None else 0)
            events = reader.feed(chunk.data)
            if position is not None:
                position.taken = max(position.taken, reader.consumed)
                position.line = max(position.line, reader.line)
        resume_at = self._resume.get(chunk.file_id, 0)
        return [_numbered(e, chunk.lines_before) for e in events if e.offset >= resume_at]

    def _new_reader(self, chunk: Chunk, line: int) -> LogReader:
        warm_up = chunk.data[: max(0, chunk.resume_at - chunk.offset)]
        reader = LogReader(
            self._catalogue,
            chunk.path,
            nodes=self._nodes,
            tasks_per_node=self._tasks_per_node,
            offset=chunk.offset,
            line=line - warm_up.count(b"\n"),
            max_line=self._max_line,
            steps=self._steps,
        )
        self._readers[chunk.file_id] = reader
        self._resume[chunk.file_id] = chunk.resume_at
        return reader


def _numbered(event: Event, before: int | None) -> Event:
    """With its line counted from the begin of the file, given the lines before those that were counted."""
    if before == 0:
        return event
    return event.model_copy(update={"line": UNKNOWN_LINE if before is None else before + event.line})


def _timed(said: list[tuple[list[Event], Chunk]], now: datetime, since: timedelta) -> list[Seen]:
    """Gives each event the time at which it happened, as well as the job's own clock can tell that.

    Only differences of that clock are trusted, never its zone. What was written since the last look, a moment
    ago, lies in order within that moment. What was written while nobody looked is spaced as its stamps are;
    its last step line counts as seen now, so that silence is counted from now.

    Args:
        said: what each chunk says.
        now: when this look began.
        since: the time since the look before.
    """
    newest = max(
        (stamp for events, chunk in said if not chunk.late for e in events if (stamp := _stamp(e))),
        default=None,
    )
    seen = []
    for events, chunk in said:
        last = next((e.logged_at for e in reversed(events) if isinstance(e, StepLine) and e.logged_at), None)
        written = min(now, chunk.written)
        for event in events:
            at, stamp = now, _stamp(event)
            if not chunk.late and stamp is not None and newest is not None:
                at = now - min(newest - stamp, since)
            elif chunk.late and isinstance(event, Finding):
                at = written
            elif chunk.late and isinstance(event, StepLine) and stamp is not None and last is not None:
                at = min(now, now - (last - stamp))
            when = written if chunk.late else None
            seen.append(Seen(event, at, chunk.historic, timed=not chunk.late, written=when))
    return seen


def _stamp(event: Event) -> datetime | None:
    return None if isinstance(event, PhaseLine) else event.logged_at
