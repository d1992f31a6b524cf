"""Which processes belong to an attempt, and signals to them, safe against reuse of process ids.

Linux only. A process that a supervisor started carries the attempt's secret token in its environment, and so
do all its children, whatever group, session or parent they have by now.
"""

import os
import pwd
import signal
from pathlib import Path

TOKEN = "RELIGHT_LOCAL_ATTEMPT"
"""Environment variable that marks every process of an attempt."""
NODE = "SLURMD_NODENAME"
"""Environment variable that tells on which simulated node a process runs."""

_PROC = Path("/proc")


def identity(pid: int) -> str | None:
    """Names one process for good: boot, process id and start time. None: no such process, or a zombie."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(")") + 2 :].split()  # the name before may hold blanks and brackets; proc(5)
    if fields[0] in "ZX":
        return None
    boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{pid}:{fields[19]}"


def is_running(known: str) -> bool:
    """Whether the process of this identity still runs."""
    return identity(int(known.split(":")[1])) == known


def signal_members(token: str, number: signal.Signals, node: str | None = None) -> int:
    """Sends a signal to all processes of an attempt (on one node, if one is named).

    Returns:
        How many there were; zombies do not count.
    """
    wanted = {f"{TOKEN}={token}".encode()}
    if node is not None:
        wanted.add(f"{NODE}={node}".encode())
    found = 0
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            handle = os.pidfd_open(
                int(entry.name)
            )  # from here on, the process id cannot come to mean another
        except (ProcessLookupError, OSError):
            continue
        try:
            if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                signal.pidfd_send_signal(handle, number)
                found += 1
        except (ProcessLookupError, FileNotFoundError, PermissionError):  # gone meanwhile, or somebody else's
            continue
        finally:
            os.close(handle)
    return found


def user_name() -> str:
    """The user that this process runs as (its number, where no name is known)."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
