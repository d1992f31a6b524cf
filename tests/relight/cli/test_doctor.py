"""`relight doctor` on set-ups that are broken in one place: it names that place first."""

import asyncio
import fcntl
import http.server
import importlib.util
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from relight.audit.archive import open_archive
from relight.cli.checkup import job as job_stages
from relight.cli.checkup import scheduler
from relight.cli.checkup.base import Bench, Broken
from relight.cli.devserver import DevServer
from relight.cli.invocation import Invocation
from relight.cli.watch import start_monitor
from relight.cli.watched import monitor_status
from relight.config import Settings
from relight.contracts import JobInfo, JobState, TrainingJob
from relight.contracts.guard import GuardLimits
from relight.contracts.ids import TASK_QUEUE, monitor_id
from relight.guarding import start_guard
from relight.scheduler.local import LocalScheduler
from relight.scheduler.port import SubmitRequest
from tests.relight.audit.making import an_audit
from tests.relight.cli.conftest import Relight, Temporal
from tests.relight.cli.stand_ins import T0, a_job
from tests.relight.cli.test_setup import operate

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("stand_ins")]
Examine = Callable[..., dict[str, Any]]
CLUSTER = "doctored"


@pytest.fixture
def well(settings_file: Path, temporal: Temporal, tmp_path: Path) -> Iterator[Path]:
    """A set-up in which nothing is broken: worker, guard, a sensor's lock. Gives the settings file."""
    settings_file.write_text(f'cluster = "{CLUSTER}"\n{settings_file.read_text()}')
    temporal(lambda client: start_guard(client, TASK_QUEUE, CLUSTER, GuardLimits()))
    with a_sensor(tmp_path / "state"):
        yield settings_file


@contextmanager
def a_sensor(state: Path) -> Iterator[None]:
    """Holds the lock that a sensor holds."""
    state.mkdir(exist_ok=True)
    with (state / "sensor.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture
def examine(relight: Relight) -> Examine:
    """Runs the doctor; gives what it found, with the exit code as `code`."""

    def run(*args: str, **env: str) -> dict[str, Any]:
        done = relight("doctor", *args, "--json", **env)
        found: dict[str, Any] = {**json.loads(done.stdout), "code": done.exit_code}
        assert (found["code"] == 0) is (found["broken"] == "")
        if found["broken"]:
            last = found["stages"][-1]
            assert last["stage"] == found["broken"]
            assert last["mend"], "it says how to mend it"
            assert all(stage["state"] != "broken" for stage in found["stages"][:-1])
        return found

    return run


def add(file: Path, text: str) -> None:
    file.write_text(f"{file.read_text()}\n{text}\n")


def said(found: dict[str, Any]) -> str:
    return f"{found['stages'][-1]['found']} {found['stages'][-1]['mend']}"


def test_nothing_is_broken(well: Path, examine: Examine, relight: Relight) -> None:
    found = examine()
    assert found["broken"] == "", found
    assert found["stages"][0]["stage"] == "settings"
    told = relight("doctor")
    assert told.exit_code == 0
    assert "nothing is broken" in told.stdout


# ---- settings and files ----------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("sensors = 3", "sensors"),
        ("sensor = [", "TOML"),
        ('[policies.odd]\nstep_patterns = ["("]', "step_patterns"),
        ('[policies.odd]\nhang_flor = "1s"', "hang_flor"),
    ],
)
def test_settings_that_cannot_be_used(well: Path, examine: Examine, text: str, tells: str) -> None:
    add(well, text)
    found = examine()
    assert (found["broken"], found["code"]) == ("settings", 2)
    assert tells in said(found)


