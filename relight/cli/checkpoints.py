"""`relight checkpoints`: which checkpoints of a directory are usable, and why the others are not."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table

from relight.checkpoints import CheckpointError, Report, State
from relight.checkpoints.gate import inspect_store, open_store
from relight.checkpoints.stores import ListingStore, Store
from relight.cli import checkpoint_directory
from relight.cli.busy import busy
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import invocation
from relight.cli.output import AsJson, complain, console, duration, print_json, say
from relight.contracts.policy import CheckpointLayout
from relight.errors import WrongRequestError
from relight.policies import Policies

_COLOURS = {
    State.USABLE: "green",
    State.INCOMPLETE: "yellow",
    State.CORRUPT: "red",
    State.IN_PROGRESS: "cyan",
}


def checkpoints(
    ctx: typer.Context,
    directory: Annotated[
        str | None, typer.Argument(metavar="DIR", help="A run's checkpoint directory, or s3://bucket/run.")
    ] = None,
    as_json: AsJson = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte, and compare checksums where there are some.")
    ] = False,
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A framework's layout, or one that a policy in the settings describes.",
            show_default="recognised",
        ),
    ] = None,
    listing: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Judge a listing (JSON: root, files, contents) instead of a directory."
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0.1, help="The longest it may take.", show_default="60, deep: 3600"
        ),
    ] = None,
) -> None:
    """Tell which checkpoints a run can be resumed from."""
    limit = timedelta(seconds=budget if budget is not None else 3600 if deep else 60)
    try:
        store = _store(directory, listing)
        described = _layout(ctx, layout)
        with busy("reading every byte" if deep else "looking at the checkpoints"):
            report = inspect_store(store, layout=described, deep=deep, budget=limit)
    except WrongRequestError:
        raise  # told as wrong usage
    except CheckpointError as error:
        raise CommandError(str(error), ExitCode.FAILURE) from error
    if as_json:
        print_json(report)
        return
    if report.checkpoints:
        console().print(_table(report))
    say(report.summary)
    for found in report.checkpoints:
        if found.name == report.newest_usable:
            say(f"checked of {found.name}: {found.checked}")
    for note in report.notes:
        complain(note, "note")


def _store(directory: str | None, listing: Path | None) -> Store:
    if directory is not None and listing is None:
        return open_store(checkpoint_directory.absolute(directory))
    if directory is not None or listing is None:
        raise CommandError("name either a directory or a --listing", ExitCode.USAGE)
    try:
        return ListingStore.parse(listing.read_bytes())
    except OSError as error:
        raise CommandError(f"cannot read {listing}: {error.strerror}", ExitCode.USAGE) from error


def _layout(ctx: typer.Context, name: str | None) -> str | CheckpointLayout | None:
    """The layout that a policy describes under this name, else the name itself."""
    if name is None:
        return None
    policies = Policies(invocation(ctx).settings).file.policies
    described = (policy.checkpoint_layout for policy in policies.values())
    return next((d for d in described if d is not None and d.name == name), name)


def _table(report: Report) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in ("CHECKPOINT", "STEP", "AGE", "SIZE", "STATE", "REASON"):
        table.add_column(head, overflow="fold", justify="right" if head in ("STEP", "SIZE") else "left")
    for found in report.checkpoints:
        chosen = found.name == report.newest_usable
        table.add_row(
            f"[bold]{escape(found.name)}[/]" if chosen else escape(found.name),
            "-" if found.step is None else str(found.step),
            duration(found.age),
            decimal(found.bytes),
            f"[{_COLOURS[found.state]}]{found.state.value.replace('_', ' ')}[/]",
            escape(found.reason),
        )
    return table
