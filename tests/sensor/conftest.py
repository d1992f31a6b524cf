"""A real Temporal server, and a monitor that only records what it is told."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from relight.cli.devserver import DevServer
from relight.contracts import TrainingJob, ids
from relight.contracts.messages import MonitorInput


@workflow.defn(name=ids.MONITOR_WORKFLOW)
class Recorder:
    """Stands in for the monitor: keeps every signal as it came."""

    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.over = False

    @workflow.run
    async def run(self, job: dict[str, Any]) -> int:
        await workflow.wait_condition(lambda: self.over)
        return len(self.told)

    @workflow.signal
    def report_anomaly(self, anomaly: dict[str, Any]) -> None:
        self.told.append(("anomaly", anomaly))

    @workflow.signal
    def report_attempt(self, report: dict[str, Any]) -> None:
        self.told.append(("attempt", report))

    @workflow.signal
    def end(self) -> None:
        self.over = True

    @workflow.query
    def all(self) -> list[tuple[str, dict[str, Any]]]:
        return self.told


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """A server that several tests share; a test that kills it starts it again."""
    with DevServer(tmp_path_factory.mktemp("temporal") / "temporal.db") as server:
        yield server


@pytest.fixture
async def client(temporal_server: DevServer) -> Client:
    return await Client.connect(temporal_server.address, data_converter=pydantic_data_converter)


@pytest.fixture
async def worker(client: Client) -> AsyncIterator[None]:
    with ThreadPoolExecutor(1) as pool:
        async with Worker(
            client,
            task_queue="recorder",
            workflows=[Recorder],
            activity_executor=pool,
            max_cached_workflows=50,
        ):
            yield


async def watch(client: Client, job: TrainingJob) -> WorkflowHandle[Any, Any]:
    """Starts the recorder as the job's monitor, as `relight watch` starts the real one."""
    return await client.start_workflow(
        ids.MONITOR_WORKFLOW,
        MonitorInput(job=job),
        id=ids.monitor_id(job.attempt),
        task_queue="recorder",
        memo={ids.MEMO_JOB: job.model_dump(mode="json")},
        search_attributes=TypedSearchAttributes(
            [
                SearchAttributePair(ids.CLUSTER, job.cluster),
                SearchAttributePair(ids.JOB_ID, job.attempt.job_id),
            ]
        ),
    )


async def told(handle: WorkflowHandle[Any, Any]) -> list[tuple[str, dict[str, Any]]]:
    """What the monitor was told so far."""
    return [tuple(entry) for entry in await handle.query("all")]


async def until(what: str, holds: Callable[[], Any], seconds: float = 30) -> Any:
    """Waits until `holds()`, which may be async, is true, and returns what it says."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        value = holds()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert asyncio.get_running_loop().time() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.05)
