"""`relight report`: what faults cost, where the time went, and what would help, as one page."""

from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import invocation, run_async, some_time
from relight.cli.output import print_json, say
from relight.cli.report_sources import gather
from relight.cli.shapes import ReportView

STDOUT = Path("-")
_NEEDED = ("matplotlib", "jinja2")
"""Packages of the extra `report`."""


def report(
    ctx: typer.Context,
    since: Annotated[str, typer.Option(help="How far back: 30d, 12h, ...")] = "30d",
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where to write the page; - is standard output.")
    ] = Path("report.html"),
    checkpoint_write: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="How long training stands still while a checkpoint is written: 30s, 2m, ...",
            show_default="not known",
        ),
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON; write no page.")] = False,
) -> None:
    """Write a page on training efficiency: time lost by cause and phase, chains, bad nodes, what would help.

    It is one HTML file that needs nothing else: open it, print it, send it. relight report --since 7d
    It needs the extra `report` (matplotlib and Jinja); --json does not.
    """
    settings = invocation(ctx).settings
    window = some_time("--since", since)
    write = some_time("--checkpoint-write", checkpoint_write) if checkpoint_write else None
    if not as_json:
        _check(out)

    async def work() -> ReportView:
        client = await invocation(ctx).client_or_archive()
        return await gather(client, settings, window, write, datetime.now(UTC))

    found = run_async(work(), "reading histories")
    if as_json:
        print_json(found)
        return
    from relight.report.page import render  # needs the extra, and takes a second to import

    page = render(found)
    if out == STDOUT:
        typer.echo(page, nl=False)
        return
    try:
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"the report cannot be written: {error}") from error
    say(f"{out}: recoveries {found.figures.recoveries}, runs {len(found.chains)}")


def _check(out: Path) -> None:
    """Before anything is read: the page can be made, and there is a place for it."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"the page needs {' and '.join(missing)}: pip install 'relight[report]' (in a clone: "
            "pip install -e '.[report]'); --json works without",
            ExitCode.USAGE,
        )
    if out != STDOUT and not out.absolute().parent.is_dir():
        raise CommandError(f"there is no directory {out.absolute().parent} for the report", ExitCode.USAGE)
