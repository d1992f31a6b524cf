"""Slurm's error numbers, by their names in slurm_errno.h, as the port's errors.

The numbers differ between versions of Slurm, and pyslurm has them all as attributes: names are compared,
never numbers. Names: pyslurm 25.11.2, `pyslurm/slurm/slurm_errno.h.pxi`.
"""

import errno
from collections.abc import Callable

from relight.contracts import clean_text
from relight.scheduler.port import (
    InvalidRequest,
    NoSuchJob,
    NoSuchNode,
    NotPermitted,
    NotSupported,
    SchedulerError,
    SchedulerUnreachable,
)
from relight.scheduler.slurm_errors import meaning

NAMES: dict[str, type[SchedulerError]] = {
    "SLURM_UNEXPECTED_MSG_ERROR": SchedulerUnreachable,
    "SLURM_COMMUNICATIONS_CONNECTION_ERROR": SchedulerUnreachable,
    "SLURM_COMMUNICATIONS_SEND_ERROR": SchedulerUnreachable,
    "SLURM_COMMUNICATIONS_RECEIVE_ERROR": SchedulerUnreachable,
    "SLURM_COMMUNICATIONS_SHUTDOWN_ERROR": SchedulerUnreachable,
    "SLURM_PROTOCOL_VERSION_ERROR": SchedulerUnreachable,
    "SLURM_PROTOCOL_AUTHENTICATION_ERROR": SchedulerUnreachable,
    "SLURM_PROTOCOL_SOCKET_IMPL_TIMEOUT": SchedulerUnreachable,
    "SLURM_PROTOCOL_SOCKET_ZERO_BYTES_SENT": SchedulerUnreachable,
    "SLURMCTLD_COMMUNICATIONS_CONNECTION_ERROR": SchedulerUnreachable,
    "SLURMCTLD_COMMUNICATIONS_SEND_ERROR": SchedulerUnreachable,
    "SLURMCTLD_COMMUNICATIONS_RECEIVE_ERROR": SchedulerUnreachable,
    "SLURMCTLD_COMMUNICATIONS_SHUTDOWN_ERROR": SchedulerUnreachable,
    "SLURMCTLD_COMMUNICATIONS_BACKOFF": SchedulerUnreachable,
    "SLURMCTLD_COMMUNICATIONS_HARD_DROP": SchedulerUnreachable,
    "ESLURM_PROTOCOL_INCOMPLETE_PACKET": SchedulerUnreachable,
    "ESLURM_IN_STANDBY_MODE": SchedulerUnreachable,
    "ESLURM_IN_STANDBY_USE_BACKUP": SchedulerUnreachable,
    "ESLURM_AUTH_CRED_INVALID": SchedulerUnreachable,
    "ESLURM_AUTH_EXPIRED": SchedulerUnreachable,
    "ESLURM_INVALID_JOB_ID": NoSuchJob,
    "ESLURM_INVALID_NODE_NAME": NoSuchNode,
    "ESLURM_ACCESS_DENIED": NotPermitted,
    "ESLURM_USER_ID_MISSING": NotPermitted,
    "ESLURM_NOT_SUPPORTED": NotSupported,
    "ESLURM_DISABLED": InvalidRequest,  # what a job says that may not be requeued
    "ESLURM_JOB_PENDING": InvalidRequest,
    "ESLURM_JOB_NOT_PENDING": InvalidRequest,
    "ESLURM_JOB_FINISHED": InvalidRequest,
    "ESLURM_JOB_NOT_RUNNING": InvalidRequest,
    "ESLURM_ALREADY_DONE": InvalidRequest,
    "ESLURM_TRANSITION_STATE_NO_UPDATE": InvalidRequest,
    "ESLURM_INVALID_NODE_STATE": InvalidRequest,
    "ESLURM_INVALID_NODE_STATE_TRANSITION": InvalidRequest,
    "ESLURM_BATCH_ONLY": InvalidRequest,
    "ESLURM_JOB_SCRIPT_MISSING": InvalidRequest,
    "ESLURM_NOT_WHOLE_HET_JOB": InvalidRequest,
    "ESLURM_PATHNAME_TOO_LONG": InvalidRequest,
    "ESLURM_REQUESTED_NODE_CONFIG_UNAVAILABLE": InvalidRequest,
}
"""What is not here is judged by Slurm's text for it, as the commands print it."""

_FIRST_OF_SLURM = 1000
"""Numbers below are the operating system's: libslurm leaves errno as the failed call set it."""
_REFUSED = frozenset({errno.EACCES, errno.EPERM})
_AWAY = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.EPIPE,
        errno.EAGAIN,
        errno.EINPROGRESS,
    }
)


def name_of(number: int, value: Callable[[str], object]) -> str:
    """The name of an error number; empty if it is none of `NAMES`.

    Args:
        number: as pyslurm's RPCError has it.
        value: what this version of Slurm has under a name; None where it has none.
    """
    return next((name for name in NAMES if value(name) == number), "")


def port_error(asked: str, number: int, name: str, said: str) -> SchedulerError:
    """The port's error for one of pyslurm's.

    Args:
        asked: what was asked, for the message.
        number: the error number.
        name: its name, if it has one in `NAMES`.
        said: the text that came with it.
    """
    kind = NAMES.get(name)
    if kind is None and number < _FIRST_OF_SLURM:
        kind = NotPermitted if number in _REFUSED else SchedulerUnreachable if number in _AWAY else None
    if kind is None:
        return meaning(asked, f"{said} (Slurm's error {number})")
    return kind(f"{asked}: {clean_text(said)} ({name or errno.errorcode.get(number, number)})")
