"""The whole sensor: real trainings on the local scheduler, a real Temporal server, a monitor that records."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle

from relight.cli.devserver import DevServer, free_port
from relight.config import SensorSettings, Settings
from relight.contracts import Anomaly, JobInfo, JobState, Mode, Policy, TrainingJob, ids
from relight.demo import trainer
from relight.scheduler.local import LocalScheduler
from relight.scheduler.port import SchedulerUnreachable, SubmitRequest
from sensor.reading import JobLogs, Reading
from sensor.registry import watched_jobs
from sensor.service import Sensor
from sensor.store import Store
from tests.sensor.conftest import told, until, watch
from tests.sensor.killable import quick

_numbers = itertools.count()

pytestmark = pytest.mark.temporal

EPILOG = Path(__file__).parents[2] / "deploy" / "slurm" / "epilogslurmctld.sh"
POLICY = Policy(hang_floor=timedelta(seconds=3), hang_factor=3.0)


class Flaky(LocalScheduler):
    """The local scheduler, behind a network that can be cut."""

    cut = False

    async def jobs(self, job_ids: Sequence[str]) -> Mapping[str, JobInfo]:
        if self.cut:
            raise SchedulerUnreachable("the test has cut the network")
        return await super().jobs(job_ids)


class Lab:
    """One scheduler, one Temporal server, any number of trainings and sensors."""

    def __init__(self, root: Path, client: Client, server: DevServer) -> None:
        self.root, self.client, self.server = root, client, server
        self.cluster = f"lab{next(_numbers)}"
        self.scheduler = Flaky(root / "scheduler", cluster=self.cluster)
        self.submitted: list[str] = []
        self.fault_at: datetime | None = None

    def settings(self, **more: Any) -> Settings:
        return quick(self.root / "state", self.cluster, **more)

    async def train(self, options: str = "", **request: Any) -> TrainingJob:
        """A training of four ranks on two nodes, once it makes steps, watched by nobody yet."""
        directory = self.root / f"run{len(self.submitted)}"
        directory.mkdir()
        training = f"{sys.executable} {trainer.__file__} --dir {directory} --step-time 0.1 {options}"
        fields: dict[str, Any] = {
            "script": f"#!/bin/sh\nexec {training}\n",
            "nodes": 2,
            "tasks_per_node": 2,
            "work_dir": str(directory),
            "std_out": "train.log",
            **request,
        }
        job_id = await self.scheduler.submit(SubmitRequest(**fields))
        self.submitted.append(job_id)
        info = await self.state(job_id, JobState.RUNNING)
        await until("it makes steps", lambda: self.steps(info) >= 5)
        attempt = info.attempt(self.cluster)
        return TrainingJob(
            cluster=self.cluster, run="train", attempt=attempt, log_paths=(info.std_out,), policy=POLICY
        )

    @staticmethod
    def steps(info: JobInfo) -> int:
        log = Path(info.std_out)
        return log.read_text(errors="replace").count("] iteration ") if log.exists() else 0

    async def state(self, job_id: str, state: JobState) -> JobInfo:
        async def look() -> JobInfo | None:
            info = await self.scheduler.job(job_id)
            return info if info.state is state else None

        found: JobInfo = await until(f"job {job_id} is {state}", look)
        return found

    def fault(self, job: TrainingJob, kind: str, rank: int = 1) -> None:
        directory = Path(job.log_paths[0]).parent
        scratch = directory / "fault.new"
        scratch.write_text(json.dumps({"kind": kind, "step": 1, "rank": rank}))
        scratch.rename(directory / "fault.json")
        self.fault_at = datetime.now(UTC)

    @asynccontextmanager
    async def sensor(self, settings: Settings | None = None) -> AsyncIterator[Sensor]:
        """A sensor in this process."""
        stop = asyncio.Event()
        store = Store(self.root / "state" / "s")

        async def connect() -> Client:
            return self.client

        sensor = Sensor(settings or self.settings(), self.scheduler, store, connect)
        task = asyncio.create_task(sensor.run(stop))
        try:
            yield sensor
        finally:
            stop.set()
            await task
            store.close()
        assert (
            sensor.metrics.registry.get_sample_value("relight_sensor_errors_total", {"part": "job"}) is None
        )

    def process(self) -> subprocess.Popen[bytes]:
        """A sensor in a process of its own, over the same state."""
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.sensor.killable",
                str(self.root / "state"),
                str(self.root / "scheduler"),
                self.cluster,
            ],
            env={**os.environ, **self.server.environment},
            stdout=subprocess.DEVNULL,
            stderr=(self.root / "sensor.log").open("ab"),
        )


@pytest.fixture
async def lab(tmp_path: Path, client: Client, worker: None, temporal_server: DevServer) -> AsyncIterator[Lab]:
    lab = Lab(tmp_path, client, temporal_server)
    yield lab
    for job_id in lab.submitted:
        await lab.scheduler.cancel(job_id)
    async for execution in client.list_workflows("ExecutionStatus = 'Running'"):
        await client.get_workflow_handle(execution.id).terminate()


async def anomalies(handle: WorkflowHandle[Any, Any]) -> list[Anomaly]:
    return [Anomaly.model_validate(payload) for kind, payload in await told(handle) if kind == "anomaly"]


async def events(handle: WorkflowHandle[Any, Any]) -> list[str]:
    return [p["event"] for kind, p in await told(handle) if kind == "attempt"]


async def until_told(handle: WorkflowHandle[Any, Any], detector: str, seconds: float = 30) -> Anomaly:
    async def look() -> Anomaly | None:
        return next((a for a in await anomalies(handle) if a.detector == detector), None)

    found: Anomaly = await until(f"{detector} is told", look, seconds)
    return found


async def until_watching(handle: WorkflowHandle[Any, Any]) -> None:
    """The sensor has told of progress, so it knows the job and reads its log."""

    async def look() -> bool:
        return "progress" in await events(handle)

    await until("the sensor reads the log", look)


async def test_a_crash_is_signalled_within_two_seconds(lab: Lab) -> None:
    job = await lab.train()
    handle = await watch(lab.client, job)
    async with lab.sensor():
        await until_watching(handle)
        lab.fault(job, "exception")
        crash = await until_told(handle, "log")
        await until_told(handle, "job-end")
        assert lab.fault_at is not None
        assert crash.detected_at - lab.fault_at < timedelta(
            seconds=2.5
        )  # 2 s, and the step that was under way
        assert crash.progress is not None
        assert crash.suspects[0].rank == 1

        async def ended() -> bool:
            return "ended" in await events(handle)

        await until("the end is told", ended)
    assert [a.detector for a in await anomalies(handle)].count("job-end") == 1


async def test_slurms_hook_makes_it_look_at_once(lab: Lab) -> None:
    port = free_port()
    looks = SensorSettings(
        registry_poll=timedelta(seconds=0.5),
        scheduler_poll=timedelta(minutes=5),
        wake_address=f"127.0.0.1:{port}",
    )
    job = await lab.train()
    handle = await watch(lab.client, job)
    async with lab.sensor(lab.settings().model_copy(update={"sensor": looks})):
        await until_watching(handle)
        await lab.scheduler.cancel(job.attempt.job_id)
        await lab.state(job.attempt.job_id, JobState.CANCELLED)
        await asyncio.sleep(0.5)
        assert "ended" not in await events(handle), "the next question is minutes away"
        await asyncio.to_thread(
            subprocess.run,
            [EPILOG],
            env={"SLURM_JOB_ID": job.attempt.job_id, "RELIGHT_SENSORS": f"127.0.0.1:{port}"},
            check=True,
        )

        async def ended() -> bool:
            return "ended" in await events(handle)

        await until("the end is told", ended, 2)


async def test_a_hang_is_signalled_and_a_pause_is_not(lab: Lab) -> None:
    job = await lab.train()
    handle = await watch(lab.client, job)
    async with lab.sensor():
        await until_watching(handle)
        await asyncio.sleep(1)
        lab.fault(job, "pause:1.5")
        await asyncio.sleep(4)
        assert await anomalies(handle) == []
        lab.fault(job, "hang")
        hang = await until_told(handle, "no-progress")
        assert hang.detected_at - hang.occurred_at < timedelta(seconds=3 + 2)
    assert len(await anomalies(handle)) == 1


async def test_a_lost_node_is_signalled(lab: Lab) -> None:
    job = await lab.train()
    handle = await watch(lab.client, job)
    async with lab.sensor():
        await until_watching(handle)
        await lab.scheduler.lose_node("node02")
        loss = await until_told(handle, "node-loss")
        assert [s.node for s in loss.suspects] == ["node02"]
        assert loss.attempt == job.attempt


@pytest.mark.parametrize("ending", ["cancel", "complete"])
async def test_an_end_that_is_no_fault_is_only_told(lab: Lab, ending: str) -> None:
    job = await lab.train("--steps 40" if ending == "complete" else "")
    handle = await watch(lab.client, job)
    async with lab.sensor():
        await until_watching(handle)
        if ending == "cancel":
            await lab.scheduler.cancel(job.attempt.job_id)

        async def ended() -> bool:
            return "ended" in await events(handle)

        await until("the end is told", ended)
        await asyncio.sleep(1.5)
    assert await anomalies(handle) == []


async def test_nothing_is_told_of_an_unreachable_scheduler(lab: Lab) -> None:
    job = await lab.train()
    handle = await watch(lab.client, job)
    async with lab.sensor() as sensor:
        await until_watching(handle)
        lab.scheduler.cut = True
        await asyncio.sleep(6)
        assert sensor.metrics.registry.get_sample_value("relight_sensor_scheduler_up") == 0
        lab.scheduler.cut = False
        await asyncio.sleep(2)
    assert await anomalies(handle) == []


async def test_a_sensor_that_is_killed_tells_nothing_twice_and_misses_nothing(lab: Lab) -> None:
    job = await lab.train()
    handle = await watch(lab.client, job)
    process = lab.process()
    try:
        await until_watching(handle)
        for _ in range(3):  # at any point
            process.kill()
            process.wait()
            process = lab.process()
            await asyncio.sleep(1.7)
        process.kill()
        process.wait()
        lab.fault(job, "exception")
        await lab.state(job.attempt.job_id, JobState.FAILED)
        process = lab.process()
        await until_told(handle, "log")
        await until_told(handle, "job-end")
        process.kill()
        process.wait()
        process = lab.process()
        await asyncio.sleep(5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    found = await anomalies(handle)
    assert {a.detector for a in found} == {"job-end", "log"}, (lab.root / "sensor.log").read_text()
    assert len({a.anomaly_id for a in found}) == len(found)
    assert found[0].attempt == job.attempt
    assert (await events(handle)).count("started") == 1


async def test_one_broken_job_does_not_blind_the_sensor(lab: Lab) -> None:
    job, other = await lab.train(), await lab.train()
    handle, second = await watch(lab.client, job), await watch(lab.client, other)
    log = Path(job.log_paths[0])
    log.rename(log.with_name("elsewhere"))
    os.mkfifo(log)
    async with lab.sensor() as sensor:
        await until_watching(second)
        lab.fault(other, "exception")
        await until_told(second, "log")
        label = {"job": job.attempt.job_id}
        assert sensor.metrics.registry.get_sample_value("relight_sensor_unreadable_files", label) == 1
        assert sensor.metrics.registry.get_sample_value("relight_sensor_blind", label) == 1
    assert await anomalies(handle) == []


async def test_a_filesystem_that_hangs_blinds_only_the_jobs_on_it(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = await lab.train(), await lab.train()
    await watch(lab.client, job)
    second = await watch(lab.client, other)
    look, thaw = JobLogs.look, threading.Event()

    def hanging(self: JobLogs, monotonic: float, now: datetime) -> Reading:
        if job.log_paths[0] in self.patterns:
            thaw.wait()
        return look(self, monotonic, now)

    monkeypatch.setattr(JobLogs, "look", hanging)
    monkeypatch.setattr("sensor.service.STUCK_AFTER", 1.0)
    try:
        async with lab.sensor() as sensor:
            await until_watching(second)
            lab.fault(other, "exception")
            await until_told(second, "log")
            label = {"job": job.attempt.job_id}
            await until(
                "the other is blind",
                lambda: sensor.metrics.registry.get_sample_value("relight_sensor_blind", label) == 1,
            )
            thaw.set()
    finally:
        thaw.set()


async def test_a_job_that_asks_for_it_is_watched_once(lab: Lab) -> None:
    comment = json.dumps({"relight": {"mode": "act", "run": "gpt", "checkpoints": "ckpt"}})
    job = await lab.train(comment=comment)
    handle = lab.client.get_workflow_handle(ids.monitor_id(job.attempt))
    async with lab.sensor(lab.settings(mode=Mode.OBSERVE)):

        async def started() -> bool:
            return handle.id in await watched_jobs(lab.client, lab.cluster)

        await until("its monitor is started", started)
        await until_watching(handle)
        lab.fault(job, "exception")
        await until_told(handle, "log")
        # A monitor that has ended is not started again, whatever the comment says.
        await handle.signal("end")
        await handle.result()
        await lab.scheduler.requeue_hold(job.attempt.job_id)
        await lab.scheduler.release(job.attempt.job_id)
        await lab.state(job.attempt.job_id, JobState.RUNNING)
        await asyncio.sleep(7)
    found = [e async for e in lab.client.list_workflows(f"RelightCluster = '{lab.cluster}'")]
    assert [e.id for e in found] == [handle.id]
    memo = await found[0].memo_value(ids.MEMO_JOB, type_hint=TrainingJob)
    assert (memo.mode, memo.run, memo.opted_in) == (Mode.OBSERVE, "gpt", True)
    begin = (await handle.fetch_history()).events[0].workflow_execution_started_event_attributes
    start = json.loads(begin.input.payloads[0].data)
    assert start["guard_id"] == ids.guard_id(lab.cluster)


async def test_a_changed_policy_file_is_read_and_a_broken_one_changes_nothing(lab: Lab) -> None:
    file = lab.root / "policy.yaml"
    file.write_text("policies: {calm: {hang_floor: 7m}}\noverrides: [{user: nobody, mode: observe}]")
    file.chmod(0o600)

    async def watched_with(name: str) -> TrainingJob:
        job = await lab.train(nodes=1, comment=json.dumps({"relight": {"policy": name}}))
        monitor = ids.monitor_id(job.attempt)
        found: dict[str, TrainingJob] = {}

        async def started() -> bool:
            found.update(await watched_jobs(lab.client, lab.cluster, [job.attempt.job_id]))
            return monitor in found

        await until("its monitor is started", started)
        return found[monitor]

    async with lab.sensor(lab.settings(mode=Mode.ACT, policy_file=file)) as sensor:

        def valid() -> float | None:
            return sensor.metrics.registry.get_sample_value("relight_sensor_policy_valid")

        assert (await watched_with("calm")).policy.hang_floor == timedelta(minutes=7)
        file.write_text("policies: {calm: {hang_floor: soon}}")
        await until("the trouble is told", lambda: valid() == 0)
        still = await watched_with("calm")
        assert (still.policy.hang_floor, still.mode) == (timedelta(minutes=7), Mode.ACT)
        file.write_text("mode: observe\npolicies: {calm: {hang_floor: 9m}}")
        await until("it is mended", lambda: valid() == 1)
        now = await watched_with("calm")
        assert (now.policy.hang_floor, now.mode) == (timedelta(minutes=9), Mode.OBSERVE)
