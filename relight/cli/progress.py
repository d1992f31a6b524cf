"""`relight progress`: does relight recognise how a job prints its steps, and how to teach it."""

from pathlib import Path
from typing import Annotated

import typer

from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.output import AsJson, complain, print_json, say
from relight.cli.shapes import ProgressView
from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.findings import PhaseLine, StepLine
from relight.diagnosis.reader import LogReader
from relight.diagnosis.steplines import FORMATS, custom

app = typer.Typer(help="How jobs print their progress.", no_args_is_help=True)
SHOWN = 5


@app.callback()
def group() -> None:
    """Keeps `test` a subcommand although it is the only one."""


@app.command("test")
def try_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A log with step lines.")],
    pattern: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="A pattern to try, with the group (?P<step>...)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show which lines are taken for steps and phases; exit code 1 if none is."""
    try:
        formats = (custom(pattern), *FORMATS) if pattern is not None else None
    except ValueError as e:
        raise CommandError(f"--pattern: {e}", ExitCode.USAGE) from e
    reader = LogReader(Catalogue.load(), str(file), steps=formats)
    try:
        events = [*reader.feed(file.read_bytes()), *reader.flush()]
    except OSError as e:
        raise CommandError(f"cannot read {file}: {e.strerror}", ExitCode.USAGE) from e
    steps = [e for e in events if isinstance(e, StepLine)]
    phases = [e for e in events if isinstance(e, PhaseLine)]
    if as_json:
        shown = {"steps": tuple(steps[-SHOWN:]), "phases": tuple(phases[-SHOWN:])}
        print_json(ProgressView(step_lines=len(steps), phase_lines=len(phases), **shown))
    else:
        _print(steps, phases)
    if not steps:
        complain(
            "no step line was recognised: relight is blind to this job's progress. Try "
            r"`--pattern 'step (?P<step>\d+)'` with what its lines look like",
            "warning",
        )
        raise typer.Exit(ExitCode.FAILURE)


def _print(steps: list[StepLine], phases: list[PhaseLine]) -> None:
    for s in steps[-SHOWN:]:
        parts = [f"step {s.step}" + (f" of {s.total}" if s.total is not None else "")]
        parts += [f"loss {s.loss:g}"] if s.loss is not None else []
        parts += [f"{s.step_seconds:g} s a step"] if s.step_seconds is not None else []
        parts += [f"throughput {s.throughput:g}"] if s.throughput is not None else []
        say(f"{s.line + 1}: {', '.join(parts)} ({s.format})")
    for p in phases[-SHOWN:]:
        say(f"{p.line + 1}: {p.phase.value} {'begins' if p.begins else 'ends'}")
    say(f"{len(steps)} step lines, {len(phases)} lines about saving, loading, evaluating and the like")
