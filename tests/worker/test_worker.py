"""The worker on a real Temporal server: polls keep their state, tries are audited, the end is orderly."""

import asyncio
import json
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from temporalio.client import Client

from relight.cli.devserver import HOST, free_port
from relight.contracts import (
    Cause,
    Diagnosis,
    JobState,
    Mode,
    Outcome,
    Policy,
    Progress,
    RecoveryOutcome,
    Symptom,
    TrainingJob,
)
from relight.contracts.ids import RECOVERY_WORKFLOW
from relight.contracts.messages import RecoveryInput
from relight.scheduler.local import LocalScheduler
from tests.activities.test_runbook_local import Training
from tests.deploy.dashboard import expressions
from tests.deploy.served import OF_TEMPORAL
from tests.worker.conftest import WorkerProcess

pytestmark = pytest.mark.temporal

SHOWN_AFTER_A_RECOVERY = {
    "Recoveries that ended, by outcome",
    "From fault to productive again",
    "From fault to detection",
    "Phases, median",
    "Suspicions, by what became of them",
    "Guard",
    "Breakers open",
    "Drained in the last hour",
    "Permits",
    "Permits decided",
    "Budgets used",
    "Faulty nodes that count for a breaker",
    "Lemons and incidents",
    "Queue lag, P95",
    "Slots that are free, by worker",
    "Pollers",
    "How long a try of a step takes, P95",
}
"""Panels of the dashboard that have something to show then."""

QUICK = Policy(name="test", confirm_window=timedelta(seconds=30), verify_window=timedelta(seconds=60))


@pytest.fixture
async def train(tmp_path: Path) -> AsyncIterator[Training]:
    directory = tmp_path / "run"
    directory.mkdir()
    training = Training(LocalScheduler(tmp_path / "state"), directory)
    yield training
    if training.job_id:
        await training.scheduler.cancel(training.job_id)
        await training.until(lambda info: not info.completing)


async def crash(train: Training) -> tuple[TrainingJob, Diagnosis]:
    job = await train.start()
    train.fault("exception")
    await train.until(lambda info: info.state is JobState.FAILED)
    return job.model_copy(update={"mode": Mode.ACT, "policy": QUICK}), train.diagnosis(Symptom.CRASH)


async def start_recovery(client: Client, tmp_path: Path, job: TrainingJob, diagnosis: Diagnosis) -> Any:
    return await client.start_workflow(
        RECOVERY_WORKFLOW,
        RecoveryInput(monitor_id="nobody", job=job, diagnosis=diagnosis),
        id=f"recover:{tmp_path.name}",
        task_queue=f"queue-{tmp_path.name}",
        result_type=RecoveryOutcome,
    )


def scrape(address: str, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
        return str(answer.read().decode())


@contextmanager
def prometheus(directory: Path, target: str) -> Iterator[Callable[[str], float | None]]:
    """A real Prometheus that scrapes the target; yields what asks it for one number."""
    program = shutil.which("prometheus")
    assert program, "Prometheus is not installed: apt-get install prometheus"
    address = f"{HOST}:{free_port()}"
    config = directory / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 200ms, scrape_timeout: 200ms}\n"
        f"scrape_configs: [{{job_name: relight, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    argv = [program, f"--config.file={config}", f"--storage.tsdb.path={directory / 'tsdb'}"]
    with (directory / "prometheus.log").open("wb") as out:
        process = subprocess.Popen([*argv, f"--web.listen-address={address}"], stdout=out, stderr=out)

    def ask(query: str) -> float | None:
        try:
            answer = json.loads(scrape(address, f"/api/v1/query?query={quote(query)}"))
        except OSError:  # it is still starting
            return None
        found = answer["data"]["result"]
        return float(found[0]["value"][1]) if found else None

    try:
        yield ask
    finally:
        process.terminate()
        process.wait(20)


async def eventually(test: Callable[[], Any], timeout: float = 40) -> Any:
    async with asyncio.timeout(timeout):
        while not (found := await asyncio.to_thread(test)):  # noqa: ASYNC110 - in another process
            await asyncio.sleep(0.2)
    return found


