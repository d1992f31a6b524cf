"""The command `relight`."""

import contextlib
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from relight.cli import decide, demo, look, services, settings, setup, up, watch
from relight.cli.exit_codes import MEANINGS, ExitCode
from relight.cli.invocation import Invocation
from relight.cli.lazy import LazyGroup

EXIT_CODES = "Exit codes: " + "; ".join(
    f"{code.value} {words.replace('`', '')}" for code, words in MEANINGS.items()
)

app = typer.Typer(
    cls=LazyGroup,
    help="Keep distributed training alive: watch jobs, decide from evidence, recover, prove it.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a traceback here is a bug, and wanted as it is
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command(rich_help_panel="Jobs")(watch.watch)
app.command(rich_help_panel="Jobs")(look.jobs)
app.command(rich_help_panel="Jobs")(look.show)
app.command(rich_help_panel="Jobs")(decide.approve)
app.command(rich_help_panel="Jobs")(decide.reject)
app.command(rich_help_panel="Jobs")(watch.mode)
app.command(rich_help_panel="Jobs")(watch.unwatch)
app.command(rich_help_panel="Try it")(demo.demo)
app.command(rich_help_panel="Try it")(up.up)
app.command(rich_help_panel="Services")(services.worker)
app.add_typer(services.sensors, name="sensor", rich_help_panel="Services")
app.command(rich_help_panel="Services")(setup.setup)
app.command(rich_help_panel="Services")(settings.config)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"relight {version('relight')}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Settings file (else RELIGHT_CONFIG, ./relight.toml, ...)."
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="This cluster's name.", show_default="scheduler's")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="auto, slurm-cli, slurm-pyslurm or local.", show_default="settings")
    ] = None,
    state_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where relight keeps its files.", show_default="settings"),
    ] = None,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command hold for all commands."""
    flags = {"cluster": cluster, "scheduler": scheduler, "state_dir": state_dir}
    ctx.obj = Invocation(config, {key: value for key, value in flags.items() if value is not None})


def run() -> NoReturn:
    """Entry point of the command."""
    try:
        app(prog_name="relight")
        code: object = ExitCode.OK
    except SystemExit as e:
        code = e.code
    # All is done. Not left to the interpreter: while it shuts down, a thread of Temporal's client may still
    # call back into it, and the process dies by a signal (10 of 240 runs on a busy machine, SDK 1.35).
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else ExitCode.OK if code is None else ExitCode.FAILURE)
