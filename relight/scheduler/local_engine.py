"""Keeps the local scheduler's records true to its processes, and starts what can start.

There is no daemon: every client calls `settle` before it reads and after it changed something.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import relight
from relight.scheduler import local_store
from relight.scheduler.local_processes import is_running, signal_members
from relight.scheduler.local_store import CLAIM_SECONDS, Store


def settle(store: Store) -> None:
    """Records the end of attempts whose supervisor is gone, and starts the jobs that can start."""
    with store.reading() as db:
        attempts = local_store.open_attempts(db)
        waiting = bool(local_store.startable(db))
    unclaimed = any(a["supervisor"] is None and time.time() > a["started"] + CLAIM_SECONDS for a in attempts)
    lost = [a for a in attempts if a["supervisor"] is not None and not is_running(a["supervisor"])]
    if not (lost or waiting or unclaimed):
        return
    # Its nodes are free once nothing is left to kill: at the next call, if it does not die at once.
    gone = [a["token"] for a in lost if signal_members(a["token"], signal.SIGKILL) == 0]
    with store.writing() as db:
        for attempt in lost:
            local_store.lose_attempt(db, attempt["token"], closed=attempt["token"] in gone)
        tokens = local_store.renew_unclaimed(db) + local_store.start_jobs(db)
    for token in tokens:
        _launch(store, token)


def _launch(store: Store, token: str) -> None:
    """Starts the supervisor of an attempt; it detaches itself.

    Should it not come up, its log says why, the job's reason says so, and `settle` tries again later.
    """
    env = dict(os.environ)
    source = str(Path(relight.__file__).parents[1])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [source, env.get("PYTHONPATH")]))
    with (store.state_dir / "supervisor.log").open("ab") as log:
        done = subprocess.run(
            [sys.executable, "-m", "relight.scheduler.local_supervisor", str(store.state_dir), token],
            env=env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=False,
        )
    if done.returncode:
        with store.writing() as db:
            attempt = local_store.find_attempt(db, token)
            if attempt is not None:
                reason = f"its supervisor did not start, see {log.name}"
                local_store.update_job(db, attempt["job_id"], reason=reason)
