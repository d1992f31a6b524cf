"""How the command writes: results on stdout, complaints on stderr, times as people read them."""

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape

from relight.wording import moment

PIPE_WIDTH = 240
"""Columns of tables that are written into a pipe or a file."""
_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
"""The option of every command that a script may want to read."""


def console() -> Console:
    """Standard output. Made anew for each use, so that it follows redirections."""
    on_screen = sys.stdout.isatty() or "COLUMNS" in os.environ
    # In a pipe there is no width: a table should not be folded to eighty columns there.
    width = None if on_screen else PIPE_WIDTH
    # No emoji: in the id of a recovery on a cluster named x there is one (`recover:x:7:0`), by its name.
    return Console(highlight=False, emoji=False, soft_wrap=not sys.stdout.isatty(), width=width)


def complain(message: str, kind: str = "error") -> None:
    """One line on stderr. `kind`: `error`, `warning` or `note`."""
    prefix = f"[{_STYLES[kind]}]{kind}:[/] "
    Console(stderr=True, highlight=False, emoji=False, soft_wrap=True).print(prefix + escape(message))


def say(message: str) -> None:
    """One line on stdout; nothing in it is taken as markup."""
    console().print(message, markup=False)


def print_json(value: BaseModel | Sequence[BaseModel]) -> None:
    """Prints `json_text`. Nothing is wrapped or coloured."""
    sys.stdout.write(json_text(value))


def json_text(value: BaseModel | Sequence[BaseModel]) -> str:
    """The JSON of one model, or of a list of them, with a newline at the end.

    A number that JSON has no word for is a text, as in Temporal: `"NaN"`, `"Infinity"`, `"-Infinity"`.
    """
    data: Any = _plain(value) if isinstance(value, BaseModel) else [_plain(each) for each in value]
    return json.dumps(data, indent=2, allow_nan=False) + "\n"


def _plain(value: BaseModel) -> Any:
    return json.loads(value.model_dump_json())


def duration(value: timedelta | None) -> str:
    """`0.42s`, `12.3s`, `4m05s`, `2h10m`, `3d04h`; a dash for None."""
    if value is None:
        return "-"
    seconds = value.total_seconds()
    if seconds < 0:
        return f"-{duration(-value)}"
    if seconds < 10:
        return f"{seconds:.2f}s"
    if seconds < 99.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours < 48 else f"{hours // 24}d{hours % 24:02}h"


def clock(value: datetime | None, *, date: bool = False) -> str:
    """The time of day in UTC, as everywhere in relight, with the date where asked for; a dash for None."""
    if value is None:
        return "-"
    return moment(value.astimezone(UTC)) if date else f"{value.astimezone(UTC):%H:%M:%S} UTC"


def ago(value: datetime | None) -> str:
    """How long ago; a dash for None."""
    return "-" if value is None else f"{duration(max(datetime.now(UTC) - value, timedelta(0)))} ago"
