"""`relight watch` on a real job of the local scheduler; its monitor is a stand-in."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from relight.cli import watch
from relight.config import load_settings
from relight.scheduler.opening import open_scheduler
from relight.scheduler.port import Scheduler, SubmitRequest
from tests.relight.cli.conftest import Relight
from tests.relight.cli.test_completion import complete

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("stand_ins")]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "SENSOR_SECONDS", 0.5)


@pytest.fixture
def scheduler(nobody_home: None, settings_file: Path) -> Scheduler:
    settings_file.write_text(settings_file.read_text() + f'cluster = "{settings_file.parent.name}"\n')
    return open_scheduler(load_settings(settings_file))


@pytest.fixture
def job(scheduler: Scheduler, tmp_path: Path) -> Iterator[str]:
    """A running job of two nodes."""

    async def start() -> str:
        job_id = await scheduler.submit(
            SubmitRequest(
                script="#!/bin/sh\nexec sleep 600\n",
                name="pretrain",
                nodes=2,
                tasks_per_node=2,
                work_dir=str(tmp_path),
                std_out="out-%j.log",
            )
        )
        async with asyncio.timeout(30):
            while True:
                if (await scheduler.job(job_id)).nodes:
                    return job_id
                await asyncio.sleep(0.05)

    job_id = asyncio.run(start())
    yield job_id
    asyncio.run(scheduler.cancel(job_id))


def shown(relight: Relight, job_id: str) -> Any:
    return json.loads(relight("show", job_id, "--json").stdout)


def test_a_job_is_watched_as_it_is(relight: Relight, job: str, tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    done = relight("watch", job, "--checkpoints", "ckpt", "--logs", "rank*.log", "--run", "llm-7b")
    assert done.exit_code == 0, done.output
    assert f"watching job {job} (llm-7b) in observe mode" in done.stdout
    watched = shown(relight, job)["job"]
    assert watched["attempt"]["job_id"] == job
    assert len(watched["nodes"]) == 2
    assert watched["tasks_per_node"] == 2
    assert watched["checkpoint_dir"] == str(tmp_path / "ckpt")
    assert watched["log_paths"] == [str(tmp_path / f"out-{job}.log"), str(tmp_path / "rank*.log")]
    assert watched["mode"] == "observe"


def test_a_missing_sensor_is_told(relight: Relight, job: str) -> None:
    assert "relight sensor" in relight("watch", job).stderr


def test_a_sensor_that_speaks_is_heard(
    relight: Relight,
    job: str,
    monkeypatch: pytest.MonkeyPatch,
    temporal: Callable[[Callable[[Client], Coroutine[Any, Any, Any]]], Any],
) -> None:
    relight("watch", job, "--no-wait")
    monitor = shown(relight, job)["monitor_id"]
    temporal(lambda client: client.get_workflow_handle(monitor).signal("sensor_speaks"))
    assert temporal(lambda client: watch.sensor_speaks(client, monitor))


def test_without_a_worker_it_is_watched_and_told(relight: Relight, job: str, settings_file: Path) -> None:
    settings_file.write_text('task_queue = "nobody"\n' + settings_file.read_text())
    done = relight("watch", job)
    assert done.exit_code == 0
    assert "relight worker" in done.stderr


def test_watching_twice(relight: Relight, job: str) -> None:
    assert relight("watch", job, "--no-wait").exit_code == 0
    again = relight("watch", job)
    assert again.exit_code == 0
    assert f"job {job} is watched already, in observe mode" in again.stdout
    act = relight("watch", job, "--mode", "act")
    assert act.exit_code == 0
    assert f"job {job} is now in act mode" in act.stdout
    assert shown(relight, job)["job"]["mode"] == "act"
    other = relight("watch", job, "--run", "another")
    assert other.exit_code == 6
    assert f"relight unwatch {job}" in other.stderr


def test_a_job_that_the_scheduler_does_not_know(relight: Relight, scheduler: Scheduler) -> None:
    done = relight("watch", "424242")
    assert done.exit_code == 5
    assert "424242" in done.stderr


def test_a_job_that_has_ended(relight: Relight, job: str, scheduler: Scheduler) -> None:
    asyncio.run(scheduler.cancel(job))
    done = relight("watch", job)
    assert done.exit_code == 6
    assert "has ended (CANCELLED)" in done.stderr


def test_what_is_no_job_id_is_wrong_usage(relight: Relight, scheduler: Scheduler) -> None:
    done = relight("watch", "abc")
    assert done.exit_code == 2
    assert "'abc' is no job id" in done.stderr


def test_a_checkpoint_directory_that_is_not_there_needs_force(
    relight: Relight, job: str, tmp_path: Path
) -> None:
    done = relight("watch", job, "--checkpoints", "later")
    assert done.exit_code == 2
    assert f"there is no directory {tmp_path}/later" in done.stderr
    assert relight("show", job).exit_code == 5, "nothing is watched"
    forced = relight("watch", job, "--checkpoints", "later", "--force", "--no-wait")
    assert forced.exit_code == 0
    assert f"warning: there is no directory {tmp_path}/later" in forced.stderr
    assert shown(relight, job)["job"]["checkpoint_dir"] == str(tmp_path / "later")


def test_an_address_of_checkpoints_stays_as_it_is(relight: Relight, job: str) -> None:
    assert relight("watch", job, "--checkpoints", "memory://bucket/run", "--no-wait").exit_code == 0
    assert shown(relight, job)["job"]["checkpoint_dir"] == "memory://bucket/run"


def test_the_shell_completes_jobs_that_run(job: str, settings_file: Path, scheduler: Scheduler) -> None:
    assert complete("relight watch ", "127.0.0.1:1", settings_file) == ([job], "")
    assert complete(f"relight watch {job}0", "127.0.0.1:1", settings_file) == ([], "")
    asyncio.run(scheduler.cancel(job))
    assert complete("relight watch ", "127.0.0.1:1", settings_file) == ([], "")