async def test_a_recovery_and_its_metrics_in_prometheus(
    worker: WorkerProcess, train: Training, client: Client, tmp_path: Path
) -> None:
    address = f"{HOST}:{free_port()}"
    worker.start(RELIGHT_WORKER__METRICS_ADDRESS=address).serving()
    handle = await start_recovery(client, tmp_path, *await crash(train))
    outcome = await asyncio.wait_for(handle.result(), 60)
    assert outcome.outcome is Outcome.RESUMED, outcome
    assert (await train.info()).restart_count == 1

    for metric in (
        "relight_recoveries_total{",
        "relight_detections_total{",
        "temporal_num_pollers",
        "temporal_workflow_completed",
        "relight_guard_up{",
    ):
        assert await eventually(lambda metric=metric: metric in scrape(address)), metric
    with prometheus(tmp_path, address) as ask:
        assert await eventually(lambda: ask('up{job="relight"}')) == 1
        assert await eventually(lambda: ask('relight_recoveries_total{outcome="resumed"}')) == 1
        tries = 'relight_step_tries_total{step="drain_job",outcome="done"}'
        assert await eventually(lambda: ask(tries)) == 1
        assert await eventually(lambda: ask('relight_recovery_seconds_count{phase="running"}')) == 1
        for name in OF_TEMPORAL:
            assert await eventually(lambda name=name: ask(f'count({{__name__=~"{name}(_count)?"}})')), name
        shown = [
            (title, query) for title, query in expressions(since="5m") if title in SHOWN_AFTER_A_RECOVERY
        ]
        assert {title for title, _ in shown} == SHOWN_AFTER_A_RECOVERY
        for title, query in shown:
            assert await eventually(lambda query=query: ask(f"count({query})")), title


async def test_the_heartbeat_of_a_poll_survives_its_tries_and_its_worker(
    worker: WorkerProcess, train: Training, client: Client, tmp_path: Path
) -> None:
    """`confirm_fault` has no heartbeat timeout; what its first try saw must reach the later ones even so."""
    job = await train.start()
    now = datetime.now(UTC)
    slow = Progress(step=train.step(), at=now, interval=timedelta(seconds=600))
    diagnosis = Diagnosis(
        symptom=Symptom.CRASH,
        cause=Cause.UNKNOWN,
        retryable=True,
        occurred_at=now,
        detected_at=now,
        progress=slow,
    )
    worker.start().serving()
    handle = await start_recovery(client, tmp_path, job.model_copy(update={"policy": QUICK}), diagnosis)
    outcome = await asyncio.wait_for(handle.result(), 60)
    # Silence would have to last 20 minutes; only a look compared with an earlier one refutes before.
    assert outcome.outcome is Outcome.REFUTED
    assert "training goes on" in outcome.reason


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_in_order(worker: WorkerProcess, sig: signal.Signals) -> None:
    worker.start().serving()
    assert await asyncio.to_thread(worker.stop, sig) == 0
    assert "the worker has stopped" in worker.text()
    assert "Traceback" not in worker.text()


@pytest.mark.parametrize("cached", [True, False])
async def test_it_warns_once_where_workflows_are_compiled_for_each_execution(
    worker: WorkerProcess, tmp_path: Path, cached: bool
) -> None:
    cache = {"PYTHONPYCACHEPREFIX": str(tmp_path / "cache")}
    worker.start(**cache, PYTHONDONTWRITEBYTECODE="" if cached else "1").serving()
    warning = "workflows are compiled for each execution"
    assert worker.text().count(warning) == (0 if cached else 1)
    assert ("PYTHONDONTWRITEBYTECODE is set" in worker.text()) is not cached


async def test_every_try_of_a_step_is_logged(
    worker: WorkerProcess, train: Training, client: Client, tmp_path: Path
) -> None:
    worker.start().serving()
    handle = await start_recovery(client, tmp_path, *await crash(train))
    await asyncio.wait_for(handle.result(), 60)
    for step in ("confirm_fault", "drain_job", "resubmit", "verify_resume"):
        assert f"step={step}" in worker.text() or f'"step": "{step}"' in worker.text()
    assert f"recover:{tmp_path.name}" in worker.text()


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
async def test_ended_in_the_middle_it_acts_once(
    worker: WorkerProcess, train: Training, client: Client, tmp_path: Path, sig: signal.Signals
) -> None:
    """Ended as soon as the requeue shows: the next worker finds it, and requeues no more."""
    worker.start().serving()
    job, diagnosis = await crash(train)
    handle = await start_recovery(client, tmp_path, job, diagnosis)
    await train.until(lambda info: info.restart_count == 1)
    code = await asyncio.to_thread(worker.stop, sig)
    assert code == (0 if sig is signal.SIGTERM else -sig)
    assert "Traceback" not in worker.text()
    worker.start().serving()
    outcome = await asyncio.wait_for(handle.result(), 90)
    assert outcome.outcome is Outcome.RESUMED
    assert (await train.info()).restart_count == 1
