"""`relight simulate` beside `relight up`: what it reports, and that it leaves nothing and touches nothing."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relight.contracts import JobInfo
from relight.scheduler.local import LocalScheduler
from relight.scheduler.port import SubmitRequest
from tests.relight.cli.conftest import Relight, check_json
from tests.relight.cli.test_up import Up

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    started = Up(tmp_path_factory.mktemp("up"))
    try:
        started.until("relight is up")
        yield started
    finally:
        started.process.terminate()
        started.process.wait(90)


def simulate(up: Up, inside: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "relight", "simulate", *args, "--dir", str(inside), "--json"],
        env={**up.env, "TEMPORAL_ADDRESS": f"127.0.0.1:{up.port}"},
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def relight_json(up: Up, *args: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "relight", *args, "--json"],
        env={**up.env, "TEMPORAL_ADDRESS": f"127.0.0.1:{up.port}"},
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    return json.loads(done.stdout)


def place(tmp_path: Path, name: str) -> Path:
    directory = tmp_path / name
    directory.mkdir()
    return directory


def test_three_simulations_beside_somebody_elses_job(up: Up, tmp_path: Path) -> None:
    """At the same time: one that is recovered, one that is not noticed in time, one that is interrupted."""
    scheduler = LocalScheduler(up.log.parent / "state")
    sleeps = SubmitRequest(script="#!/bin/sh\nexec sleep 600\n", work_dir=str(tmp_path))
    other = asyncio.run(scheduler.submit(sleeps))
    good, late, cut = (place(tmp_path, name) for name in ("good", "late", "cut"))
    recovered = simulate(up, good, "exception", "--mode", "act")
    missed = simulate(up, late, "hang", "--timeout", "30")  # the default policy's floor is a minute
    interrupted = simulate(up, cut, "hang")
    try:
        end = time.monotonic() + 60
        while not list(cut.glob("*/train.log")):
            assert interrupted.poll() is None
            assert time.monotonic() < end
            time.sleep(0.1)
        interrupted.send_signal(signal.SIGTERM)
        _, told = interrupted.communicate(timeout=60)
        assert interrupted.returncode == 130, told
        assert "Traceback" not in told
        assert list(cut.iterdir()) == []

        shown, told = recovered.communicate(timeout=120)
        assert recovered.returncode == 0, told + shown
        check_json(["simulate"], shown)
        view: Any = json.loads(shown)
        assert (view["ok"], view["right"], view["symptom"], view["cause"]) == (
            True,
            True,
            "crash",
            "user_code",
        )
        assert view["outcome"]["outcome"] == "resumed"
        assert view["resumed_at_step"] <= view["failed_at_step"] < view["passed_step"]
        assert view["fault_at"] <= view["detected_at"]
        made = relight_json(up, "show", view["job_id"])
        assert made["job"]["simulated"], "figures about real jobs leave it out"
        assert list(good.iterdir()) == []

        shown, told = missed.communicate(timeout=120)
        assert missed.returncode == 1, told + shown
        view = json.loads(shown)
        assert (view["ok"], view["right"], view["symptom"]) == (False, False, "none")
        assert "missed: relight noticed nothing; gave up after 30 s" in view["why"]
        [kept] = late.iterdir()
        assert (kept / "train.log").exists(), "the files of a failed one are kept, and named"
        assert str(kept) in told

        assert asyncio.run(scheduler.job(other)).state.value == "RUNNING"
        assert [job for job in jobs_of(scheduler) if not job.state.is_over and job.job_id != other] == []
        assert relight_json(up, "jobs") == []
    finally:
        for process in (recovered, missed, interrupted):
            process.kill()
            process.wait()
        asyncio.run(scheduler.cancel(other))


def jobs_of(scheduler: LocalScheduler) -> list[JobInfo]:
    """All jobs that the scheduler knows: ids are given from 1 on."""
    return list(asyncio.run(scheduler.jobs([str(number) for number in range(1, 10)])).values())


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("simulate", "hang", "--partition", "canary"), 2, "leave --partition out"),
        (("--scheduler", "slurm-cli", "simulate", "hang"), 2, "--partition NAME"),
        (("simulate", "explosion"), 2, "explosion"),
        (("simulate", "hang", "--dir", "/no/such/place"), 2, "No such file"),
        (("simulate", "hang"), 7, "no worker answers"),
    ],
)
def test_what_it_does_not_begin(relight: Relight, args: tuple[str, ...], code: int, says: str) -> None:
    done = relight(*args, RELIGHT_TASK_QUEUE="nobody-serves-this")
    assert done.exit_code == code, done.output
    assert says in done.stderr
