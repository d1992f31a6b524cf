"""The process that runs one attempt of a local job: starts its tasks, waits for them, and records the end.

Started as `python -m relight.scheduler.local_supervisor STATE_DIR TOKEN`. It detaches itself at once: it
outlives whoever started it, and nobody has to wait for it.

The job's script runs once for each task, as under `srun SCRIPT`. A task that fails takes the others down
after a short grace, as `srun --kill-on-bad-exit` does.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from relight.scheduler import local_store
from relight.scheduler.local_output import output_files
from relight.scheduler.local_processes import NODE, TOKEN, identity, signal_members, user_name
from relight.scheduler.local_store import Store

POLL_SECONDS = 0.1
BAD_EXIT_GRACE = 1.0
"""After a task failed, the others have so many seconds to say what they have to say."""
KILL_WAIT = 5.0
"""Seconds from SIGTERM to SIGKILL (Slurm: `KillWait`, 30 s)."""


@dataclass
class Tasks:
    """The tasks of the attempt."""

    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    worst: int = 0
    """Return code of the task that ended worst by itself; negative: by this signal."""
    failed_at: float | None = None
    ending_since: float | None = None
    """When they were told to end; how they end after that says nothing about the job."""
    killed: bool = False

    def look(self) -> None:
        """Takes in which tasks have ended."""
        for task in self.running:
            if task.poll() and self.ending_since is None:
                self.failed_at = self.failed_at or time.monotonic()
                self.worst = max(self.worst, task.returncode, key=_status)
        self.running = [task for task in self.running if task.returncode is None]


def _status(code: int) -> int:
    """A return code as shells and `srun` count it: signals above 128."""
    return code if code >= 0 else 128 - code


class Supervisor:
    """Runs one attempt that this process has claimed."""

    def __init__(self, store: Store, attempt: sqlite3.Row, job: sqlite3.Row) -> None:
        self._store = store
        self._token: str = attempt["token"]
        self._job_id: int = attempt["job_id"]
        self._restart_count: int = attempt["restart_count"]
        self._nodes: list[str] = json.loads(attempt["nodes"])
        self._request: dict[str, Any] = json.loads(job["request"])
        self._inherited: dict[str, str] = json.loads(job["environment"])
        self._tasks = Tasks()

    def run(self) -> None:
        """From the first task to the record of the end."""
        trouble = ""
        try:
            self._start()
            self._wait()
        except Exception as e:
            traceback.print_exc()
            trouble = f"the job cannot be run: {e}"
        while signal_members(self._token, signal.SIGKILL):  # all of them, or what the tasks left behind
            time.sleep(POLL_SECONDS / 2)
        for task in self._tasks.running:
            task.wait()
        self._record_end(trouble)

    def _start(self) -> None:
        out, err = output_files(self._request, self._job_id, user_name(), self._nodes)
        if not self._request["append_output"]:
            for name in {out, err}:
                Path(name).write_bytes(b"")
        with Path(out).open("ab") as stdout, Path(err).open("ab") as stderr:  # several tasks write: append
            self._start_tasks(stdout, stderr)

    def _start_tasks(self, stdout: BinaryIO, stderr: BinaryIO) -> None:
        per_node = self._request["tasks_per_node"]
        for node_id, node in enumerate(self._nodes):
            group = 0  # the first task of a node founds the node's process group
            for local_id in range(per_node):
                task = subprocess.Popen(
                    [str(self._store.script(self._job_id))],
                    cwd=self._request["work_dir"],
                    env=self._environment(node, node_id, local_id),
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    process_group=group,
                )
                group = group or task.pid
                self._tasks.running.append(task)

    def _environment(self, node: str, node_id: int, local_id: int) -> dict[str, str]:
        per_node, nodes = self._request["tasks_per_node"], ",".join(self._nodes)
        env = {
            **self._inherited,
            **self._request["environment"],
            "SLURM_JOB_ID": str(self._job_id),
            "SLURM_JOB_NAME": self._request["name"],
            "SLURM_SUBMIT_DIR": self._request["work_dir"],
            "SLURM_PROCID": str(node_id * per_node + local_id),
            "SLURM_LOCALID": str(local_id),
            "SLURM_NODEID": str(node_id),
            "SLURM_NTASKS": str(per_node * len(self._nodes)),
            "SLURM_NTASKS_PER_NODE": str(per_node),
            "SLURM_NNODES": str(len(self._nodes)),
            "SLURM_JOB_NODELIST": nodes,
            NODE: node,
            TOKEN: self._token,
        }
        if self._restart_count:
            env["SLURM_RESTART_COUNT"] = str(self._restart_count)
        return env

    def _wait(self) -> None:
        """Until no task is left. Ends them when somebody asks, at the time limit, or after a failure."""
        tasks = self._tasks
        while True:
            asked = self._asked_to_end()  # first: what happens after that is no failure of the job
            if asked:
                self._end_tasks()
            tasks.look()
            if not tasks.running:
                return
            now = time.monotonic()
            if tasks.failed_at is not None and now > tasks.failed_at + BAD_EXIT_GRACE:
                self._end_tasks()
            time.sleep(POLL_SECONDS)

    def _end_tasks(self) -> None:
        """SIGTERM, and SIGKILL some time later."""
        tasks, now = self._tasks, time.monotonic()
        if tasks.ending_since is None:
            tasks.ending_since = now
            signal_members(self._token, signal.SIGTERM)
        elif now > tasks.ending_since + KILL_WAIT:
            signal_members(self._token, signal.SIGKILL)

    def _asked_to_end(self) -> bool:
        """Somebody asked, or the time is up (which this records)."""
        with self._store.reading() as db:
            attempt = local_store.find_attempt(db, self._token)
        if attempt is None:
            raise RuntimeError("its record is gone")
        if attempt["stopping"] is not None:
            return True
        limit = self._request["time_limit_minutes"]
        if limit is None or time.time() < attempt["started"] + limit * 60:
            return False
        with self._store.writing() as db:
            if local_store.is_current(db, attempt):
                local_store.end_job(db, self._job_id, "TIMEOUT", reason="TimeLimit")
        return True

    def _record_end(self, trouble: str) -> None:
        worst = self._tasks.worst
        with self._store.writing() as db:
            attempt = local_store.find_attempt(db, self._token)
            if attempt is not None and local_store.is_current(db, attempt):
                failed = bool(trouble or worst)
                local_store.end_job(
                    db,
                    self._job_id,
                    "FAILED" if failed else "COMPLETED",
                    reason=trouble or ("NonZeroExitCode" if failed else ""),
                    exit_code=1 if trouble else max(worst, 0),
                    exit_signal=-worst if worst < 0 else None,
                )
            local_store.close_attempt(db, self._token)


def main() -> int:
    """Detaches, claims the attempt, and runs it."""
    state_dir, token = sys.argv[1:]
    if os.fork():
        os._exit(0)
    me = identity(os.getpid())
    assert me is not None
    store = Store(Path(state_dir))
    with store.writing() as db:
        if not local_store.claim_attempt(db, token, me):
            return 0
        attempt = local_store.find_attempt(db, token)
        assert attempt is not None
        job = local_store.find_job(db, str(attempt["job_id"]))
        assert job is not None
    Supervisor(store, attempt, job).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
