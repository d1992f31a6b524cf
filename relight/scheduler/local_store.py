"""The local scheduler's records: jobs, attempts and nodes in SQLite, and how their states change.

Standard library only, since the supervisor starts for every attempt. No process is touched here.

A job's row is what it is now; an attempt's row is open from its start until no process of it is left. A
requeued job is pending at once, while its old attempt may still be open: its nodes stay taken, and the job
cannot start before they are free.
"""

import fcntl
import json
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    request TEXT NOT NULL,            -- a SubmitRequest as JSON, as submitted
    environment TEXT NOT NULL,        -- JSON: what the job inherits from its submitter
    comment TEXT NOT NULL,
    excluded TEXT NOT NULL,           -- JSON: names of nodes
    state TEXT NOT NULL,
    reason TEXT NOT NULL DEFAULT '',
    held INTEGER NOT NULL DEFAULT 0,
    restart_count INTEGER NOT NULL DEFAULT 0,
    submit_time REAL NOT NULL,        -- this and all times: seconds since the epoch
    eligible_time REAL NOT NULL,
    start_time REAL,
    end_time REAL,
    nodes TEXT NOT NULL DEFAULT '[]', -- JSON
    exit_code INTEGER,
    exit_signal INTEGER
);
CREATE TABLE IF NOT EXISTS attempts (
    token TEXT PRIMARY KEY,
    job_id INTEGER NOT NULL,
    restart_count INTEGER NOT NULL,
    nodes TEXT NOT NULL,              -- JSON
    started REAL NOT NULL,
    supervisor TEXT,                  -- identity of the process that claimed it
    stopping REAL,                    -- somebody asked for its end
    ended REAL                        -- no process is left
);
CREATE INDEX IF NOT EXISTS open_attempts ON attempts (job_id) WHERE ended IS NULL;
CREATE TABLE IF NOT EXISTS nodes (
    name TEXT PRIMARY KEY,
    down INTEGER NOT NULL DEFAULT 0,
    drained INTEGER NOT NULL DEFAULT 0,
    reason TEXT NOT NULL DEFAULT '',
    reason_user TEXT NOT NULL DEFAULT ''
);
"""

CLAIM_SECONDS = 30.0
"""An attempt that no supervisor claimed within this time is given to another supervisor."""


class Store:
    """Access to the records in a state directory."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._file = state_dir / "local.db"

    def create(self, nodes: int) -> None:
        """Makes the directory, the tables, and at least so many nodes; what is there already stays."""
        self.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.state_dir / "create.lock").open("w") as lock:  # two cannot switch to WAL at once
            fcntl.flock(lock, fcntl.LOCK_EX)
            with closing(self._connect()) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.executescript(SCHEMA)
                names = [(f"node{n:02d}",) for n in range(1, nodes + 1)]
                db.executemany("INSERT OR IGNORE INTO nodes (name) VALUES (?)", names)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view."""
        yield from self._transaction("BEGIN")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The only writer, from the first statement on. An exception takes everything back."""
        yield from self._transaction("BEGIN IMMEDIATE")

    def script(self, job_id: int) -> Path:
        """Where the job's script lies."""
        return self.state_dir / "scripts" / f"{job_id}.sh"

    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with closing(self._connect()) as db:
            db.execute(begin)
            try:
                yield db
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._file, timeout=30, isolation_level=None)
        db.row_factory = sqlite3.Row
        return db


# ---- jobs ------------------------------------------------------------------------------------------------


def find_job(db: sqlite3.Connection, job_id: str) -> sqlite3.Row | None:
    """The job's row; None if there is none, or if the id is none of ours."""
    if not (job_id.isascii() and job_id.isdigit() and len(job_id) <= 18):
        return None
    row: sqlite3.Row | None = db.execute("SELECT * FROM jobs WHERE id = ?", (int(job_id),)).fetchone()
    return row


def add_job(
    db: sqlite3.Connection,
    *,
    request: str,
    environment: dict[str, str],
    comment: str,
    excluded: Sequence[str],
    hold: bool,
) -> int:
    """Puts a new job in the queue and returns its id."""
    now = time.time()
    job_id = db.execute(
        "INSERT INTO jobs (request, environment, comment, excluded, state, reason, held, submit_time,"
        " eligible_time) VALUES (?, ?, ?, ?, 'PENDING', ?, ?, ?, ?)",
        (
            request,
            json.dumps(environment),
            comment,
            json.dumps(list(excluded)),
            "JobHeldUser" if hold else "",
            hold,
            now,
            now,
        ),
    ).lastrowid
    assert job_id is not None
    return job_id


def update_job(db: sqlite3.Connection, job_id: int, **columns: Any) -> None:
    """Sets columns of a job. Their names come from code, never from outside."""
    sets = ", ".join(f"{name} = ?" for name in columns)
    db.execute(f"UPDATE jobs SET {sets} WHERE id = ?", (*columns.values(), job_id))  # noqa: S608


def requeue_job(db: sqlite3.Connection, job_id: int, *, reason: str, hold: bool, delay: float = 0) -> None:
    """Makes the job pending again, as a next attempt; the attempt that runs is asked to end.

    Args:
        db: a writing transaction.
        job_id: the job.
        reason: why it is pending.
        hold: keep it from starting until it is released.
        delay: seconds before it may start by itself.
    """
    stop_attempt(db, job_id)
    now = time.time()
    db.execute(
        "UPDATE jobs SET state = 'PENDING', reason = ?, held = ?, restart_count = restart_count + 1,"
        " submit_time = ?, eligible_time = ?, start_time = NULL, end_time = NULL, nodes = '[]',"
        " exit_code = NULL, exit_signal = NULL WHERE id = ?",
        (reason, hold, now, now + delay, job_id),
    )


