"""`relight config`: the effective settings, and where each came from."""

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from relight.cli.invocation import invocation
from relight.cli.output import console, print_json
from relight.cli.shapes import SettingView
from relight.config import effective, find_config_file


def config(
    ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Print the effective settings and where each came from: default, file, environment or flag."""
    call = invocation(ctx)
    found = [
        SettingView(key=one.key, value=one.value, origin=one.origin)
        for one in effective(call.settings, call.config_file, **call.flags)
    ]
    if as_json:
        print_json(found)
        return
    table = Table("SETTING", "VALUE", "FROM", box=None, pad_edge=False)
    for one in found:
        table.add_row(one.key, escape("" if one.value is None else str(one.value)), escape(one.origin))
    out = console()
    out.print(table)
    file = find_config_file(call.config_file)
    out.print(f"\nsettings file: {file or 'none found'}", markup=False)
    out.print(
        "Temporal's address, namespace and keys: TEMPORAL_* variables or a profile (temporal config list)"
    )
