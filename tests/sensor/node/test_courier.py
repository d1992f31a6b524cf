"""The courier, with a real Temporal server and the local scheduler: who is told, and that nothing is lost."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from relight.contracts import JobInfo, JobState, TrainingJob
from relight.scheduler.local import LocalScheduler
from relight.scheduler.port import SchedulerUnreachable, SubmitRequest
from relight.temporal import TemporalUnavailable
from sensor.node import courier as courier_module
from sensor.node.courier import Courier
from sensor.node.facts import Fact, Spool
from sensor.store import Store
from tests.sensor.conftest import told, until, watch
from tests.sensor.node.test_facts import fact

pytestmark = pytest.mark.temporal


class Site:
    """A spool with a courier, and a scheduler with jobs."""

    def __init__(self, tmp_path: Path, client: Client) -> None:
        self.cluster = f"nodes-{uuid.uuid4().hex[:8]}"
        self.scheduler = LocalScheduler(tmp_path / "scheduler", cluster=self.cluster)
        self.spool = Spool(tmp_path / "spool")
        self.spool.open()
        self.store = Store(tmp_path / "outbox.sqlite3")
        self.client = client
        self.away = False
        self._dir = tmp_path

    async def connect(self) -> Client:
        if self.away:
            raise TemporalUnavailable("away")
        return self.client

    def courier(self, node: str, cluster: str | None = None) -> Courier:
        cluster = self.cluster if cluster is None else cluster
        return Courier(node, cluster, self.spool, self.store, self.scheduler, self.connect)

    async def job(self, **more: Any) -> tuple[JobInfo, WorkflowHandle[Any, Any]]:
        """A running job with a monitor."""
        script = "#!/bin/bash\nexec sleep 300\n"
        job_id = await self.scheduler.submit(SubmitRequest(script=script, work_dir=str(self._dir), **more))

        async def running() -> bool:
            return (await self.scheduler.job(job_id)).state is JobState.RUNNING

        await until("it runs", running)
        info = await self.scheduler.job(job_id)
        attempt = info.attempt(self.cluster)
        handle = await watch(self.client, TrainingJob(cluster=self.cluster, run="train", attempt=attempt))
        await self._listed(job_id)
        return info, handle

    async def _listed(self, job_id: str) -> None:
        """Temporal's lists lag behind."""

        async def listed() -> bool:
            found = self.client.list_workflows(
                f"RelightJobId = '{job_id}' AND RelightCluster = '{self.cluster}'"
            )
            return any([execution async for execution in found])

        await until("the monitor is listed", listed)


def now_fact(signature: str = "kernel.xid-79", **more: Any) -> Fact:
    return fact(signature, at=datetime.now(UTC) + timedelta(seconds=1), **more)


@pytest.fixture
async def site(tmp_path: Path, client: Client, worker: None) -> AsyncIterator[Site]:
    site = Site(tmp_path, client)
    yield site
    for node in await site.scheduler.nodes():
        for info in await site.scheduler.jobs_on(node):
            await site.scheduler.cancel(info.job_id)
    site.store.close()


async def test_only_monitors_of_jobs_on_this_node_are_told(site: Site) -> None:
    here, monitor = await site.job()
    there, other = await site.job()
    site.spool.put(now_fact())
    await site.courier(here.nodes[0]).deliver()
    assert len(site.spool) == 0
    ((kind, anomaly),) = await told(monitor)
    assert (kind, anomaly["cause"], anomaly["hold_out"]) == ("anomaly", "gpu_fallen_off_bus", True)
    assert anomaly["attempt"]["job_id"] == here.job_id
    assert await told(other) == []
    assert there.nodes != here.nodes


async def test_a_node_without_a_watched_job_tells_nobody(site: Site) -> None:
    _, monitor = await site.job()
    site.spool.put(now_fact())
    await site.courier("node04").deliver()
    assert len(site.spool) == 0
    assert await told(monitor) == []


async def test_what_is_told_twice_arrives_once_or_with_the_same_id(site: Site) -> None:
    info, monitor = await site.job()
    one = now_fact()
    for _ in range(2):  # it was killed after the signal, before the fact had left the spool
        site.spool.put(one)
        await site.courier(info.nodes[0]).deliver()
    assert len({anomaly["anomaly_id"] for _, anomaly in await told(monitor)}) == 1


async def test_nothing_leaves_the_spool_while_temporal_or_the_scheduler_is_away(site: Site) -> None:
    info, monitor = await site.job()
    courier = site.courier(info.nodes[0])
    site.spool.put(now_fact())
    site.away = True
    with pytest.raises(TemporalUnavailable):
        await courier.deliver()
    assert len(site.spool) == 1
    site.away = False

    async def fails(node: str) -> list[JobInfo]:
        raise SchedulerUnreachable("no answer")

    real: Callable[[str], Awaitable[Any]] = site.scheduler.jobs_on
    site.scheduler.jobs_on = fails  # type: ignore[method-assign]
    with pytest.raises(SchedulerUnreachable):
        await courier.deliver()
    assert len(site.spool) == 1
    site.scheduler.jobs_on = real  # type: ignore[method-assign]
    await courier.deliver()
    assert len(site.spool) == 0
    assert len(await told(monitor)) == 1


async def test_a_fact_that_could_not_be_told_for_an_hour_is_given_up(site: Site) -> None:
    info, monitor = await site.job()
    site.spool.put(fact(at=datetime.now(UTC) - timedelta(hours=2)))
    await site.courier(info.nodes[0]).deliver()
    assert len(site.spool) == 0
    assert await told(monitor) == []


async def test_it_asks_who_the_cluster_is_and_ends_when_all_is_told(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier_module, "IDLE", 4.0)
    info, monitor = await site.job()
    site.spool.put(now_fact())
    running = asyncio.create_task(site.courier(info.nodes[0], cluster="").run(asyncio.Event()))
    await until("told", lambda: len(site.spool) == 0)
    site.spool.put(now_fact("kernel.xid-48"))
    await asyncio.wait_for(running, 20)
    assert [a["evidence"][0]["signature"] for _, a in await told(monitor)] == [
        "kernel.xid-79",
        "kernel.xid-48",
    ]


async def test_many_facts_are_one_question_to_the_scheduler(site: Site) -> None:
    info, monitor = await site.job()
    asked = 0
    real: Callable[[str], Awaitable[Any]] = site.scheduler.jobs_on

    async def counted(node: str) -> Any:
        nonlocal asked
        asked += 1
        return await real(node)

    site.scheduler.jobs_on = counted  # type: ignore[method-assign]
    for n in range(100):
        site.spool.put(now_fact(f"kernel.xid-{n}"))
    await site.courier(info.nodes[0]).deliver()
    assert asked == 1
    assert len(await told(monitor)) == 100


async def test_where_the_jobs_are_known_only_these_are_asked_about(site: Site) -> None:
    info, monitor = await site.job()
    elsewhere, other = await site.job()

    async def costly(node: str) -> list[JobInfo]:
        raise AssertionError("the list of all jobs was asked for")

    real: Callable[[str], Awaitable[Any]] = site.scheduler.jobs_on
    site.scheduler.jobs_on = costly  # type: ignore[method-assign]
    site.spool.put(now_fact(jobs_here=(info.job_id, elsewhere.job_id)))
    site.spool.put(now_fact("kernel.xid-48", jobs_here=()))
    await site.courier(info.nodes[0]).deliver()
    site.scheduler.jobs_on = real  # type: ignore[method-assign]
    assert len(await told(monitor)) == 2
    assert await told(other) == []  # it has no process here, whatever was said
