"""Files that decide what relight does, or that hold a secret: who else could change or read them.

Whoever can write the settings of a service that acts decides what it does, with its rights. So such
a file, and the directory it lies in, may be writable by its owner alone, and its owner must be root or the
account that the service runs under. A secret must not be readable by others either.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OTHERS_ANY = stat.S_IRWXG | stat.S_IRWXO


class UnsafePermissions(Exception):
    """Others could change a file, or read a secret. The message says which `chmod` helps."""


def problem(
    path: Path, *, secret: bool = False, found: os.stat_result | None = None, called: str = ""
) -> str:
    """Why this file or directory cannot be trusted, with the command that mends it; empty when it can.

    Links are followed. A directory with the sticky bit (/tmp) may be writable by all: what lies there can
    be replaced only by its owner, and by the directory's.

    Args:
        path: what is looked at.
        secret: nobody else may read it.
        found: what is known of it: of an open file, so that it is the one that is read.
        called: what people call it; empty: by its path.

    Raises:
        OSError: it cannot be looked at.
    """
    real, called = path.resolve(strict=True), called or str(path)
    found = found or real.stat()
    if why := _ownership(path, found):
        return why
    if secret and found.st_mode & _OTHERS_ANY:
        return f"others can use {path} (mode {_mode(found)}), which holds a secret: chmod 600 {path}"
    if found.st_mode & _OTHERS_WRITE:
        return f"others can write {path} (mode {_mode(found)}): chmod go-w {path}"
    above = real.parent.stat()
    if why := _ownership(real.parent, above):
        return f"others could replace {called}: {why}"
    if above.st_mode & _OTHERS_WRITE and not above.st_mode & stat.S_ISVTX:
        return (
            f"others could replace {called}: its directory has mode {_mode(above)}: chmod go-w {real.parent}"
        )
    return ""


def problems(paths: Iterable[Path], secrets: Iterable[Path] = ()) -> tuple[str, ...]:
    """What is wrong with these files; one that cannot be looked at is left to whoever reads it."""
    found = []
    for path, secret in [*((path, False) for path in paths), *((path, True) for path in secrets)]:
        try:
            found.append(problem(path, secret=secret))
        except OSError:  # who reads it tells the reason better
            continue
    return tuple(why for why in found if why)


def require_safe(paths: Iterable[Path], secrets: Iterable[Path] = ()) -> None:
    """Refuses files that others could change, and secrets that others could read.

    Raises:
        UnsafePermissions: with everything that has to be mended.
    """
    if found := problems(paths, secrets):
        raise UnsafePermissions("; ".join(found))


def _ownership(path: Path, found: os.stat_result, euid: int | None = None) -> str:
    if found.st_uid in {0, os.geteuid() if euid is None else euid}:
        return ""
    return f"{path} belongs to user id {found.st_uid}, neither root nor this account: chown it to one of them"


def _mode(found: os.stat_result) -> str:
    return f"{stat.S_IMODE(found.st_mode):04o}"
