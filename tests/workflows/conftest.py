"""A real Temporal dev server for the session; a worker, and a world to script, for each test."""

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from relight.cli.devserver import FAST, DevServer, find_temporal
from relight.contracts import RecoveryOutcome, TrainingJob
from relight.contracts.guard import GuardInput, GuardLimits, GuardStatus
from relight.contracts.ids import (
    GUARD_WORKFLOW,
    MONITOR_WORKFLOW,
    RECOVERY_WORKFLOW,
    SEARCH_ATTRIBUTES,
    recovery_id,
)
from relight.contracts.messages import (
    MonitorInput,
    MonitorResult,
    MonitorStatus,
    RecoveryInput,
    RecoveryStatus,
)
from tests.workflows import samples
from tests.workflows.world import World, activities
from workflows import WORKFLOWS

HISTORIES = Path(__file__).parent / "histories"
PATIENCE = 40.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--save-histories", action="store_true", help="record tests/workflows/histories anew")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with DevServer(tmp_path_factory.mktemp("temporal") / "temporal.db") as server:
        yield server


@pytest.fixture(scope="session")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """Suggests a renewal after few events."""
    config = {"limit.historyCount.suggestContinueAsNew": "60"}
    with DevServer(tmp_path_factory.mktemp("temporal-small") / "temporal.db", config=config) as server:
        yield server


