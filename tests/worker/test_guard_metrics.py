"""How the guard stands, as Prometheus sees it: asked of a real guard, read from a real runtime's page."""

import asyncio
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from temporalio.client import Client
from temporalio.common import SearchAttributePair, TypedSearchAttributes
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from relight.cli.devserver import HOST, free_port
from relight.contracts import Cause
from relight.contracts.guard import NodeReport, PermitKind, PermitRequest
from relight.contracts.ids import CLUSTER, RECOVERY_WORKFLOW, STATE
from relight.contracts.messages import Note
from tests.worker.conftest import WorkerProcess
from tests.worker.test_guarding import cluster, the_guard, until
from tests.worker.test_worker import scrape
from worker import metrics
from worker.guard_metrics import GuardMetrics

pytestmark = pytest.mark.temporal


class Page:
    """What one runtime serves."""

    def __init__(self) -> None:
        self.address = f"{HOST}:{free_port()}"
        config = PrometheusConfig(bind_address=self.address, counters_total_suffix=True)
        self.runtime = Runtime(telemetry=TelemetryConfig(metrics=config))

    def values(self) -> dict[tuple[str, ...], float]:
        """By name and the values of the labels, in the order of the names of the labels."""
        return {
            (sample.name, *(value for name, value in sorted(sample.labels.items()) if name in OURS)): (
                sample.value
            )
            for family in text_string_to_metric_families(scrape(self.address))
            for sample in family.samples
            if sample.name.startswith("relight_")
        }


OURS = {label for metric in metrics.METRICS for label in metric.labels} - {"cluster"}


@pytest.fixture(scope="module")
def page() -> Page:
    return Page()


async def test_what_the_guard_allows_is_shown(
    worker: WorkerProcess, client: Client, tmp_path: Path, page: Page
) -> None:
    guard = the_guard(client, tmp_path)
    worker.start(RELIGHT_CLUSTER=cluster(tmp_path), RELIGHT_GUARD_LIMITS__RECOVERIES_AT_ONCE="1").serving()
    await until(guard, lambda s: s.limits.recoveries_at_once == 1)
    now = datetime.now(UTC)
    for node in ("n1", "n2", "n3"):
        told = NodeReport(nodes=(node,), cause=Cause.NVLINK, at=now, partition="gpu", job=node)
        await guard.signal("report_node", told)
    for holder in ("one", "two"):
        await client.start_workflow(  # somebody who can be answered
            "Nobody", id=f"{holder}:{tmp_path.name}", task_queue=f"nobody-{tmp_path.name}"
        )
        await guard.signal("request_permit", PermitRequest(holder=f"{holder}:{tmp_path.name}"))
    drain = PermitRequest(
        holder=f"one:{tmp_path.name}", kind=PermitKind.DRAIN, nodes=("n1",), partition="gpu"
    )
    await guard.signal("request_permit", drain)
    await until(guard, lambda s: s.counts.granted == 1 and s.counts.refused == 1 and s.queued == 1)
    await guard.signal("pause", Note(by="anna", reason="storage"))
    await until(guard, lambda s: s.paused)

    gauges = GuardMetrics(client, page.runtime.metric_meter, cluster(tmp_path))
    await gauges.look()
    seen = page.values()
    assert seen["relight_guard_up",] == 1
    assert seen["relight_guard_paused",] == 1
    assert seen["relight_guard_observes",] == 0
    assert seen["relight_guard_permits", "recovery"] == 1
    assert seen["relight_guard_permits", "drain"] == 0
    assert seen["relight_guard_waiting",] == 1
    assert seen["relight_guard_decided", "granted"] == 1
    assert seen["relight_guard_decided", "refused"] == 1
    assert seen["relight_guard_budget_used", "recoveries at once"] == 1
    assert seen["relight_guard_budget_limit", "drains per hour"] == 4
    assert seen["relight_guard_breaker", "gpu", "open"] == 1
    assert seen["relight_guard_breaker", "gpu", "closed"] == 0
    assert seen["relight_guard_breaker_nodes", "gpu"] == 3
    assert seen["relight_guard_breaker_trips_at", "gpu"] == 3
    assert seen["relight_guard_lemon_nodes",] == 0

    await guard.terminate()
    await gauges.look()
    seen = page.values()
    assert seen["relight_guard_up",] == 0
    assert seen["relight_guard_paused",] == 1, "its last answer stays"


async def test_open_recoveries_are_counted_by_state(client: Client, tmp_path: Path, page: Page) -> None:
    name = cluster(tmp_path)

    async def begin(number: int, state: str) -> Any:
        pairs = [SearchAttributePair(CLUSTER, name), SearchAttributePair(STATE, state)]
        return await client.start_workflow(
            RECOVERY_WORKFLOW,
            id=f"recover:{name}:{number}",
            task_queue=f"nobody-{name}",
            search_attributes=TypedSearchAttributes(pairs),
        )

    held = [await begin(0, "awaiting-approval"), await begin(1, "awaiting-approval")]
    resuming = await begin(2, "verifying")
    gauges = GuardMetrics(client, page.runtime.metric_meter, name, has_guard=False)

    async def shown(state: str, number: int) -> None:
        async with asyncio.timeout(20):  # visibility lags behind
            while True:
                await gauges.look()
                text = scrape(page.address)
                if re.search(
                    rf'^relight_open_recoveries{{.*cluster="{name}".*state="{state}".*}} {number}$',
                    text,
                    re.M,
                ):
                    return
                await asyncio.sleep(0.2)

    await shown("awaiting-approval", 2)
    await shown("verifying", 1)
    await resuming.terminate()
    await shown("verifying", 0)
    for handle in held:
        await handle.terminate()
    assert f'relight_guard_up{{cluster="{name}"' not in scrape(page.address), "no guard, no word of it"


def test_a_metric_takes_the_labels_that_it_says() -> None:
    with pytest.raises(ValueError, match="relight_guard_up has the labels"):
        metrics.show(Runtime(telemetry=TelemetryConfig()).metric_meter, metrics.GUARD_UP, 1, node="n1")
