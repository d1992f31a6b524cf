"""`relight worker` and `relight sensor`: the two services, in the foreground until SIGTERM or Ctrl-C."""

import typer

from relight.cli.exit_codes import CommandError
from relight.cli.invocation import invocation, run_async


def worker(ctx: typer.Context) -> None:
    """Run a worker: it decides and acts. Run two or more, on different hosts, for a cluster."""
    from worker.main import run_worker  # it imports all rooms; the other commands start faster without

    run_async(run_worker(invocation(ctx).settings))


def sensor(ctx: typer.Context) -> None:
    """Run the cluster sensor: it follows the logs and the scheduler, and reports what goes wrong."""
    from sensor.main import run_sensor  # it compiles the catalogue; the other commands start faster without
    from sensor.store import StoreError

    try:
        run_async(run_sensor(invocation(ctx).settings))
    except StoreError as e:
        raise CommandError(str(e)) from e
