"""The `local` scheduler: real processes on this machine behave like a small Slurm cluster.

For the demo, for laptops and for tests. Simulated nodes `node01`, `node02`, ... each run a process group of
the job; a detached supervisor process runs each attempt; SQLite keeps the records. Any number of clients, in
any number of processes, use the same state directory, and may come and go.

What differs from Slurm: whole nodes only, one partition, one user, `#SBATCH` lines are not read, a job
inherits only `INHERITED` from its submitter's environment, and ended jobs are never forgotten.
"""

import asyncio
import json
import os
import re
import signal
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from relight import __version__
from relight.contracts import JobInfo, JobState, NodeInfo
from relight.scheduler import local_store
from relight.scheduler.local_engine import settle
from relight.scheduler.local_output import output_files
from relight.scheduler.local_processes import signal_members, user_name
from relight.scheduler.local_store import Store
from relight.scheduler.port import (
    InvalidRequest,
    NoSuchJob,
    NoSuchName,
    NoSuchNode,
    NotPermitted,
    SchedulerUnreachable,
    SchedulerVersion,
    SubmitRequest,
)

INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TMPDIR")
"""What a job gets of its submitter's environment: enough to run programs, and no secrets on disk."""

PARTITION = "local"
REQUEUE_DELAY = timedelta(seconds=30)
"""So long a job waits that was requeued because a node failed (Slurm: about two minutes)."""

_T = TypeVar("_T")
_Db = sqlite3.Connection


