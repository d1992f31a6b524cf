"""A training job that crashed under observation, and whose recovery waits for a person."""

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from rich.console import Console

from relight.cli.demo_stage import Stage, break_it, job, set_up
from relight.cli.demo_story import Story
from relight.cli.demo_training import Training, read_attempts
from relight.cli.watch import read_job, start_monitor
from relight.cli.watched import list_recoveries, monitor_status, recovery_status
from relight.contracts import Mode
from relight.contracts.ids import monitor_id
from relight.contracts.messages import RecoveryStatus

PATIENCE = 120.0
FIRST_STEPS = 25
"""The fault comes after so many steps: by then there is a checkpoint."""
SENSOR_SIGNALS = 2
"""A sensor that follows the job has told of the attempt's start, and of its first step."""

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Incident:
    """What the tests look at."""

    stage: Stage
    job_id: str
    monitor_id: str
    recovery_id: str
    digest: str
    """Of the plan that waits."""

    async def status(self) -> RecoveryStatus | None:
        return await recovery_status(self.stage.client, self.recovery_id)


@contextlib.asynccontextmanager
async def relight_runs(directory: Path) -> AsyncIterator[Stage]:
    """Temporal with its web UI, a worker and a sensor, on the embedded scheduler."""
    with pytest.MonkeyPatch.context() as environment, (directory / "story.log").open("w") as log:
        for name in [name for name in os.environ if name.startswith(("TEMPORAL_", "RELIGHT_"))]:
            environment.delenv(name)
        for name in ("TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_CONFIG_FILE"):
            environment.setenv(name, "")  # so that they are as before, afterwards
        async with set_up(directory, "local", Story(Console(file=log))) as stage:
            yield stage


@contextlib.asynccontextmanager
async def incident(stage: Stage, name: str) -> AsyncIterator[Incident]:
    """Trains, breaks the job by an exception, and waits until the plan waits."""
    training = Training(stage.training.dir.with_name(name))
    training.dir.mkdir()
    stage = dataclasses.replace(stage, training=training)
    async with job(stage) as job_id:
        await _until(stage, lambda: _steps(stage, 1))
        watched = await read_job(
            stage.settings, job_id, checkpoints=training.checkpoints, policy="demo", mode=Mode.OBSERVE
        )
        await start_monitor(stage.client, stage.settings, watched)
        monitor = monitor_id(watched.attempt)
        await _until(stage, lambda: _followed(stage, monitor))
        await break_it(stage, job_id, "exception")
        status = await _until(stage, lambda: _waiting(stage, monitor))
        yield Incident(stage, job_id, monitor, status.recovery_id, status.plan_digest)


async def _until(stage: Stage, look: Callable[[], Awaitable[T | None]]) -> T:
    async with asyncio.timeout(PATIENCE):
        while True:
            stage.check_services()
            found = await look()
            if found is not None:
                return found
            await asyncio.sleep(0.1)


async def _steps(stage: Stage, count: int) -> int | None:
    attempts = read_attempts(stage.training.read())
    return attempts[-1].last if attempts and (attempts[-1].last or 0) >= count else None


async def _followed(stage: Stage, monitor: str) -> int | None:
    status = await monitor_status(stage.client, monitor)
    if status is None or status.signals < SENSOR_SIGNALS:
        return None
    return await _steps(stage, FIRST_STEPS)


async def _waiting(stage: Stage, monitor: str) -> RecoveryStatus | None:
    for execution in await list_recoveries(stage.client, monitor):
        status = await recovery_status(stage.client, execution.id)
        if status is not None and status.state == "awaiting-approval":
            return status
    return None
