"""Runs steps as Temporal does: each try with what the try before put into its heartbeat."""

import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.common import Context
from relight.config import Settings
from relight.contracts import Attempt, Model, TrainingJob
from relight.contracts.steps import NOT_YET
from relight.scheduler.port import Scheduler
from tests.activities.double import T0, Double, running

G = TypeVar("G")
R = TypeVar("R")
Step = Callable[[Context, G], Awaitable[R]]

RECOVERY = "recover:lab:42:0:abcd"
FIRST = Attempt(cluster="lab", job_id="42", submit_time=T0, restart_count=0)


class Runner:
    """One step's tries, on one scheduler."""

    def __init__(self, scheduler: Scheduler, state_dir: Path) -> None:
        self.context = Context(scheduler, Settings(state_dir=state_dir))
        self.details: list[Any] = []

    async def __call__(self, step: Step[G, R], given: G) -> R:
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(environment.info, heartbeat_details=self.details)
        environment.on_heartbeat = self._beat
        return await environment.run(step, self.context, given)

    def _beat(self, *details: Any) -> None:
        self.details = [d.model_dump(mode="json") if isinstance(d, Model) else d for d in details]

    async def fails(self, step: Step[G, Any], given: G, kind: str) -> str:
        """The message of the failure that the step must end with."""
        error = await self.error(step, given)
        assert error.type == kind, error
        assert error.non_retryable is (kind not in (NOT_YET, "SchedulerUnreachable"))
        return error.message

    async def error(self, step: Step[G, Any], given: G) -> ApplicationError:
        """The failure that the step must end with."""
        with pytest.raises(ApplicationError) as caught:
            await self(step, given)
        return caught.value


@pytest.fixture
def double() -> Double:
    return Double(running())


@pytest.fixture
def run(double: Double, tmp_path: Path) -> Runner:
    return Runner(double, tmp_path / "state")


def training(**fields: Any) -> TrainingJob:
    defaults: dict[str, Any] = {"cluster": "lab", "run": "r", "attempt": FIRST, "nodes": ("n1", "n2")}
    return TrainingJob(**(defaults | fields))


def step_line(step: int) -> str:
    """A step as the demo's trainer prints it."""
    return (
        f"[2026-12-02 05:00:00] iteration {step:8d}/  100000 | elapsed time per iteration (ms): 101.2 | "
        "lm loss: 1.23E+00 |\n"
    )


def step_lines(first: int, last: int) -> str:
    return "".join(map(step_line, range(first, last + 1)))