def test_a_policy_file_that_cannot_be_used(well: Path, examine: Examine, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("moed: act\n")
    policy.chmod(0o644)
    well.write_text(f'policy_file = "{policy}"\n{well.read_text()}')
    found = examine()
    assert (found["broken"], found["code"]) == ("settings", 2)
    assert "moed" in said(found)
    assert "relight policy check" in said(found)


def test_signatures_that_are_not_there(well: Path, examine: Examine) -> None:
    well.write_text(f'signatures = ["/nowhere/signatures"]\n{well.read_text()}')
    found = examine()
    assert found["broken"] == "settings"
    assert "/nowhere/signatures" in said(found)


def test_a_state_directory_that_is_a_file(well: Path, examine: Examine, tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("")
    found = examine(RELIGHT_STATE_DIR=str(tmp_path / "occupied" / "state"))
    assert found["broken"] == "state directory"


def test_an_archive_that_was_changed(well: Path, examine: Examine, tmp_path: Path) -> None:
    chain = tmp_path / "archive" / "recoveries"
    chain.mkdir(parents=True)
    (chain / "00000001-2026-12.jsonl").write_text("{}\n")
    add(well, f'[archive]\nurl = "{tmp_path}/archive"')
    found = examine()
    assert found["broken"] == "archive"
    assert "check-archive" in said(found)


@pytest.mark.parametrize("url", ["/dev/null", "/dev/null/archive", "/proc/archive"])
def test_an_archive_that_nobody_can_write(well: Path, examine: Examine, url: str) -> None:
    add(well, f'[archive]\nurl = "{url}"')
    found = examine()
    assert found["broken"] == "archive"
    assert f"archive {url}: it cannot be written" in said(found)


def test_an_archive_is_tried_out_and_left_as_it_was(well: Path, examine: Examine, tmp_path: Path) -> None:
    place = tmp_path / "new" / "archive"
    add(well, f'[archive]\nurl = "{place}"')
    assert examine()["stages"][-1]["found"] == f"0 records in {place}, which can be written"
    assert not place.parent.exists()
    open_archive(str(place), tmp_path).append(an_audit(), T0)
    before = sorted(place.rglob("*"))
    assert examine()["stages"][-1]["found"].startswith("1 record in ")
    assert sorted(place.rglob("*")) == before


# ---- Temporal --------------------------------------------------------------------
def test_no_temporal(well: Path, examine: Examine) -> None:
    found = examine(TEMPORAL_ADDRESS="127.0.0.1:9")
    assert (found["broken"], found["code"]) == ("Temporal", 3)
    assert "TEMPORAL_ADDRESS" in said(found)


def test_no_such_namespace(well: Path, examine: Examine) -> None:
    found = examine(TEMPORAL_NAMESPACE="nowhere-at-all")
    assert (found["broken"], found["code"]) == ("namespace", 3)
    assert "nowhere-at-all" in said(found)


def test_a_namespace_that_was_not_set_up(well: Path, examine: Examine, server: DevServer) -> None:
    operate(server, "namespace", "create", "--namespace", "doctor-bare")
    found = examine(TEMPORAL_NAMESPACE="doctor-bare")
    assert (found["broken"], found["code"]) == ("search attributes", 7)
    assert "relight setup" in said(found)


def test_no_worker(well: Path, examine: Examine) -> None:
    found = examine(RELIGHT_TASK_QUEUE="nobody-is-here")
    assert (found["broken"], found["code"]) == ("worker", 7)
    assert "nobody-is-here" in said(found)
    assert "relight worker" in said(found)


def test_no_guard(well: Path, examine: Examine) -> None:
    found = examine(RELIGHT_CLUSTER="unguarded")
    assert (found["broken"], found["code"]) == ("guard", 7)
    assert "guard:unguarded" in said(found)


# ---- the scheduler ---------------------------------------------------------------
def test_no_slurm_commands(well: Path, examine: Examine, tmp_path: Path) -> None:
    found = examine(RELIGHT_SCHEDULER="slurm-cli", RELIGHT_SLURM__BIN_DIR=str(tmp_path))
    assert (found["broken"], found["code"]) == ("scheduler commands", 4)
    assert "slurm.bin_dir" in said(found)


def slurm_commands(directory: Path, **scripts: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name, script in scripts.items():
        (directory / name).write_text(f"#!/bin/sh\n{script}\n")
        (directory / name).chmod(0o755)
    return directory


def test_pyslurm_is_asked_for_and_not_there(
    well: Path, examine: Examine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyslurm" else find(name))
    directory = slurm_commands(tmp_path / "bin", squeue="exit 0", scontrol="exit 0")
    found = examine(RELIGHT_SCHEDULER="slurm-pyslurm", RELIGHT_SLURM__BIN_DIR=str(directory))
    assert (found["broken"], found["code"]) == ("scheduler commands", 4)
    assert "docs/how-to/pyslurm.md" in said(found)


SILENT = 'echo "slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)" >&2; exit 1'


def test_slurmctld_does_not_answer(well: Path, examine: Examine, tmp_path: Path) -> None:
    directory = slurm_commands(tmp_path / "bin", squeue=SILENT, scontrol=SILENT, sinfo=SILENT)
    found = examine(RELIGHT_SCHEDULER="slurm-cli", RELIGHT_SLURM__BIN_DIR=str(directory))
    assert (found["broken"], found["code"]) == ("scheduler", 4)
    assert "scontrol ping" in said(found)


@pytest.mark.parametrize(
    ("slurm_user", "level", "owner", "broken"),
    [
        ("slurm", "None", "anna", True),
        ("slurm", "Operator", "anna", False),
        ("slurm", "Administrator", "anna", False),
        ("nobody", "None", "anna", False),
        ("slurm", "None", "nobody", False),
    ],
)
def test_a_user_who_may_not_change_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slurm_user: str, level: str, owner: str, broken: bool
) -> None:
    config = f'echo "SlurmUser               = {slurm_user}(64030)"'
    directory = slurm_commands(tmp_path / "bin", scontrol=config, sacctmgr=f"echo {level}")
    monkeypatch.setattr(scheduler, "current_user", lambda: "nobody")
    bench = Bench(Invocation(), "1")
    bench.settings = Settings(scheduler="slurm-cli", slurm={"bin_dir": str(directory)})
    bench.info = JobInfo(job_id="1", user=owner, state=JobState.RUNNING, submit_time=T0)
    if broken:
        with pytest.raises(Broken, match="may not change jobs of anna") as caught:
            asyncio.run(scheduler.permissions(bench))
        assert "adminlevel=operator" in caught.value.mend
    else:
        assert asyncio.run(scheduler.permissions(bench)).found


# ---- the sensor ------------------------------------------------------------------
def test_no_sensor(settings_file: Path, temporal: Temporal, examine: Examine) -> None:
    settings_file.write_text(f'cluster = "{CLUSTER}"\n{settings_file.read_text()}')
    temporal(lambda client: start_guard(client, TASK_QUEUE, CLUSTER, GuardLimits()))
    found = examine()
    assert (found["broken"], found["code"]) == ("sensor", 7)
    assert "relight sensor" in said(found)


@contextmanager
def metrics(text: str) -> Iterator[str]:
    """Serves this text as a sensor's metrics; gives the address."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the test's output is not its log."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as served:
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{served.server_address[1]}"
        served.shutdown()


def beat(seconds_ago: float = 0.0, more: str = "") -> str:
    return f"relight_sensor_heartbeat_timestamp_seconds {time.time() - seconds_ago}\n{more}\n"


@pytest.mark.parametrize(
    ("age", "more", "tells"),
    [
        (3600, "", "heartbeat"),
        (0, "relight_sensor_scheduler_up 0.0", "scheduler"),
        (0, "relight_sensor_temporal_up 0.0", "Temporal"),
    ],
)
def test_a_sensor_that_does_not_see(well: Path, examine: Examine, age: float, more: str, tells: str) -> None:
    with metrics(beat(age, more)) as address:
        found = examine(RELIGHT_SENSOR__METRICS_ADDRESS=address)
    assert found["broken"] == "sensor"
    assert tells in said(found)


def test_a_sensor_that_is_blind_for_a_job_is_noted(well: Path, examine: Examine) -> None:
    page = beat(0, 'relight_sensor_scheduler_up 1.0\nrelight_sensor_blind{job="7.0"} 1.0')
    with metrics(page) as address:
        found = examine(RELIGHT_SENSOR__METRICS_ADDRESS=address)
    assert found["broken"] == ""
    [sensor] = [stage for stage in found["stages"] if stage["stage"] == "sensor"]
    assert sensor["note"] == "blind for 7.0"


def test_a_sensor_that_serves_no_metrics(well: Path, examine: Examine) -> None:
    found = examine(RELIGHT_SENSOR__METRICS_ADDRESS="127.0.0.1:9")
    assert found["broken"] == "sensor"


# ---- Prometheus ------------------------------------------------------------------
def test_a_prometheus_that_does_not_answer(well: Path, examine: Examine) -> None:
    found = examine(RELIGHT_PROMETHEUS__URL="http://127.0.0.1:9")
    assert found["broken"] == "Prometheus"
    assert "prometheus.url" in said(found)


# ---- one job ---------------------------------------------------------------------
def submitted(state: Path, comment: str = "") -> str:
    """Submits a job to the local scheduler, held, so that nothing of it runs."""

    async def submit() -> str:
        local = LocalScheduler(state, 4, CLUSTER)
        return await local.submit(
            SubmitRequest(script="#!/bin/sh\nexit 0\n", comment=comment, hold=True, work_dir=str(state))
        )

    return asyncio.run(submit())


def watch(temporal: Temporal, job_id: str, **fields: Any) -> TrainingJob:
    job = a_job(job_id, CLUSTER).model_copy(update=fields)
    temporal(lambda client: start_monitor(client, Settings(), job))
    return job


def test_a_job_that_is_well(
    well: Path, examine: Examine, temporal: Temporal, job_id: str, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1\n")
    watch(temporal, job_id, log_paths=(str(log),), checkpoint_dir=str(tmp_path))
    found = examine(job_id)
    assert found["broken"] == "", found
    assert "at step 121" in found["stages"][-1]["found"]


@pytest.mark.parametrize(
    ("comment", "tells"),
    [
        ("", "does not ask for it"),
        ('{"relight": {"policy": "no-such"}}', "no policy 'no-such'"),
        ('{"relight": {}}', "is the sensor of this cluster at work"),
    ],
)
def test_a_job_that_is_not_watched(
    well: Path, examine: Examine, tmp_path: Path, comment: str, tells: str
) -> None:
    found = examine(submitted(tmp_path / "state", comment))
    assert (found["broken"], found["code"]) == ("watch", 5)
    assert tells in said(found)


def test_a_job_that_cannot_be_watched_any_more(well: Path, examine: Examine, tmp_path: Path) -> None:
    cancelled = submitted(tmp_path / "state")
    asyncio.run(LocalScheduler(tmp_path / "state", 4, CLUSTER).cancel(cancelled))
    found = examine(cancelled)
    assert (found["broken"], found["code"]) == ("watch", 5)
    assert "it has ended (CANCELLED)" in said(found)
    assert "relight watch" not in said(found)
    unknown = examine("424242")
    assert unknown["broken"] == "watch"
    assert "the scheduler knows no job 424242 either" in said(unknown)
    assert "relight watch" not in said(unknown)


def test_what_is_no_job_id(well: Path, examine: Examine) -> None:
    found = examine("abc")
    assert (found["broken"], found["code"]) == ("job", 2)
    assert "'abc' is no job id" in said(found)


def test_workflows_that_are_compiled_for_each_execution_are_noted(
    well: Path, examine: Examine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "empty"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = examine()
    assert found["code"] == 0, found
    [worker] = [stage for stage in found["stages"] if stage["stage"] == "worker"]
    assert worker["state"] == "note"
    assert "PYTHONDONTWRITEBYTECODE is set" in worker["note"]


def test_a_job_that_is_watched_no_more(well: Path, examine: Examine, temporal: Temporal, job_id: str) -> None:
    job = watch(temporal, job_id)

    async def end(client: Client) -> None:
        handle = client.get_workflow_handle(monitor_id(job.attempt))
        await handle.signal("unwatch", {"by": "ada"})
        await handle.result()

    temporal(end)
    found = examine(job_id)
    assert found["broken"] == "watch"
    assert "watched no more" in said(found)


@pytest.mark.parametrize("kind", ["none", "missing", "unreadable"])
def test_logs(
    well: Path, examine: Examine, temporal: Temporal, job_id: str, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "a-directory").mkdir()
    paths = {"none": (), "missing": (f"{tmp_path}/no.log",), "unreadable": (f"{tmp_path}/a-directory",)}[kind]
    watch(temporal, job_id, log_paths=paths)
    found = examine(job_id)
    assert found["broken"] == "logs"


def test_checkpoints_that_are_not_there(
    well: Path, examine: Examine, temporal: Temporal, job_id: str, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.touch()
    watch(temporal, job_id, log_paths=(str(log),), checkpoint_dir=f"{tmp_path}/nowhere")
    found = examine(job_id)
    assert found["broken"] == "checkpoints"
    assert "nowhere" in said(found)


def test_a_log_without_steps(
    well: Path,
    examine: Examine,
    temporal: Temporal,
    job_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "train.log"
    log.touch()
    watch(temporal, job_id, log_paths=(str(log),), checkpoint_dir=str(tmp_path))

    async def answer(client: Client, name: str) -> Any:
        status = await monitor_status(client, name)
        return status and status.model_copy(update={"progress": None})

    monkeypatch.setattr(job_stages, "monitor_status", answer)
    found = examine(job_id)
    assert found["broken"] == "steps"
    assert "step_patterns" in said(found)
