"""A screen that is drawn anew every few seconds, until Ctrl-C; Temporal may be away meanwhile."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text
from temporalio.service import RPCError

from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import explain_rpc_error
from relight.cli.output import clock, console
from relight.temporal import TemporalUnavailable

Look = Callable[[], Awaitable[RenderableType]]
"""Asks, and returns what is to be seen."""


async def keep_showing(look: Look, every: float) -> None:
    """Shows what `look` returns until Ctrl-C or SIGTERM, then leaves the terminal as it was.

    Args:
        look: called anew for each drawing. Where it fails since Temporal does not answer, that is said below
            what was last seen, and it is tried again.
        every: seconds between two looks.

    Raises:
        CommandError: there is no terminal to draw on.
        RPCError: Temporal answers, with an error that waiting does not mend.
    """
    if not sys.stdout.isatty():
        raise CommandError(
            "a live view needs a terminal; scripts ask for --json again and again", ExitCode.USAGE
        )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    watching = asyncio.create_task(_draw(look, every))
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        stopping.cancel()
        watching.cancel()
    await asyncio.wait({watching})
    if not watching.cancelled():
        watching.result()


async def _draw(look: Look, every: float) -> None:
    seen: RenderableType = Text("asking Temporal ...", style="dim")
    away: datetime | None = None
    with Live(seen, console=console(), screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            try:
                seen, away = await look(), None
                note = Text(f"{clock(datetime.now(UTC))}, every {every:g} s; Ctrl-C leaves", style="dim")
            except (RPCError, TemporalUnavailable) as error:
                if isinstance(error, RPCError) and explain_rpc_error(error)[1] is not ExitCode.NO_TEMPORAL:
                    raise
                away = away or datetime.now(UTC)
                why = f"Temporal has not answered since {clock(away)}: this is what was seen before. "
                note = Text(f"{why}It is asked again every {every:g} s; Ctrl-C leaves", style="bold yellow")
            live.update(Group(seen, Text(), note), refresh=True)
            await asyncio.sleep(every)