def end_job(
    db: sqlite3.Connection,
    job_id: int,
    state: str,
    *,
    reason: str = "",
    exit_code: int | None = None,
    exit_signal: int | None = None,
) -> None:
    """Records the end of a job; processes that still run are asked to end."""
    stop_attempt(db, job_id)
    update_job(
        db,
        job_id,
        state=state,
        reason=reason,
        held=0,
        end_time=time.time(),
        exit_code=exit_code,
        exit_signal=exit_signal,
    )


# ---- attempts --------------------------------------------------------------------------------------------


def open_attempts(db: sqlite3.Connection) -> list[sqlite3.Row]:
    """The attempts that may have processes."""
    return db.execute("SELECT * FROM attempts WHERE ended IS NULL").fetchall()


def find_attempt(db: sqlite3.Connection, token: str) -> sqlite3.Row | None:
    """The attempt's row."""
    row: sqlite3.Row | None = db.execute("SELECT * FROM attempts WHERE token = ?", (token,)).fetchone()
    return row


def claim_attempt(db: sqlite3.Connection, token: str, supervisor: str) -> bool:
    """Makes this supervisor the attempt's only one; false if it has one, or is not wanted any more."""
    claimed = db.execute(
        "UPDATE attempts SET supervisor = ? WHERE token = ? AND supervisor IS NULL AND ended IS NULL",
        (supervisor, token),
    )
    return claimed.rowcount == 1


def stop_attempt(db: sqlite3.Connection, job_id: int) -> None:
    """Asks the supervisor to end the job's attempt; one that nobody claimed yet has ended by this."""
    now = time.time()
    db.execute(
        "UPDATE attempts SET stopping = COALESCE(stopping, ?),"
        " ended = CASE WHEN supervisor IS NULL THEN ? END WHERE job_id = ? AND ended IS NULL",
        (now, now, job_id),
    )


def close_attempt(db: sqlite3.Connection, token: str) -> None:
    """Records that no process of the attempt is left: its nodes are free."""
    db.execute("UPDATE attempts SET ended = ? WHERE token = ?", (time.time(), token))


def lose_attempt(db: sqlite3.Connection, token: str, *, closed: bool) -> None:
    """Records that an attempt's supervisor is gone without a word: nobody knows how the job ended.

    Args:
        db: a writing transaction.
        token: the attempt.
        closed: no process of it is left either.
    """
    attempt = find_attempt(db, token)
    if attempt is None or attempt["ended"] is not None:  # it recorded its end just before it went
        return
    if is_current(db, attempt):
        end_job(db, attempt["job_id"], "NODE_FAIL", reason="the supervisor process is gone")
    if closed:
        close_attempt(db, token)


def is_current(db: sqlite3.Connection, attempt: sqlite3.Row) -> bool:
    """The job still runs, and in this attempt."""
    job = db.execute("SELECT state, restart_count FROM jobs WHERE id = ?", (attempt["job_id"],)).fetchone()
    return bool(job["state"] == "RUNNING" and job["restart_count"] == attempt["restart_count"])


# ---- scheduling ------------------------------------------------------------------------------------------


def startable(db: sqlite3.Connection) -> list[sqlite3.Row]:
    """The jobs that only wait for nodes, in the order of their ids."""
    return db.execute(
        "SELECT * FROM jobs WHERE state = 'PENDING' AND NOT held AND eligible_time <= ? AND id NOT IN"
        " (SELECT job_id FROM attempts WHERE ended IS NULL) ORDER BY id",
        (time.time(),),
    ).fetchall()


def start_jobs(db: sqlite3.Connection) -> list[str]:
    """Gives free nodes to the jobs that can start, and returns the tokens of their attempts."""
    taken = {name for attempt in open_attempts(db) for name in json.loads(attempt["nodes"])}
    usable = db.execute("SELECT name FROM nodes WHERE NOT down AND NOT drained ORDER BY name").fetchall()
    free = [row["name"] for row in usable if row["name"] not in taken]
    tokens = []
    for job in startable(db):
        excluded = json.loads(job["excluded"])
        wanted = json.loads(job["request"])["nodes"]
        nodes = [name for name in free if name not in excluded][:wanted]
        if len(nodes) < wanted:
            if job["reason"] != "Resources":
                update_job(db, job["id"], reason="Resources")
            continue
        free = [name for name in free if name not in nodes]
        tokens.append(_start(db, job, nodes))
    return tokens


def renew_unclaimed(db: sqlite3.Connection) -> list[str]:
    """Replaces attempts whose supervisor never came, and returns the tokens of the new ones.

    A supervisor that comes late after all finds its token gone, and runs nothing.
    """
    late = db.execute(
        "SELECT token FROM attempts WHERE ended IS NULL AND supervisor IS NULL AND started < ?",
        (time.time() - CLAIM_SECONDS,),
    ).fetchall()
    tokens = []
    for row in late:
        tokens.append(uuid.uuid4().hex)
        db.execute(
            "UPDATE attempts SET token = ?, started = ? WHERE token = ?",
            (tokens[-1], time.time(), row["token"]),
        )
    return tokens


def _start(db: sqlite3.Connection, job: sqlite3.Row, nodes: list[str]) -> str:
    token, now = uuid.uuid4().hex, time.time()
    db.execute(
        "INSERT INTO attempts (token, job_id, restart_count, nodes, started) VALUES (?, ?, ?, ?, ?)",
        (token, job["id"], job["restart_count"], json.dumps(nodes), now),
    )
    update_job(db, job["id"], state="RUNNING", reason="", start_time=now, nodes=json.dumps(nodes))
    return token
