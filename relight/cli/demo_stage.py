"""What the demo sets up and takes down: a directory, Temporal, a worker, a sensor, and one training job."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from temporalio.client import Client

from relight.cli.demo_story import Story
from relight.cli.demo_training import Training
from relight.cli.devserver import DevServer
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.processes import Service, relight_argv
from relight.cli.up import running, wait_for_worker
from relight.config import Settings, load_settings
from relight.scheduler.port import Scheduler
from relight.temporal import connect

SETTINGS = """\
cluster = "{cluster}"
scheduler = "{scheduler}"
state_dir = "{state}"

[policies.demo]
settle = "1s"
hang_floor = "3s"
approval_deadline = "10m"
confirm_window = "30s"
verify_window = "2m"
poll = "30s"
"""


@dataclass(frozen=True)
class Stage:
    """Everything that runs for the demo."""

    settings: Settings
    server: DevServer
    client: Client
    services: tuple[Service, ...]
    scheduler: Scheduler
    training: Training

    def check_services(self) -> None:
        """Raises a CommandError with the last words of a service that does not stay up."""
        for service in self.services:
            if service.restarts > 1 and service.log is not None:
                words = service.log.read_text(errors="replace")[-2000:]
                raise CommandError(f"the {service.name} does not stay up. Its last words:\n{words}")


@contextlib.asynccontextmanager
async def set_up(directory: Path, scheduler_name: str, story: Story) -> AsyncIterator[Stage]:
    """Starts Temporal, a worker and a sensor in this directory, and ends them after the block.

    Raises:
        CommandError: a part does not come up.
        SchedulerUnreachable: the scheduler does not answer.
    """
    from relight.scheduler.opening import open_scheduler  # adapters are slow to import

    config = directory / "relight.toml"
    cluster = "demo" if scheduler_name == "local" else ""
    config.write_text(SETTINGS.format(cluster=cluster, scheduler=scheduler_name, state=directory / "state"))
    config.chmod(0o600)  # whatever the umask: a worker trusts no settings that others can write
    settings = load_settings(config)
    scheduler = open_scheduler(settings)
    found = await scheduler.version()
    story.tell(f"scheduler: {found.name} {found.version}, cluster {settings.cluster or found.cluster}")
    training = Training(directory / "training")
    training.dir.mkdir()
    server = DevServer(directory / "temporal.db", ui_port=0)
    server.launch()
    try:
        await asyncio.to_thread(server.wait_ready)
        story.tell(f"Temporal runs at {server.address}; web UI: {server.ui}")
        os.environ.update(server.environment)  # for `connect` here, as for the services
        client = await connect(key_file=settings.encryption.key_file)
        async with contextlib.AsyncExitStack() as stack:
            services = []
            for name in ("worker", "sensor"):
                service = Service(
                    name,
                    relight_argv(name, config_file=config),
                    server.environment,
                    log=directory / f"{name}.log",
                    tell=story.tell,
                )
                services.append(await stack.enter_async_context(running(service)))
            stage = Stage(settings, server, client, tuple(services), scheduler, training)
            if not await wait_for_worker(client, settings.task_queue):
                stage.check_services()
                raise CommandError(
                    f"the worker does not come up (log: {services[0].log})", ExitCode.NOT_READY
                )
            story.tell("a worker and a sensor run")
            yield stage
    finally:
        await asyncio.to_thread(server.stop)


@contextlib.asynccontextmanager
async def job(stage: Stage) -> AsyncIterator[str]:
    """Submits the training job, and cancels it after the block."""
    job_id = await stage.scheduler.submit(stage.training.request(stage.settings.scheduler))
    try:
        yield job_id
    finally:
        await stage.scheduler.cancel(job_id)


async def break_it(stage: Stage, job_id: str, fault: str) -> datetime | None:
    """Injects the fault. Returns when, or None where the training itself keeps the time."""
    if fault != "node-loss":
        stage.training.order_fault(fault)
        return None
    from relight.scheduler.local import LocalScheduler

    if not isinstance(stage.scheduler, LocalScheduler):
        raise CommandError("a node is lost on purpose only with --scheduler local", ExitCode.USAGE)
    node = (await stage.scheduler.job(job_id)).nodes[-1]
    at = datetime.now(UTC)
    await stage.scheduler.lose_node(node)
    return at
