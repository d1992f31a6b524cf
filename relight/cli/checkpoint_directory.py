"""The checkpoint directory that a person names for a job: a path from here, or an address for fsspec."""

from pathlib import Path

from relight.checkpoints.gate import open_store
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.output import complain
from relight.errors import WrongRequestError

_ON_THIS_MACHINE = ("file://", "local://")
"""Addresses of fsspec that are paths."""


def absolute(written: str) -> str:
    """The directory as worker and sensor can use it: they run elsewhere, as another user.

    Args:
        written: a path, from the working directory on or with `~`, or an address such as `s3://bucket/run`,
            which stays as it is.

    Raises:
        CommandError: it is empty, or names the home of a user that there is not.
    """
    if not written.strip():
        raise CommandError(
            "the checkpoint directory has no name: was a variable of a script not set?", ExitCode.USAGE
        )
    if "://" in written:
        return written
    try:
        return str(Path(written).expanduser().absolute())
    except RuntimeError as error:  # ~nobody
        raise CommandError(f"checkpoint directory {written}: {error}", ExitCode.USAGE) from error


def usable(written: str, *, force: bool = False) -> str:
    """`absolute`, of a directory that is there, or of an address that can be opened.

    An object store has no empty directories, so that nothing is asked whether an address is there.

    Args:
        written: as for `absolute`.
        force: one that is not there, or cannot be opened here, is only warned of.

    Raises:
        CommandError: as `absolute`, or it is not there.
    """
    directory = absolute(written)
    if why := _why_not(directory):
        if not force:
            raise CommandError(
                f"{why}; correct it, or add --force where it is made later or is not mounted here",
                ExitCode.USAGE,
            )
        complain(f"{why}; it is watched nevertheless", "warning")
    return directory


def _why_not(directory: str) -> str:
    """What is wrong with it, as seen from here; empty: nothing."""
    scheme = next((known for known in _ON_THIS_MACHINE if directory.startswith(known)), "")
    if "://" in directory and not scheme:
        try:
            open_store(directory)
        except WrongRequestError as error:
            return str(error)
        return ""
    path = Path(directory.removeprefix(scheme))
    try:
        if path.is_dir():
            return ""
        there = path.exists()
    except OSError as error:
        return f"the checkpoint directory {directory} cannot be looked at: {error.strerror or error}"
    return f"{directory} is no directory" if there else f"there is no directory {directory}"
