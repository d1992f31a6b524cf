"""One sensor to a state directory: who holds its lock, and waiting for it. The file system keeps the lock."""

import asyncio
import fcntl
import os
import socket
from pathlib import Path

import structlog

from relight.config import ConfigError
from sensor.waiting import wait_at_most

log = structlog.get_logger("sensor")

FILE = "sensor.lock"
"""In the state directory. What it says, a pid and a host, is for people; the lock is what counts."""


async def only_one(state_dir: Path, stop: asyncio.Event) -> int | None:
    """Waits until no other sensor uses this state directory.

    Returns:
        The lock: closing this file gives it back. None: `stop` was set meanwhile.

    Raises:
        ConfigError: the directory cannot be used.
    """
    path = state_dir / FILE
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise ConfigError(f"state_dir {state_dir} cannot be used: {e.strerror}") from e
    waiting = False
    while not stop.is_set():
        if _take(fd):
            _sign(fd)
            return fd
        if not waiting:
            log.warning(
                "another sensor uses this state directory: standing by",
                lock=str(path),
                holder=_holder(fd) or "not known",
                for_a_sensor_of_its_own="set state_dir",
            )
        waiting = True
        await wait_at_most(stop, 1)
    os.close(fd)
    return None


def held_by(state_dir: Path) -> str | None:
    """Who holds the lock of this directory now, in words, as far as it is known; None: nobody does."""
    try:
        fd = os.open(state_dir / FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return None if _take(fd) else _holder(fd) or "not known"
    finally:
        os.close(fd)


def _take(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(fd: int) -> None:
    """Says who holds it. A full disk must not keep the sensor from watching."""
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except OSError as e:
        log.warning("the lock does not tell who holds it", error=str(e))


def _holder(fd: int) -> str:
    """What the holder wrote: empty, if it has not yet."""
    said = os.pread(fd, 200, 0).decode("utf-8", "replace").strip()
    return said if said.isprintable() else ""
