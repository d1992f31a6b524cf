"""An upgrade with Temporal's worker versioning, by the commands that docs/how-to/deploy.md names."""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from relight.cli.devserver import DevServer, find_temporal
from relight.contracts.messages import Note
from tests.worker.conftest import WorkerProcess
from tests.worker.test_guarding import cluster, the_guard, until

pytestmark = pytest.mark.temporal

TOO_EARLY = "have pollers|not found in Worker Deployment|missing active task queues"
"""Temporal knows a version, and its queues, only once workers have asked for work from them."""


@pytest.fixture
def newer(server: DevServer, worker: WorkerProcess, tmp_path: Path) -> Iterator[WorkerProcess]:
    """A second worker process, beside `worker`."""
    (tmp_path / "newer").mkdir()
    process = WorkerProcess(worker.environment, tmp_path / "newer")
    yield process
    if process.popen is not None and process.popen.poll() is None:
        process.popen.kill()
        process.popen.wait()


class Deployment:
    """`temporal worker deployment ...` about one deployment."""

    def __init__(self, server: DevServer, name: str) -> None:
        self._server, self._name = server, name

    def _run(self, *argv: str) -> Any:
        argv = ("worker", "deployment", *argv, "--address", self._server.address, "--output", "json")
        done = subprocess.run(
            [find_temporal(), *argv],
            capture_output=True,
            text=True,
            check=False,
            env={k: v for k, v in os.environ.items() if not k.startswith("TEMPORAL_")},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout) if done.stdout.startswith("{") else None

    async def set_current(self, build: str) -> None:
        names = ("--deployment-name", self._name, "--build-id", build)
        async with asyncio.timeout(60):
            while True:
                try:
                    await asyncio.to_thread(self._run, "set-current-version", *names, "--yes")
                except AssertionError as error:
                    if not re.search(TOO_EARLY, str(error)):
                        raise
                    await asyncio.sleep(0.2)
                else:
                    return

    def describe_version(self, build: str) -> Any:
        return self._run("describe-version", "--deployment-name", self._name, "--build-id", build)


async def version_of(client: Client, guard_id: str) -> str:
    described = await client.get_workflow_handle(guard_id).describe()
    version = described.raw_description.workflow_execution_info.versioning_info.deployment_version
    return version.build_id


async def test_a_guard_moves_to_the_newer_version_and_the_older_one_drains(
    worker: WorkerProcess, newer: WorkerProcess, server: DevServer, client: Client, tmp_path: Path
) -> None:
    guard, deployment = the_guard(client, tmp_path), Deployment(server, f"queue-{tmp_path.name}")
    named = {"RELIGHT_CLUSTER": cluster(tmp_path)}
    worker.start(RELIGHT_WORKER__BUILD_ID="1.0", **named).serving()
    await deployment.set_current("1.0")
    await until(guard, lambda s: True)
    assert await version_of(client, guard.id) == "1.0"

    newer.start(RELIGHT_WORKER__BUILD_ID="2.0", **named).serving()
    await deployment.set_current("2.0")
    async with asyncio.timeout(60):
        while await version_of(client, guard.id) != "2.0":
            # It moves with the next thing that happens to it, once Temporal has spread the word.
            await guard.signal("pause", Note(by="anna", reason="an upgrade"))
            await asyncio.sleep(1)
    assert await asyncio.to_thread(worker.stop) == 0
    status = await until(guard, lambda s: s.paused)
    assert status.counts.renewals == 1, "it went on with all that it knew"
    left = f"TemporalWorkerDeploymentVersion='queue-{tmp_path.name}:{{}}' AND ExecutionStatus='Running'"
    async with asyncio.timeout(60):  # visibility lags behind
        while [w.id async for w in client.list_workflows(left.format("2.0"))] != [guard.id]:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    assert [w.id async for w in client.list_workflows(left.format("1.0"))] == []
    assert deployment.describe_version("1.0")["drainageInfo"]["drainageStatus"] in {"draining", "drained"}