class Lab:
    """One test's client, task queue and world."""

    def __init__(self, client: Client, queue: str, world: World, save: bool) -> None:
        self.client, self.queue, self.world, self._save = client, queue, world, save

    @property
    def guard_id(self) -> str:
        """Id of this test's guard, started or not."""
        return f"guard:{self.queue}"

    async def guard(self, **limits: Any) -> WorkflowHandle[Any, None]:
        """Starts a guard."""
        return await self.client.start_workflow(
            GUARD_WORKFLOW,
            GuardInput(cluster=self.queue, limits=GuardLimits(**limits)),
            id=self.guard_id,
            task_queue=self.queue,
        )

    async def until_guard(
        self, guard: WorkflowHandle[Any, Any], holds: Callable[[GuardStatus], bool]
    ) -> GuardStatus:
        """The guard's status, once it is as wanted."""
        status: GuardStatus = await self.until(lambda: guard.query("status", result_type=GuardStatus), holds)
        return status

    async def watch(
        self, job: TrainingJob | None = None, guard_id: str = "", *, archive: bool = False
    ) -> WorkflowHandle[Any, MonitorResult]:
        """Starts a monitor."""
        job = job or samples.job()
        return await self.client.start_workflow(
            MONITOR_WORKFLOW,
            MonitorInput(job=job, guard_id=guard_id, archive=archive),
            id=f"job:{self.queue}",
            task_queue=self.queue,
            result_type=MonitorResult,
        )

    async def recover(
        self, job: TrainingJob | None = None, **fields: Any
    ) -> WorkflowHandle[Any, RecoveryOutcome]:
        """Starts a recovery by itself, with no monitor."""
        job = job or samples.job()
        suffix = fields.pop("suffix", "")
        defaults: dict[str, Any] = {"monitor_id": "nobody", "diagnosis": samples.diagnosis()}
        return await self.client.start_workflow(
            RECOVERY_WORKFLOW,
            RecoveryInput(job=job, **(defaults | fields)),
            id=f"recover:{self.queue}{suffix}",
            task_queue=self.queue,
            result_type=RecoveryOutcome,
        )

    def recovery(self, anomaly: str = "a1", restart: int = 0) -> WorkflowHandle[Any, RecoveryOutcome]:
        """The recovery that a monitor started for this anomaly (it may not have yet)."""
        workflow_id = recovery_id(samples.attempt(restart), anomaly)
        return self.client.get_workflow_handle(workflow_id, result_type=RecoveryOutcome)

    async def status(self, monitor: WorkflowHandle[Any, Any]) -> MonitorStatus:
        return await monitor.query("status", result_type=MonitorStatus)

    async def plan(self, recovery: WorkflowHandle[Any, Any]) -> RecoveryStatus:
        """The recovery's status, once it waits for a person."""
        return await self.until(
            lambda: recovery.query("status", result_type=RecoveryStatus),
            lambda status: status.state == "awaiting-approval",
        )

    async def until(self, ask: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
        """Asks until the answer is right."""
        answer: Any = None
        for _ in range(int(PATIENCE / 0.05)):
            try:
                answer = await ask()
            except RPCError as error:
                answer = error
            else:
                if holds(answer):
                    return answer
            await asyncio.sleep(0.05)
        raise AssertionError(f"not within {PATIENCE} s; last: {answer}")

    async def until_status(
        self, monitor: WorkflowHandle[Any, Any], holds: Callable[[MonitorStatus], bool]
    ) -> MonitorStatus:
        status: MonitorStatus = await self.until(lambda: self.status(monitor), holds)
        return status

    async def save(self, name: str, *handles: WorkflowHandle[Any, Any]) -> None:
        """Keeps the histories of a scenario for the replay test, if asked to on the command line."""
        if not self._save:
            return
        HISTORIES.mkdir(exist_ok=True)
        for n, handle in enumerate(handles):
            history = await handle.fetch_history()
            kind = {"recover": "recovery", "guard": "guard", "drain": "drain"}.get(
                handle.id.split(":")[0], "monitor"
            )
            text = re.sub(r'"identity": ?"[^"]*"', '"identity":"recorded"', history.to_json())
            text = re.sub(r'"stackTrace": ?"(?:[^"\\]|\\.)*"', '"stackTrace":""', text)
            (HISTORIES / f"{name}.{n}.{kind}.json").write_text(text + "\n")


async def connect(server: DevServer) -> Client:
    return await Client.connect(server.address, data_converter=pydantic_data_converter)


def worker(client: Client, queue: str, world: World) -> Worker:
    return Worker(client, task_queue=queue, workflows=list(WORKFLOWS), activities=activities(world))


@pytest.fixture
def world() -> Iterator[World]:
    with samples.another_job():
        yield World()


async def _lab(client: Client, world: World, request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    queue = uuid.uuid4().hex[:8]
    save = bool(request.config.getoption("--save-histories", default=False))
    async with worker(client, queue, world):
        yield Lab(client, queue, world, save)
        await _end_open_workflows(client, queue)


@pytest.fixture
async def lab(server: DevServer, world: World, request: pytest.FixtureRequest) -> AsyncIterator[Lab]:
    async for one in _lab(await connect(server), world, request):
        yield one


@pytest.fixture
async def small_lab(
    small_server: DevServer, world: World, request: pytest.FixtureRequest
) -> AsyncIterator[Lab]:
    async for one in _lab(await connect(small_server), world, request):
        yield one


@pytest.fixture
async def memory_client() -> AsyncIterator[Client]:
    """On a server of its own that keeps everything in memory: the file would be what is measured."""
    options = [o for name, value in FAST.items() for o in ("--dynamic-config-value", f"{name}={value}")]
    async with await WorkflowEnvironment.start_local(
        data_converter=pydantic_data_converter,
        dev_server_existing_path=str(find_temporal()),
        dev_server_extra_args=options,
        search_attributes=SEARCH_ATTRIBUTES,
    ) as env:
        yield env.client


@pytest.fixture
async def memory_lab(
    memory_client: Client, world: World, request: pytest.FixtureRequest
) -> AsyncIterator[Lab]:
    async for one in _lab(memory_client, world, request):
        yield one


async def _end_open_workflows(client: Client, queue: str) -> None:
    query = f"TaskQueue='{queue}' AND ExecutionStatus='Running'"
    async for found in client.list_workflows(query):
        try:
            await client.get_workflow_handle(found.id).terminate("the test is over")
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:  # it ended meanwhile
                raise
