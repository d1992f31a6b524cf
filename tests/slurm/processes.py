"""Ports and processes of the machine, read from /proc, for the test cluster."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Collection
from pathlib import Path

MARK = "SLURM_TEST_CLUSTER"
"""Environment variable that marks a daemon of a test cluster and what it forks: `ROOT:DAEMON`."""


def free_ports(count: int, low: int = 20000, high: int = 32000) -> int:
    """The first of `count` neighbouring free TCP ports, below the ephemeral range.

    The search begins at a place that depends on the process: clusters of parallel test runs rarely meet.

    Raises:
        OSError: there is no such block.
    """
    span = high - low - count
    start = (os.getpid() * 97 + time.monotonic_ns() // 1_000_000) % span
    for turn in range(span // count):
        base = low + (start + turn * count) % span
        with contextlib.ExitStack() as sockets:
            try:
                for port in range(base, base + count):
                    probe = sockets.enter_context(socket.socket())
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return base
    raise OSError(f"no {count} neighbouring free ports between {low} and {high}")


def accepts(port: int) -> bool:
    """Something listens on this port of 127.0.0.1."""
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    return False


def uts_namespace(pid: int) -> int | None:
    """The inode of the process's host name namespace; None when it is gone."""
    try:
        return Path(f"/proc/{pid}/ns/uts").stat().st_ino
    except OSError:
        return None


def open_uts_namespace(pid: int) -> int | None:
    """The same as an open file, which keeps the namespace and its inode; None when the process is gone."""
    try:
        return os.open(f"/proc/{pid}/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _parents() -> dict[int, int]:
    """Every process that has not ended, with its parent."""
    found = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names only
        stat = _read(f"/proc/{entry}/stat") if entry.isdigit() else b""
        fields = stat.rpartition(b")")[2].split()  # the command, in parentheses, may hold anything
        if fields and fields[0] != b"Z":
            found[int(entry)] = int(fields[1])
    return found


def _holds_socket_under(pid: int, sockets: set[str]) -> bool:
    """The process has one of these sockets open."""
    if not _read(f"/proc/{pid}/comm").startswith(b"slurmstepd"):
        return False
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names only
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{fd}") in sockets:  # noqa: PTH115 - the target is no path
                    return True
    return False


def descendants(mark: str, spool: Path, namespaces: Collection[int]) -> set[int]:
    """The processes of a daemon and all that it started, this process excepted.

    A process counts when it is in one of the host name namespaces, has the mark in its environment, holds a
    socket in the spool directory (newer slurmstepds wipe their environment), or descends from one that does.

    Args:
        mark: how the value of `MARK` begins.
        spool: the spool directory of a slurmd, or one that holds several.
        namespaces: inodes of host name namespaces.
    """
    needle = f"{MARK}={mark}".encode()
    sockets = {
        f"socket:[{fields[6]}]"
        for line in _read("/proc/net/unix").decode(errors="replace").splitlines()
        if len(fields := line.split(None, 7)) == 8 and fields[7].startswith(f"{spool}/")
    }
    parents = _parents()
    found = {
        pid
        for pid in parents
        if (namespaces and uts_namespace(pid) in namespaces)
        or needle in _read(f"/proc/{pid}/environ")
        or (sockets and _holds_socket_under(pid, sockets))
    }
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return found - {os.getpid()}


def kill_all(mark: str, spool: Path, namespaces: Collection[int], spare: Collection[int] = ()) -> None:
    """Ends, with SIGKILL, what `descendants` finds, again until nothing new turns up."""
    for _ in range(50):
        left = descendants(mark, spool, namespaces) - set(spare)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