class LocalScheduler:
    """The port `Scheduler` on this machine's own processes."""

    def __init__(
        self,
        state_dir: Path,
        nodes: int = 4,
        cluster: str = "local",
        requeue_delay: timedelta = REQUEUE_DELAY,
    ) -> None:
        """Opens the state directory, and makes it at the first time.

        Args:
            state_dir: where jobs and their records live.
            nodes: how many simulated nodes there are; a directory made with more keeps them.
            cluster: name of the cluster.
            requeue_delay: how long a job waits after a node failure requeued it.

        Raises:
            SchedulerUnreachable: the directory cannot be used.
        """
        self._store = Store(state_dir.absolute())
        self._cluster = cluster
        self._requeue_delay = requeue_delay
        try:
            self._store.create(nodes)
        except (OSError, sqlite3.Error) as e:
            raise SchedulerUnreachable(
                f"the local scheduler's directory {state_dir} cannot be used: {e}"
            ) from e

    # ---- reading -----------------------------------------------------------------------------------------

    async def version(self) -> SchedulerVersion:
        """See the port."""
        await self._read(lambda db: db.execute("SELECT 1").fetchone())
        return SchedulerVersion(name="local", version=__version__, cluster=self._cluster)

    async def jobs(self, job_ids: Sequence[str]) -> Mapping[str, JobInfo]:
        """See the port."""

        def read(db: _Db) -> dict[str, JobInfo]:
            rows = ((job_id, local_store.find_job(db, job_id)) for job_id in job_ids)
            return {job_id: _job_info(db, row) for job_id, row in rows if row is not None}

        return await self._read(read)

    async def job(self, job_id: str) -> JobInfo:
        """See the port."""
        return await self._read(lambda db: _job_info(db, _find(db, job_id)))

    async def finished_job(self, job_id: str) -> JobInfo:
        """See the port; a job is never forgotten here."""
        return await self.job(job_id)

    async def nodes(self, names: Sequence[str] = ()) -> Mapping[str, NodeInfo]:
        """See the port."""

        def read(db: _Db) -> dict[str, NodeInfo]:
            rows = db.execute("SELECT * FROM nodes ORDER BY name").fetchall()
            attempts = local_store.open_attempts(db)
            return {r["name"]: _node_info(r, attempts) for r in rows if not names or r["name"] in names}

        return await self._read(read)

    async def running_since(self) -> datetime | None:
        """See the port. There is no process that could forget anything: all is in the database."""
        return None

    async def partition_size(self, partition: str) -> int | None:
        """See the port. There is one partition, of all nodes."""
        return len(await self.nodes()) if partition == PARTITION else None

    async def jobs_on(self, node: str) -> Sequence[JobInfo]:
        """See the port."""

        def read(db: _Db) -> list[JobInfo]:
            _check_nodes(db, (node,))
            jobs = (_job_info(db, row) for row in db.execute("SELECT * FROM jobs ORDER BY id").fetchall())
            return [info for info in jobs if node in info.nodes]

        return await self._read(read)

    async def batch_script(self, job_id: str) -> str:
        """See the port."""
        return (await self.submit_template(job_id)).script

    async def submit_template(self, job_id: str) -> SubmitRequest:
        """See the port."""

        def read(db: _Db) -> SubmitRequest:
            row = _find(db, job_id)
            request = SubmitRequest.model_validate_json(row["request"])
            excluded = tuple(json.loads(row["excluded"]))
            return request.model_copy(update={"comment": row["comment"], "excluded_nodes": excluded})

        return await self._read(read)

    async def find_by_comment(self, text: str) -> Sequence[JobInfo]:
        """See the port."""

        def read(db: _Db) -> list[JobInfo]:
            rows = db.execute("SELECT * FROM jobs WHERE instr(comment, ?) ORDER BY id", (text,)).fetchall()
            return [_job_info(db, row) for row in rows]

        return await self._read(read)

    async def open_jobs_of(self, user: str) -> Sequence[JobInfo]:
        """See the port."""

        def read(db: _Db) -> list[JobInfo]:
            jobs = (_job_info(db, row) for row in db.execute("SELECT * FROM jobs ORDER BY id").fetchall())
            return [info for info in jobs if info.user == user and not info.state.is_over]

        return await self._read(read)

    # ---- jobs --------------------------------------------------------------------------------------------

    async def submit(self, request: SubmitRequest) -> str:
        """See the port."""
        if request.user not in ("", user_name()):
            raise NotPermitted(f"the local scheduler runs jobs of {user_name()} only, not of {request.user}")
        if not request.script.startswith("#!"):
            raise InvalidRequest("the script does not begin with #! and the path of an interpreter")
        if min(request.nodes, request.tasks_per_node) < 1:
            raise InvalidRequest("a job needs at least one node and one task for each node")
        request = request.model_copy(update={"work_dir": str(Path(request.work_dir or ".").absolute())})
        environment = {name: os.environ[name] for name in INHERITED if name in os.environ}

        def write(db: _Db) -> str:
            _check_nodes(db, request.excluded_nodes)
            there = db.execute("SELECT count(*) FROM nodes").fetchone()[0]
            if request.nodes > there:
                raise InvalidRequest(f"{request.nodes} nodes are asked for, and there are {there}")
            job_id = local_store.add_job(
                db,
                request=request.model_dump_json(),
                environment=environment,
                comment=request.comment,
                excluded=request.excluded_nodes,
                hold=request.hold,
            )
            script = self._store.script(job_id)
            script.parent.mkdir(exist_ok=True)
            script.write_text(request.script, encoding="utf-8")
            script.chmod(0o700)
            return str(job_id)

        return await self._write(write)

    async def requeue_hold(self, job_id: str) -> None:
        """See the port."""

        def write(db: _Db) -> None:
            row = _find(db, job_id)
            if row["state"] == "PENDING":
                raise InvalidRequest(f"job {job_id} is pending already")
            if not json.loads(row["request"])["requeue"]:
                raise InvalidRequest(f"job {job_id} was submitted as not requeueable")
            local_store.requeue_job(db, row["id"], reason="job_requeued_in_held_state", hold=True)

        await self._write(write)

    async def exclude_nodes(self, job_id: str, nodes: Sequence[str]) -> None:
        """See the port.

        Raises:
            NoSuchNode: one of the nodes does not exist.
        """

        def write(db: _Db) -> None:
            row = _find_pending(db, job_id)
            _check_nodes(db, nodes)
            local_store.update_job(db, row["id"], excluded=json.dumps(list(nodes)))

        await self._write(write)

    async def set_comment(self, job_id: str, comment: str) -> None:
        """See the port."""

        def write(db: _Db) -> None:
            row = _find(db, job_id)
            if JobState(row["state"]).is_over:
                raise InvalidRequest(f"job {job_id} has ended: {row['state']}")
            local_store.update_job(db, row["id"], comment=comment)

        await self._write(write)

    async def hold(self, job_id: str) -> None:
        """See the port."""

        def write(db: _Db) -> None:
            row = _find_pending(db, job_id)
            if not row["held"]:
                local_store.update_job(db, row["id"], held=1, reason="JobHeldUser")

        await self._write(write)

    async def release(self, job_id: str) -> None:
        """See the port."""

        def write(db: _Db) -> None:
            row = _find_pending(db, job_id)
            now = datetime.now(UTC).timestamp()
            local_store.update_job(db, row["id"], held=0, reason="", eligible_time=now)

        await self._write(write)

    async def cancel(self, job_id: str) -> None:
        """See the port."""

        def write(db: _Db) -> None:
            row = _find(db, job_id)
            if not JobState(row["state"]).is_over:
                local_store.end_job(db, row["id"], "CANCELLED")

        await self._write(write)

    # ---- nodes -------------------------------------------------------------------------------------------

    async def drain_node(self, node: str, reason: str) -> None:
        """See the port."""
        if not reason:
            raise InvalidRequest("a drain needs a reason")
        await self._set_node(node, "drained = 1, reason = ?, reason_user = ?", reason, user_name())

    async def resume_node(self, node: str) -> None:
        """See the port."""
        await self._set_node(node, "drained = 0, reason = '', reason_user = ''")

    async def lose_node(self, node: str) -> None:
        """Simulates the death of a node: its processes are killed, and it is down.

        As slurmctld does, a job that ran there is requeued, with a delay, or ends as `NODE_FAIL` if it may
        not be requeued.

        Raises:
            NoSuchNode: no such node.
        """

        def write(db: _Db) -> list[str]:
            _check_nodes(db, [node])
            db.execute("UPDATE nodes SET down = 1 WHERE name = ?", (node,))
            hit = [a for a in local_store.open_attempts(db) if node in json.loads(a["nodes"])]
            for attempt in hit:
                if local_store.is_current(db, attempt):
                    self._fail_node(db, attempt["job_id"])
            return [attempt["token"] for attempt in hit]

        for token in await self._write(write):
            await asyncio.to_thread(signal_members, token, signal.SIGKILL, node)

    async def restore_node(self, node: str) -> None:
        """Brings a lost node back.

        Raises:
            NoSuchNode: no such node.
        """
        await self._set_node(node, "down = 0")

    def _fail_node(self, db: _Db, job_id: int) -> None:
        row = _find(db, str(job_id))
        if json.loads(row["request"])["requeue"]:
            delay = self._requeue_delay.total_seconds()
            local_store.requeue_job(db, job_id, reason="NodeFail", hold=False, delay=delay)
        else:
            local_store.end_job(db, job_id, "NODE_FAIL", reason="NodeFail")

    async def _set_node(self, node: str, sets: str, *values: str) -> None:
        def write(db: _Db) -> None:
            _check_nodes(db, [node])
            db.execute(f"UPDATE nodes SET {sets} WHERE name = ?", (*values, node))  # noqa: S608 - from above

        await self._write(write)

    # ---- access to the records ---------------------------------------------------------------------------

    async def _read(self, operation: Callable[[_Db], _T]) -> _T:
        def run() -> _T:
            settle(self._store)
            with self._store.reading() as db:
                return operation(db)

        return await self._in_thread(run)

    async def _write(self, operation: Callable[[_Db], _T]) -> _T:
        def run() -> _T:
            with self._store.writing() as db:
                result = operation(db)
            settle(self._store)
            return result

        return await self._in_thread(run)

    async def _in_thread(self, run: Callable[[], _T]) -> _T:
        try:
            return await asyncio.to_thread(run)
        except (OSError, sqlite3.Error) as e:
            raise SchedulerUnreachable(f"the local scheduler in {self._store.state_dir} failed: {e}") from e


