"""People are told by a webhook, beside the recovery and never in its way; the address is in no history."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pydantic import SecretStr
from temporalio.client import Client
from temporalio.worker import Worker

from activities.common import Context
from activities.runbook import Runbook
from relight.config import NotifySettings, Settings
from relight.contracts import Cause, Mode, Outcome, RecoveryOutcome
from relight.contracts.guard import GuardInput, NodeReport
from relight.contracts.ids import GUARD_WORKFLOW
from tests.activities.double import Double, running
from tests.activities.webhook import Webhook, serving
from tests.workflows import samples
from tests.workflows.conftest import Lab
from tests.workflows.world import World, activities
from workflows import WORKFLOWS


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with serving() as hook:
        yield hook


@asynccontextmanager
async def lab_with(client: Client, url: str, queue: str) -> AsyncIterator[Lab]:
    """A worker whose steps are scripted, but whose `notify` is the real one."""
    world = World()
    notify = NotifySettings.model_validate({"url": SecretStr(url), "timeout": "500ms"})
    real = Runbook(Context(Double(running()), Settings(notify=notify)))
    steps = [step for step in activities(world) if step.__name__ != "notify"]
    async with Worker(client, task_queue=queue, workflows=list(WORKFLOWS), activities=[*steps, real.notify]):
        yield Lab(client, queue, world, save=False)


async def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if holds():
                return
            await asyncio.sleep(0.05)


async def test_an_approval_and_an_end_are_told_and_the_address_is_in_no_history(
    client: Client, hook: Webhook, tmp_path: Path
) -> None:
    hook.answers = [500, 200]
    async with lab_with(client, hook.url, f"told-{tmp_path.name}") as lab:
        recovery = await lab.recover(job=samples.job(Mode.OBSERVE), notify=True)
        shown = await lab.plan(recovery)
        await until(lambda: len(hook.got) == 2)  # once more after the 500
        await recovery.signal("approve", {"by": "ada"})
        outcome = await recovery.result()
        history = (await recovery.fetch_history()).to_json()
    assert outcome.outcome is Outcome.RESUMED
    first, again, end = [posted for _, posted in hook.got]
    assert first == again
    assert (first["event"], first["plan"]) == ("approval", shown.plan_digest)
    assert shown.plan_digest in first["command"]
    assert (end["event"], end["state"], end["workflow_id"]) == ("ended", "resumed", recovery.id)
    assert "notify" in history
    assert "s3cr3t" not in history
    assert str(hook.url.split("/")[2]) not in history


@pytest.mark.parametrize("broken", ["slow", "dead", "failing"])
async def test_a_broken_webhook_neither_delays_nor_fails_a_recovery(
    client: Client, hook: Webhook, tmp_path: Path, broken: str
) -> None:
    hook.seconds, hook.answers = (20, [200]) if broken == "slow" else (0, [500])
    url = "http://127.0.0.1:1/s3cr3t" if broken == "dead" else hook.url
    async with lab_with(client, url, f"{broken}-{tmp_path.name}") as lab:
        began = time.monotonic()
        recovery = await lab.recover(job=samples.job(Mode.ACT), notify=True)
        status = await lab.until(lambda: recovery.query("status"), lambda s: s["state"] == "ended")
        took = time.monotonic() - began
        assert status["outcome"]["outcome"] == Outcome.RESUMED
        assert took < 15
        if broken == "failing":  # the others end in the same way, after as many tries
            outcome: RecoveryOutcome = await recovery.result()
            assert outcome.outcome is Outcome.RESUMED
        history = (await recovery.fetch_history()).to_json()
        if broken != "failing":
            await recovery.terminate("the test is over")
    assert "s3cr3t" not in history


async def test_nothing_is_told_where_nobody_asked_for_it(
    client: Client, hook: Webhook, tmp_path: Path
) -> None:
    async with lab_with(client, hook.url, f"quiet-{tmp_path.name}") as lab:
        recovery = await lab.recover(job=samples.job(Mode.ACT))
        await recovery.result()
        history = (await recovery.fetch_history()).to_json()
    assert hook.got == []
    assert '"notify"' not in history


async def test_a_tripped_breaker_is_told_once(client: Client, hook: Webhook, tmp_path: Path) -> None:
    queue = f"breaker-{tmp_path.name}"
    async with lab_with(client, hook.url, queue) as lab:
        guard = await client.start_workflow(
            GUARD_WORKFLOW, GuardInput(cluster=queue, notify=True), id=lab.guard_id, task_queue=queue
        )
        report = NodeReport(nodes=("n1", "n2", "n3"), cause=Cause.GPU_HARDWARE, at=datetime.now(UTC), job="1")
        await guard.signal("report_node", report)
        await until(lambda: bool(hook.got))
        await guard.signal("report_node", report.model_copy(update={"nodes": ("n4",), "job": "2"}))
        await lab.until_guard(guard, lambda s: s.counts.reports == 2)
        await asyncio.sleep(0.5)
        await guard.terminate("the test is over")
    ((_, posted),) = hook.got
    assert (posted["event"], posted["workflow_id"]) == ("breaker", lab.guard_id)
    assert "3 nodes of the cluster" in posted["text"]
    assert posted["command"] == "relight guard reset"
