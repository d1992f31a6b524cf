"""`relight report`: what faults cost, where the time went, and what would help, as one page."""

from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import invocation, run_async, some_time
from relight.cli.output import json_text, print_json, say
from relight.cli.report_sources import gather
from relight.cli.shapes import ReportView
from relight.wording import counted

STDOUT = Path("-")
PAGE = Path("report.html")
"""Where the page goes if nobody says."""
_NEEDED = ("matplotlib", "jinja2")
"""Packages of the extra `report`."""


def report(
    ctx: typer.Context,
    since: Annotated[str, typer.Option(help="How far back: 30d, 12h, ...")] = "30d",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where to write it; - is standard output.",
            show_default="report.html, with --json: -",
        ),
    ] = None,
    checkpoint_write: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="How long training stands still while a checkpoint is written: 30s, 2m, ...",
            show_default="not known",
        ),
    ] = "",
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Count the faults of `relight simulate`, too.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print or write JSON, and no page.")] = False,
) -> None:
    """Write a page on training efficiency: time lost by cause and phase, chains, bad nodes, what would help.

    It is one HTML file that needs nothing else: open it, print it, send it. relight report --since 7d
    It needs the extra `report` (matplotlib and Jinja); --json does not.
    """
    settings = invocation(ctx).settings
    window = some_time("--since", since)
    write = some_time("--checkpoint-write", checkpoint_write) if checkpoint_write else None
    target = out or (STDOUT if as_json else PAGE)
    if not as_json:
        _check_packages()
    _check_place(target)

    async def work() -> ReportView:
        client = await invocation(ctx).client_or_archive()
        return await gather(client, settings, window, write, datetime.now(UTC), simulated=simulated)

    found = run_async(work(), "reading histories")
    if as_json and target == STDOUT:
        print_json(found)
        return
    if as_json:
        _write(target, json_text(found))
        return
    from relight.report.page import render  # needs the extra, and takes a second to import

    page = render(found)
    if target == STDOUT:
        typer.echo(page, nl=False)
        return
    _write(target, page)
    recoveries = counted(found.figures.recoveries, "recovery", "recoveries")
    say(f"{target}: {recoveries}, {counted(len(found.chains), 'run', 'runs')}")


def _write(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"the report cannot be written: {error}") from error


def _check_packages() -> None:
    """Before anything is read: the page can be made."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"the page needs {' and '.join(missing)}: pip install 'relight[report]' (in a clone: "
            "pip install -e '.[report]'); --json works without",
            ExitCode.USAGE,
        )


def _check_place(out: Path) -> None:
    """Before anything is read: there is a place for it."""
    if out != STDOUT and not out.absolute().parent.is_dir():
        raise CommandError(f"there is no directory {out.absolute().parent} for the report", ExitCode.USAGE)
