"""What every command shares: this invocation's settings, and errors told in a sentence, not a traceback."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import typer
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from typer.core import TyperGroup

from relight.cli.busy import busy
from relight.cli.devserver import DevServerError
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.output import complain
from relight.config import ConfigError, Settings, load_settings, unknown_variables
from relight.durations import parse_duration
from relight.encryption import EncryptionError
from relight.errors import WrongRequestError
from relight.permissions import UnsafePermissions
from relight.policy.choose import NotAllowed
from relight.scheduler.port import (
    InvalidRequest,
    NoSuchJob,
    NoSuchNode,
    NotPermitted,
    SchedulerError,
    SchedulerUnreachable,
)
from relight.temporal import NotReady, TemporalSettingsError, TemporalUnavailable, connect

T = TypeVar("T")

_CODES: tuple[tuple[type[Exception], ExitCode], ...] = (
    (WrongRequestError, ExitCode.USAGE),
    (ConfigError, ExitCode.USAGE),
    (NotAllowed, ExitCode.USAGE),
    (UnsafePermissions, ExitCode.USAGE),
    (EncryptionError, ExitCode.USAGE),
    (TemporalSettingsError, ExitCode.USAGE),
    (TemporalUnavailable, ExitCode.NO_TEMPORAL),
    (NotReady, ExitCode.NOT_READY),
    (SchedulerUnreachable, ExitCode.NO_SCHEDULER),
    (NoSuchJob, ExitCode.NOT_FOUND),
    (NoSuchNode, ExitCode.NOT_FOUND),
    (NotPermitted, ExitCode.REFUSED),
    (InvalidRequest, ExitCode.REFUSED),
    (SchedulerError, ExitCode.FAILURE),
    (DevServerError, ExitCode.FAILURE),
)


@dataclass
class Invocation:
    """One run of the command: where its settings come from."""

    config_file: Path | None = None
    flags: dict[str, object] = field(default_factory=dict)

    @cached_property
    def settings(self) -> Settings:
        """The effective settings; warns of environment variables that name none.

        Raises:
            ConfigError: the settings cannot be used.
        """
        if unknown := unknown_variables():
            complain(f"ignoring {', '.join(unknown)}: no such setting (see `relight config`)", "warning")
        return load_settings(self.config_file, **self.flags)

    async def client(self) -> Client:
        """A connection to Temporal.

        Raises:
            TemporalUnavailable: it does not answer.
            EncryptionError: the key file of the settings cannot be used.
        """
        return await connect(key_file=self.settings.encryption.key_file)

    async def client_or_archive(self) -> Client | None:
        """A connection to Temporal; None: it does not answer, only the archive can be asked, which is said.

        Raises:
            TemporalUnavailable: it does not answer, and there is no archive.
            EncryptionError: as `client`.
        """
        try:
            return await self.client()
        except TemporalUnavailable as error:
            if not self.settings.archive.url:
                raise
            complain(f"only the archive is looked at: {error}", "warning")
            return None


def invocation(ctx: typer.Context) -> Invocation:
    """The invocation that this command belongs to."""
    found = ctx.find_object(Invocation)
    return found if found is not None else Invocation()


def run_async(work: Coroutine[Any, Any, T], doing: str = "") -> T:
    """Runs a command's asynchronous part.

    Args:
        work: that part.
        doing: what is said on a terminal while it takes long; empty: nothing, since it speaks itself or asks.
    """
    if not doing:
        return asyncio.run(work)
    with busy(doing):
        return asyncio.run(work)


def some_time(option: str, text: str) -> timedelta:
    """The duration that an option gives; nothing, or less, is none.

    Raises:
        CommandError: it is no duration.
    """
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise CommandError(f"{option} {text!r} is {error}", ExitCode.USAGE) from error
    if not isinstance(found, timedelta) or not found:
        raise CommandError(f"{option} {text!r}: write for example 14d or 12h", ExitCode.USAGE)
    return found


class SpeakingGroup(TyperGroup):
    """Tells expected errors in one sentence on stderr and exits with their code; a bug stays a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the command."""
        try:
            return super().invoke(ctx)
        except CommandError as e:
            complain(str(e))
            raise typer.Exit(e.code) from e
        except RPCError as e:
            message, code = explain_rpc_error(e)
            complain(message)
            raise typer.Exit(code) from e
        except (KeyboardInterrupt, asyncio.CancelledError):
            complain("interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except tuple(kind for kind, _ in _CODES) as e:
            complain(str(e))
            raise typer.Exit(next(code for kind, code in _CODES if isinstance(e, kind))) from e


def explain_rpc_error(error: RPCError) -> tuple[str, ExitCode]:
    """What a refusal or failure of Temporal means for the person at the terminal."""
    text = error.message
    if "search attribute" in text.lower() or "invalid query" in text.lower():
        return (
            f"Temporal's namespace is not set up for relight ({text}): run `relight setup`",
            ExitCode.NOT_READY,
        )
    if "no poller" in text.lower():
        return "no worker serves relight's task queue: start one with `relight worker`", ExitCode.NOT_READY
    match error.status:
        case RPCStatusCode.NOT_FOUND:
            return f"Temporal knows no such thing: {text}", ExitCode.NOT_FOUND
        case RPCStatusCode.PERMISSION_DENIED | RPCStatusCode.UNAUTHENTICATED:
            return (
                f"Temporal refuses: {text}. Check TEMPORAL_API_KEY or the TLS settings of this profile",
                ExitCode.REFUSED,
            )
        case RPCStatusCode.UNAVAILABLE | RPCStatusCode.CANCELLED | RPCStatusCode.DEADLINE_EXCEEDED:
            return f"Temporal does not answer ({text}): is the server still up?", ExitCode.NO_TEMPORAL
    return f"Temporal answers with an error: {text} ({error.status.name})", ExitCode.FAILURE
