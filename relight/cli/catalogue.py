"""`relight catalogue`: the signatures that relight knows, tried on a file, and checked."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from relight.cli.diagnose import load_catalogue
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.output import AsJson, console, print_json, say
from relight.cli.shapes import FaultySignature, LintView
from relight.diagnosis.catalogue import Kind
from relight.diagnosis.findings import Finding
from relight.diagnosis.lint import lint as lint_catalogue
from relight.diagnosis.reader import LogReader

app = typer.Typer(help="The signatures by which relight reads logs.", no_args_is_help=True)
SHOWN = 200

Directories = Annotated[
    list[Path] | None,
    typer.Option(
        "--signatures",
        metavar="DIR",
        help="More signatures, or others for known ids (default: the setting `signatures`).",
    ),
]


@app.command("list")
def list_(
    ctx: typer.Context,
    signatures: Directories = None,
    family: Annotated[str | None, typer.Option(help="Only this family.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the signatures."""
    catalogue = load_catalogue(ctx, signatures)
    chosen = [s for s in catalogue if family is None or s.family == family]
    if not chosen:
        known = ", ".join(sorted({s.family for s in catalogue}))
        raise CommandError(f"there is no family {family!r}; known families: {known}", ExitCode.NOT_FOUND)
    if as_json:
        print_json(chosen)
        return
    table = Table(box=None, pad_edge=False)
    for head in ("ID", "ROLE", "CAUSE", "SAYS"):
        table.add_column(head, overflow="fold")
    for s in chosen:
        cause = "-" if s.role is Kind.BENIGN else s.cause.value
        table.add_row(s.id, s.role.value, cause, escape(s.says))
    console().print(table)
    say(f"{len(chosen)} signatures")


@app.command("test")
def try_file(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A log.")],
    signatures: Directories = None,
    as_json: AsJson = False,
) -> None:
    """Show what a log's lines are taken for."""
    catalogue = load_catalogue(ctx, signatures)
    reader = LogReader(catalogue, str(file))
    try:
        events = [*reader.feed(file.read_bytes()), *reader.flush()]
    except OSError as e:
        raise CommandError(f"cannot read {file}: {e.strerror}", ExitCode.USAGE) from e
    found = [e for e in events if isinstance(e, Finding)]
    if as_json:
        print_json(found)
        return
    for f in found[:SHOWN]:
        who = " ".join(
            part for part in (f.node, f"rank {f.rank}" if f.rank is not None else None, f.gpu) if part
        )
        say(f"{f.line + 1}: {f.signature} ({f.role.value}, {f.cause.value}{', ' + who if who else ''})")
        say(f"    {f.text}")
    if len(found) > SHOWN:
        say(f"and {len(found) - SHOWN} more")
    say(f"{len(found)} of the lines say something, {len(events) - len(found)} are progress")


@app.command()
def lint(ctx: typer.Context, signatures: Directories = None, as_json: AsJson = False) -> None:
    """Check examples, style and speed of all signatures; exit code 1 if something is wrong."""
    catalogue = load_catalogue(ctx, signatures)
    wrong = lint_catalogue(catalogue)
    if as_json:
        faulty = tuple(
            FaultySignature(signature=known, where=catalogue[known].where, faults=tuple(faults))
            for known, faults in wrong.items()
        )
        left_out = tuple(map(str, catalogue.problems))
        print_json(LintView(signatures=len(catalogue), faulty=faulty, left_out=left_out))
    else:
        for signature_id, faults in wrong.items():
            for fault in faults:
                say(f"{catalogue[signature_id].where}: {signature_id}: {fault}")
        say(f"{len(catalogue)} signatures, {len(wrong)} with faults, {len(catalogue.problems)} left out")
    if wrong or catalogue.problems:
        raise typer.Exit(ExitCode.FAILURE)
