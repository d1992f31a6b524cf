"""A worker that meets a disaster once, in one step: `python -m bench.killing_worker`.

By its environment: `KILL_STEP` names the activity, `KILL_HOW` the disaster, `KILL_DIR` a directory to meet
the harness in. All else is relight's own worker. Disasters: `before` and `after` kill this process before
the step runs, or when it has run and nobody was told; `lost` lets the step's first command to Slurm act and
loses its answer; `temporal` and `slurmctld` wait at the step's beginning until the harness has killed that.
"""

import asyncio
import os
import signal
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor, Worker

import worker.main
from relight.config import load_settings
from relight.scheduler.port import SchedulerUnreachable
from relight.scheduler.slurm_run import SlurmCommands

STEP, HOW, DIRECTORY = (os.environ[f"KILL_{name}"] for name in ("STEP", "HOW", "DIR"))
MUTATING = ("update", "requeuehold", "hold", "release", "scancel", "sbatch")
_loses: ContextVar[bool] = ContextVar("loses", default=False)


def first_time() -> bool:
    """The disaster comes once, whoever starts this worker again."""
    try:
        (Path(DIRECTORY) / "fired").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Disasters(Interceptor):
    """Puts itself around each activity."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """The one that acts."""
        return _Disaster(next)


class _Disaster(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        if activity.info().activity_type != STEP:
            return await super().execute_activity(input)
        if HOW == "before" and first_time():
            os.kill(os.getpid(), signal.SIGKILL)
        if HOW in {"temporal", "slurmctld"} and first_time():
            while not (Path(DIRECTORY) / "killed").exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.05)
        _loses.set(HOW == "lost")
        result = await super().execute_activity(input)
        if HOW == "after" and first_time():
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def lossy(command: Any) -> Any:
    """The command, whose answer is lost once; in a step that changes something, after such a command."""

    async def run(self: SlurmCommands, program: str, *args: str) -> str:
        answer: str = await command(self, program, *args)
        mutates = program in MUTATING or (bool(args) and args[0] in MUTATING)
        if _loses.get() and mutates is (os.environ["KILL_MUTATES"] == "yes") and first_time():
            raise SchedulerUnreachable(f"{program} {' '.join(args[:2])}: no answer in time (it has acted)")
        return answer

    return run


class _Worker(Worker):
    def __init__(self, client: Any, **options: Any) -> None:
        options["interceptors"] = [*options["interceptors"], Disasters()]
        super().__init__(client, **options)


if __name__ == "__main__":
    SlurmCommands.run = lossy(SlurmCommands.run)  # type: ignore[method-assign]
    SlurmCommands.ask = lossy(SlurmCommands.ask)  # type: ignore[method-assign]
    worker.main.Worker = _Worker  # type: ignore[misc]
    asyncio.run(worker.main.run_worker(load_settings()))
