"""`relight worker`, `relight sensor` and `relight sensor node`: services, in the foreground until SIGTERM."""

from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import SpeakingGroup, invocation, run_async
from relight.cli.trust import check_files
from relight.config import NodeSettings
from relight.contracts import Mode

sensors = typer.Typer(cls=SpeakingGroup, invoke_without_command=True)
"""`relight sensor`, and the sensors of another kind below it."""


def worker(ctx: typer.Context) -> None:
    """Run a worker: it decides and acts. Run two or more, on different hosts, for a cluster."""
    from worker.main import run_worker  # it imports all rooms; the other commands start faster without

    check_files(invocation(ctx), acts=True)
    run_async(run_worker(invocation(ctx).settings))


@sensors.callback()
def sensor(ctx: typer.Context) -> None:
    """Run the cluster sensor: it follows the logs and the scheduler, and reports what goes wrong.

    `relight sensor node` is the sensor of a compute node.
    """
    if ctx.invoked_subcommand is not None:
        return
    from sensor.main import run_sensor  # it compiles the catalogue; the other commands start faster without
    from sensor.store import StoreError

    settings = invocation(ctx).settings
    check_files(invocation(ctx), acts=settings.mode is Mode.ACT)
    try:
        run_async(run_sensor(settings))
    except StoreError as e:
        raise CommandError(str(e)) from e


@sensors.command()
def node(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Option(help="The scheduler's name of this node.", show_default="host name")
    ] = None,
    kernel_log: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to read kernel messages.", show_default="/dev/kmsg"),
    ] = None,
) -> None:
    """Run the sensor of this compute node: it reads the kernel log and asks NVML about the GPUs."""
    from sensor.node.main import exec_node_sensor

    call = invocation(ctx)
    check_files(call, acts=False)
    given = {key: value for key, value in (("name", name), ("kernel_log", kernel_log)) if value is not None}
    settings = call.settings
    try:
        own = NodeSettings.model_validate({**settings.node.model_dump(), **given})
    except ValidationError as e:
        raise CommandError(f"--name {name!r} is no name of a node", ExitCode.USAGE) from e
    settings = settings.model_copy(update={"node": own})
    exec_node_sensor(settings, call.config_file, call.flags)
