"""What the sensor must not forget, in one SQLite file: positions in logs, memories of jobs, unsent signals.

They are saved together in one transaction, so a signal is queued exactly when the bytes that caused it count
as read: after `kill -9` nothing is missed and nothing is reported twice. Loss of power may take the last
seconds (WAL, `synchronous=NORMAL`); those bytes are then read again, and signals carry the same ids.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from relight.contracts import TrainingJob
from sensor.follow import Position
from sensor.messages import Message

MAX_MESSAGES = 20_000
"""Signals that wait for Temporal at most."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS watches (monitor TEXT PRIMARY KEY, job TEXT NOT NULL, memory TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS files (
    monitor TEXT NOT NULL, file TEXT NOT NULL, position TEXT NOT NULL, PRIMARY KEY (monitor, file)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reported (
    monitor TEXT NOT NULL, key TEXT NOT NULL, PRIMARY KEY (monitor, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, monitor TEXT NOT NULL, signal TEXT NOT NULL, key TEXT,
    payload TEXT NOT NULL, droppable INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS outbox_monitor ON outbox (monitor, seq);
PRAGMA user_version = 1;
"""


class StoreError(Exception):
    """The state file cannot be used. The message names it and says what to do."""


class Watched:
    """A watch as it was saved."""

    def __init__(self, job: TrainingJob, memory: str, positions: tuple[Position, ...]) -> None:
        self.job = job
        self.memory = memory
        self.positions = positions


class Queued:
    """A signal that waits to be sent."""

    def __init__(self, seq: int, signal: str, payload: str) -> None:
        self.seq = seq
        self.signal = signal
        self.payload = payload


class Store:
    """The sensor's SQLite file. Safe to call from several threads; calls wait for each other."""

    def __init__(self, path: Path, max_messages: int = MAX_MESSAGES) -> None:
        """Opens or creates the file, readable by its owner only.

        Raises:
            StoreError: it cannot be opened, or is no database.
        """
        self.path = path
        self.max_messages = max_messages
        self.dropped = 0
        """Signals given up because the outbox was full, since the start."""
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._db = sqlite3.connect(path, check_same_thread=False, timeout=10, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
        except (OSError, sqlite3.Error) as e:
            raise StoreError(
                f"the sensor's state file {path} cannot be used: {e}. Move it away to start anew: "
                "jobs are then watched from now on."
            ) from e

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._db.close()

    def load(self) -> dict[str, Watched]:
        """All watches, by monitor id."""
        with self._lock:
            files: dict[str, list[Position]] = {}
            for monitor, position in self._db.execute("SELECT monitor, position FROM files"):
                files.setdefault(monitor, []).append(Position.model_validate_json(position))
            rows = self._db.execute("SELECT monitor, job, memory FROM watches").fetchall()
        return {
            monitor: Watched(TrainingJob.model_validate_json(job), memory, tuple(files.get(monitor, ())))
            for monitor, job, memory in rows
        }

    def save(
        self,
        monitor: str,
        job: TrainingJob,
        memory: str,
        positions: Iterable[Position] = (),
        gone: Iterable[str] = (),
        messages: Sequence[Message] = (),
    ) -> int:
        """Saves what one look at a job brought, all or nothing.

        Args:
            monitor: the workflow id of the job's monitor.
            job: the job as it is watched now.
            memory: what the watch knows, as JSON.
            positions: of the files that were read.
            gone: ids of the files that need not be followed any more.
            messages: what to tell the monitor; those told before are left out.

        Returns:
            How many messages were given up because the outbox is full.

        Raises:
            sqlite3.Error: the file could not be written; nothing was saved.
        """
        with self._lock, _transaction(self._db):
            self._db.execute(
                "INSERT OR REPLACE INTO watches VALUES (?, ?, ?)", (monitor, job.model_dump_json(), memory)
            )
            self._db.executemany(
                "DELETE FROM files WHERE monitor = ? AND file = ?", [(monitor, file) for file in gone]
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?)",
                [(monitor, p.file_id, p.model_dump_json()) for p in positions],
            )
            for message in messages:
                self._put(monitor, message)
            dropped = self._make_room() if messages else 0
        self.dropped += dropped
        return dropped

    def put(self, workflow_id: str, messages: Sequence[Message]) -> int:
        """Queues messages to a workflow that watches no job; those told before are left out.

        Returns:
            How many messages were given up because the outbox is full.

        Raises:
            sqlite3.Error: the file could not be written; nothing was queued.
        """
        with self._lock, _transaction(self._db):
            for message in messages:
                self._put(workflow_id, message)
            dropped = self._make_room()
        self.dropped += dropped
        return dropped

    def forget(self, monitor: str) -> None:
        """Forgets a job that is no longer watched; signals that still wait for it are kept."""
        with self._lock, _transaction(self._db):
            for table in ("watches", "files", "reported"):
                self._db.execute(f"DELETE FROM {table} WHERE monitor = ?", (monitor,))  # noqa: S608

    def waiting(self) -> list[str]:
        """The monitors that have signals waiting, the longest waiting first."""
        with self._lock:
            rows = self._db.execute("SELECT monitor FROM outbox GROUP BY monitor ORDER BY MIN(seq)")
            return [monitor for (monitor,) in rows]

    def depth(self) -> int:
        """How many signals wait."""
        with self._lock:
            (count,) = self._db.execute("SELECT COUNT(*) FROM outbox").fetchone()
            return int(count)

    def queued(self, monitor: str, limit: int = 100) -> list[Queued]:
        """The oldest signals that wait for a monitor, in order."""
        with self._lock:
            rows = self._db.execute(
                "SELECT seq, signal, payload FROM outbox WHERE monitor = ? ORDER BY seq LIMIT ?",
                (monitor, limit),
            )
            return [Queued(*row) for row in rows]

    def sent(self, seq: int) -> None:
        """A signal arrived, or never can."""
        with self._lock:
            self._db.execute("DELETE FROM outbox WHERE seq = ?", (seq,))

    def _put(self, monitor: str, message: Message) -> None:
        if message.key is not None:
            done = self._db.execute("INSERT OR IGNORE INTO reported VALUES (?, ?)", (monitor, message.key))
            if done.rowcount == 0:
                return
        self._db.execute(
            "INSERT INTO outbox (monitor, signal, key, payload, droppable) VALUES (?, ?, ?, ?, ?)",
            (monitor, message.signal, message.key, message.payload, message.droppable),
        )

    def _make_room(self) -> int:
        (count,) = self._db.execute("SELECT COUNT(*) FROM outbox").fetchone()
        excess = int(count) - self.max_messages
        if excess <= 0:
            return 0
        self._db.execute(
            "DELETE FROM outbox WHERE seq IN (SELECT seq FROM outbox ORDER BY droppable DESC, seq LIMIT ?)",
            (excess,),
        )
        return excess


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All or nothing; `isolation_level=None` leaves it to us to begin and end."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
