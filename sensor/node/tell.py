"""The process that tells the monitors: `python -m sensor.node.tell NODE STATE_DIR`. Ends when all is told."""

import asyncio
import fcntl
import os
import signal
import sys
from functools import partial
from pathlib import Path

import structlog

from relight.config import ConfigError, load_settings
from relight.encryption import EncryptionError
from relight.scheduler.opening import open_scheduler
from relight.scheduler.port import SchedulerError
from relight.temporal import connect
from sensor.node.courier import Courier
from sensor.node.facts import Spool
from sensor.store import Store, StoreError

log = structlog.get_logger("sensor.node.courier")


async def tell(node: str, state: Path) -> None:
    """Tells what waits.

    Raises:
        ConfigError, EncryptionError, SchedulerError, StoreError: these settings cannot do it, or not here.
    """
    settings = load_settings()
    stop = asyncio.Event()
    for sig in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(sig, stop.set)
    store = Store(state / "outbox.sqlite3")
    try:
        for monitor in store.load():
            store.forget(monitor)  # who was told what matters only while facts are new; monitors know the ids
        connecting = partial(connect, key_file=settings.encryption.key_file)
        spool = Spool(state / "spool")
        courier = Courier(
            node,
            settings.cluster,
            spool,
            store,
            open_scheduler(settings),
            connecting,
            guard=settings.guard,
        )
        await courier.run(stop)
    finally:
        store.close()


def main() -> int:
    """Entry point. Returns the exit code: 0 when all is told."""
    node, state = sys.argv[1], Path(sys.argv[2])
    lock = os.open(state / "tell.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # of a node sensor that was killed: it goes on telling what is here
        return 0
    try:
        asyncio.run(tell(node, state))
    except (ConfigError, EncryptionError, SchedulerError, StoreError) as e:
        log.error("the node sensor cannot tell what it saw", error=str(e))
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # as in `relight.cli.main`: Temporal's client may abort an interpreter that shuts down
