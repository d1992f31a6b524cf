"""`relight up`: Temporal's dev server, a worker and a sensor in one process tree."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer
from google.protobuf.duration_pb2 import Duration
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import UpdateNamespaceRequest
from temporalio.client import Client

from relight.cli.devserver import DevServer, DevServerError, port_is_free
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import Invocation, invocation, run_async
from relight.cli.output import complain, say
from relight.cli.processes import FIRST_PAUSE, LONGEST_PAUSE, Service, relight_argv
from relight.cli.setup import register
from relight.cli.trust import check_files
from relight.cli.watched import worker_polls
from sensor.lock import held_by

KEPT = timedelta(days=30)
"""How long ended workflows can be looked at; the dev server's own default is one day."""
READY_SECONDS = 60.0
ENDING_SECONDS = 5.0
"""How long the sensor of an earlier `relight up` may take to end."""


def up(
    ctx: typer.Context,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Of the Temporal service.")] = 7233,
    ui_port: Annotated[int, typer.Option(min=1, max=65535, help="Of the web UI.")] = 8233,
    db: Annotated[
        Path | None,
        typer.Option(
            "--db", metavar="FILE", help="Temporal's database.", show_default="STATE_DIR/temporal.db"
        ),
    ] = None,
) -> None:
    """Run all of relight here: Temporal's dev server with its web UI, a worker and a sensor."""
    call = invocation(ctx)
    check_files(call, acts=True)  # once, here: the worker would end again and again
    for option, wanted in (("--port", port), ("--ui-port", ui_port)):
        if not port_is_free(wanted):
            raise CommandError(
                f"port {wanted} is taken, by another Temporal server perhaps: choose another with {option} "
                "(beside another `relight up` also another RELIGHT_STATE_DIR), or run `relight worker` and "
                "`relight sensor` beside that server"
            )
    server = DevServer(db or call.settings.state_dir / "temporal.db", port, ui_port)
    _check_state(call.settings.state_dir)
    run_async(_run(call, server))


def _check_state(state_dir: Path) -> None:
    """Two in one directory would share Temporal's database, and one of the sensors would only stand by.

    Raises:
        CommandError: a sensor uses it, and does not end soon: that of an earlier `relight up` may be ending.
    """
    end = time.monotonic() + ENDING_SECONDS
    while (holder := held_by(state_dir)) is not None:
        if time.monotonic() > end:
            raise CommandError(
                f"another sensor ({holder}) uses {state_dir}, perhaps that of another `relight up`: end it, "
                "or give this one a directory of its own with RELIGHT_STATE_DIR (setting state_dir)",
                ExitCode.REFUSED,
            )
        time.sleep(0.1)


async def _run(call: Invocation, server: DevServer) -> None:
    await _check_scheduler(call)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        server.launch()
        await asyncio.to_thread(server.wait_ready)
        os.environ.update(server.environment)  # for `connect` here, as for the children
        client = await call.client()
        await register(client)
        await keep_history(client, KEPT)
        async with contextlib.AsyncExitStack() as stack:
            for name in ("worker", "sensor"):
                argv = relight_argv(name, config_file=call.config_file, flags=call.flags)
                service = Service(name, argv, server.environment, tell=lambda text: complain(text, "warning"))
                await stack.enter_async_context(running(service))
            keeper = asyncio.create_task(_keep_server(server))
            stack.callback(keeper.cancel)
            announcer = asyncio.create_task(_announce(client, call, server))
            stack.callback(announcer.cancel)
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({stopping, keeper}, return_when=asyncio.FIRST_COMPLETED)
            say("stopping: sensor, worker, Temporal")
            if keeper.done():
                keeper.result()
    finally:
        await asyncio.to_thread(server.stop)


@contextlib.asynccontextmanager
async def running(service: Service) -> AsyncIterator[Service]:
    """The service runs inside the block, and has ended after it."""
    task = asyncio.create_task(service.keep_running())
    try:
        yield service
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def keep_history(client: Client, kept: timedelta) -> None:
    """Sets how long the namespace keeps ended workflows."""
    await client.workflow_service.update_namespace(
        UpdateNamespaceRequest(
            namespace=client.namespace,
            config=NamespaceConfig(
                workflow_execution_retention_ttl=Duration(seconds=int(kept.total_seconds()))
            ),
        )
    )


async def wait_for_worker(client: Client, task_queue: str, timeout: float = READY_SECONDS) -> bool:
    """A worker has begun to poll within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        if await worker_polls(client, task_queue):
            return True
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.1)


async def _check_scheduler(call: Invocation) -> None:
    """Without a scheduler the worker would end again and again: better to say so once, here."""
    from relight.scheduler.opening import open_scheduler  # adapters are slow to import

    scheduler = open_scheduler(call.settings)
    found = await scheduler.version()
    say(f"scheduler: {found.name} {found.version}, cluster {call.settings.cluster or found.cluster}")


async def _announce(client: Client, call: Invocation, server: DevServer) -> None:
    if not await wait_for_worker(client, call.settings.task_queue):
        complain("no worker has come up yet; see its messages above", "warning")
        return
    say(f"relight is up. Web UI: {server.ui}")
    if server.port != 7233:
        say(f"in other terminals: export TEMPORAL_ADDRESS={server.address}")
    say("watch a job: relight watch JOB   |   end: Ctrl-C")


async def _keep_server(server: DevServer) -> None:
    """Starts the dev server again, on the same file, when it ends by itself.

    Raises:
        DevServerError: it cannot be started any more.
    """
    pause = FIRST_PAUSE
    while True:
        await asyncio.sleep(0.5)
        if server.alive:
            continue
        complain(
            f"the Temporal dev server ended; it starts again in {pause:g} s (log: {server.log})", "warning"
        )
        await asyncio.sleep(pause)
        server.launch()
        try:
            await asyncio.to_thread(server.wait_ready)
            pause = FIRST_PAUSE
        except DevServerError:
            if pause >= LONGEST_PAUSE:
                raise
            pause = min(pause * 2, LONGEST_PAUSE)
