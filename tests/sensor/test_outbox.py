"""Signals reach a real Temporal server at least once and in order, whatever becomes of it meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from relight.cli.devserver import DevServer
from relight.contracts import Attempt, TrainingJob
from sensor.messages import Message
from sensor.outbox import Outbox, _undeliverable
from sensor.store import Store
from tests.sensor.conftest import told, until, watch
from tests.sensor.making import START

pytestmark = pytest.mark.temporal


def job(number: str) -> TrainingJob:
    attempt = Attempt(cluster="outbox", job_id=number, submit_time=START, restart_count=0)
    return TrainingJob(cluster="outbox", run="train", attempt=attempt)


def signal(n: int) -> Message:
    return Message(signal="report_anomaly", key=f"a{n}", payload=f'{{"n": {n}}}')


class Sending:
    """An outbox at work."""

    def __init__(self, store: Store, client: Client) -> None:
        self.store = store
        self.given_up: list[str] = []
        self.outbox = Outbox(store, self._connect, self.given_up.append)
        self._client = client
        self.task = asyncio.create_task(self.outbox.run())

    async def _connect(self) -> Client:
        return self._client

    def put(self, monitor: str, *messages: Message) -> None:
        self.store.save(monitor, job("0"), "{}", messages=messages)
        self.outbox.wake()

    async def empty(self) -> None:
        await until("the outbox is empty", lambda: self.store.depth() == 0, 60)


@pytest.fixture
async def sending(tmp_path: Path, client: Client) -> AsyncIterator[Sending]:
    sending = Sending(Store(tmp_path / "s"), client)
    yield sending
    sending.task.cancel()
    await asyncio.gather(sending.task, return_exceptions=True)


async def test_signals_arrive_in_order_for_each_job(sending: Sending, client: Client, worker: None) -> None:
    handles = [await watch(client, job(f"1{n}")) for n in range(3)]
    for n in range(150):
        for handle in handles:
            sending.put(handle.id, signal(n))
    await sending.empty()
    for handle in handles:
        assert [a["n"] for _, a in await told(handle)] == list(range(150))
    assert sending.given_up == []


async def test_a_monitor_that_has_ended_is_told_nothing_more_and_holds_nobody_up(
    sending: Sending, client: Client, worker: None
) -> None:
    ended, running = await watch(client, job("20")), await watch(client, job("21"))
    await ended.signal("end")
    await ended.result()
    sending.put(ended.id, signal(1), signal(2))
    sending.put("never:there", signal(1))
    sending.put(running.id, signal(3))
    await sending.empty()
    assert [a["n"] for _, a in await told(running)] == [3]
    assert sending.given_up == ["ended"] * 3


async def test_a_signal_that_temporal_refuses_is_given_up(
    sending: Sending, client: Client, worker: None
) -> None:
    handle = await watch(client, job("30"))
    huge = Message(signal="report_anomaly", key="huge", payload='{"n": "%s"}' % ("x" * 3_000_000))
    sending.put(handle.id, huge, signal(1))
    await sending.empty()
    assert [a["n"] for _, a in await told(handle)] == [1]
    assert sending.given_up == ["refused"]


async def test_nothing_is_lost_while_temporal_is_away(
    tmp_path: Path, sending: Sending, client: Client, worker: None, temporal_server: DevServer
) -> None:
    handle = await watch(client, job("40"))
    sending.put(handle.id, signal(0))
    await sending.empty()
    temporal_server.kill()
    try:
        for n in range(1, 30):
            sending.put(handle.id, signal(n))
        await until("it notices", lambda: sending.outbox.backoff > 0)
        assert sending.store.depth() == 29
    finally:
        temporal_server.restart()
    await sending.empty()
    await until("the worker is back", lambda: _has(handle, 30), 60)
    got = [a["n"] for _, a in await told(handle)]
    assert list(dict.fromkeys(got)) == list(range(30))
    assert sending.given_up == []


async def _has(handle: object, count: int) -> bool:
    return len({a["n"] for _, a in await told(handle)}) >= count  # type: ignore[arg-type]


async def test_what_a_killed_sensor_left_is_sent_by_the_next(
    tmp_path: Path, client: Client, worker: None
) -> None:
    handle = await watch(client, job("50"))
    Store(tmp_path / "s").save(handle.id, job("50"), "{}", messages=[signal(1), signal(2)])
    sending = Sending(Store(tmp_path / "s"), client)
    await sending.empty()
    sending.put(handle.id, signal(2), signal(3))
    await sending.empty()
    assert [a["n"] for _, a in await told(handle)] == [1, 2, 3]
    sending.task.cancel()
    await asyncio.gather(sending.task, return_exceptions=True)


@pytest.mark.parametrize(
    ("status", "message", "why"),
    [
        (RPCStatusCode.NOT_FOUND, "workflow execution already completed", "ended"),
        (RPCStatusCode.NOT_FOUND, "Namespace default is not found.", None),
        (RPCStatusCode.INVALID_ARGUMENT, "Blob data size exceeds limit.", "refused"),
        (RPCStatusCode.INVALID_ARGUMENT, "exceeded workflow execution limit for signal events", None),
        (RPCStatusCode.UNAVAILABLE, "connection refused", None),
    ],
)
def test_only_what_can_never_arrive_is_given_up(status: RPCStatusCode, message: str, why: str | None) -> None:
    """A full run is followed by another one, which takes the signal."""
    assert _undeliverable(RPCError(message, status, b"")) == why