_JOB_ID = re.compile(r"[0-9][0-9_+]*")
"""Ids of arrays and of heterogeneous jobs look like ids, although there are none here."""


def _find(db: _Db, job_id: str) -> sqlite3.Row:
    if not _JOB_ID.fullmatch(job_id):
        raise NoSuchName(f"{job_id[:80]!r} is no job id: those of the local scheduler are numbers")
    row = local_store.find_job(db, job_id)
    if row is None:
        raise NoSuchJob(f"the local scheduler knows no job {job_id!r}")
    return row


def _find_pending(db: _Db, job_id: str) -> sqlite3.Row:
    row = _find(db, job_id)
    if row["state"] != "PENDING":
        raise InvalidRequest(f"job {job_id} is not pending but {row['state']}")
    return row


def _check_nodes(db: _Db, names: Sequence[str]) -> None:
    there = {row["name"] for row in db.execute("SELECT name FROM nodes")}
    unknown = [name for name in names if name not in there]
    if unknown:
        raise NoSuchNode(f"the local scheduler has no node {', '.join(unknown)}; it has {len(there)} nodes")


def _job_info(db: _Db, row: sqlite3.Row) -> JobInfo:
    request = json.loads(row["request"])
    attempt = db.execute("SELECT * FROM attempts WHERE job_id = ? AND ended IS NULL", (row["id"],)).fetchone()
    completing = attempt is not None and not local_store.is_current(db, attempt)
    nodes = tuple(json.loads(attempt["nodes"] if completing else row["nodes"]))
    std_out, std_err = output_files(request, row["id"], user_name(), nodes)
    limit = request["time_limit_minutes"]
    return JobInfo(
        job_id=str(row["id"]),
        name=request["name"],
        user=user_name(),
        partition=PARTITION,
        state=JobState(row["state"]),
        flags=("COMPLETING",) if completing else (),
        reason=row["reason"],
        restart_count=row["restart_count"],
        submit_time=_utc(row["submit_time"]),
        start_time=_utc_or_none(row["start_time"]),
        end_time=_utc_or_none(row["end_time"]),
        eligible_time=_utc(row["eligible_time"]),
        time_limit=None if limit is None else timedelta(minutes=limit),
        nodes=nodes,
        excluded_nodes=tuple(json.loads(row["excluded"])),
        num_nodes=request["nodes"],
        num_tasks=request["nodes"] * request["tasks_per_node"],
        tasks_per_node=request["tasks_per_node"],
        held=bool(row["held"]),
        requeueable=request["requeue"],
        exit_code=row["exit_code"],
        exit_signal=row["exit_signal"],
        std_out=std_out,
        std_err=std_err,
        work_dir=request["work_dir"],
        comment=row["comment"],
    )


def _node_info(row: sqlite3.Row, attempts: Sequence[sqlite3.Row]) -> NodeInfo:
    users = [a for a in attempts if row["name"] in json.loads(a["nodes"])]
    conditions = {
        "DRAIN": row["drained"],
        "NOT_RESPONDING": row["down"],
        "COMPLETING": any(a["stopping"] is not None for a in users),
    }
    return NodeInfo(
        name=row["name"],
        state="DOWN" if row["down"] else "ALLOCATED" if users else "IDLE",
        flags=tuple(flag for flag, holds in conditions.items() if holds),
        reason=row["reason"] or ("Not responding" if row["down"] else ""),
        reason_user=row["reason_user"],
    )


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _utc_or_none(seconds: float | None) -> datetime | None:
    return None if seconds is None else _utc(seconds)
