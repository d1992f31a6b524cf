"""The sensor as a process: it ends when asked to, stands by for another one, and serves metrics."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from relight.cli.devserver import free_port

RUN = """
import asyncio
from relight.config import Settings, SensorSettings
from sensor.main import run_sensor
asyncio.run(run_sensor(Settings(sensor=SensorSettings(metrics_address={address!r}))))
"""


def start(tmp_path: Path, name: str, address: str = "") -> subprocess.Popen[bytes]:
    with (tmp_path / f"{name}.log").open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-c", RUN.format(address=address)],
            env={
                **os.environ,
                "RELIGHT_STATE_DIR": str(tmp_path / "state"),
                "RELIGHT_SCHEDULER": "local",
                "RELIGHT_CLUSTER": "alone",
                "TEMPORAL_ADDRESS": f"127.0.0.1:{free_port()}",  # nobody answers there
            },
            stdout=out,
            stderr=out,
        )


def until(what: str, holds: Callable[[], bool], tmp_path: Path, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        logs = "\n".join(log.read_text() for log in tmp_path.glob("*.log"))
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{logs}"
        time.sleep(0.05)


def says(tmp_path: Path, name: str, text: str) -> bool:
    return text in (tmp_path / f"{name}.log").read_text()


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_without_temporal_it_waits_and_ends_when_asked_to(tmp_path: Path, sig: signal.Signals) -> None:
    sensor = start(tmp_path, "one")
    try:
        until("it waits for Temporal", lambda: says(tmp_path, "one", "which jobs are watched"), tmp_path)
        assert sensor.poll() is None
        sensor.send_signal(sig)
        assert sensor.wait(20) == 0
    finally:
        sensor.kill()
        sensor.wait()


def test_a_second_sensor_stands_by_and_takes_over(tmp_path: Path) -> None:
    first = start(tmp_path, "one")
    second = None
    try:
        until("the first watches", lambda: says(tmp_path, "one", "the sensor watches"), tmp_path)
        second = start(tmp_path, "two")
        until("the second stands by", lambda: says(tmp_path, "two", "standing by"), tmp_path)
        assert says(tmp_path, "two", f"pid {first.pid} on {socket.gethostname()}"), "it names who holds it"
        assert says(tmp_path, "two", "set state_dir")
        assert not says(tmp_path, "two", "the sensor watches")
        first.kill()
        until("the second watches", lambda: says(tmp_path, "two", "the sensor watches"), tmp_path)
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.wait()


def test_metrics_are_served(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    sensor = start(tmp_path, "one", address)
    try:

        def text() -> str:
            try:
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
                    return str(answer.read().decode())
            except OSError:
                return ""

        until("a heartbeat", lambda: "relight_sensor_heartbeat_timestamp_seconds 1." in text(), tmp_path)
        assert "relight_sensor_temporal_up 0.0" in text()
    finally:
        sensor.kill()
        sensor.wait()


def test_a_metrics_address_that_is_taken_is_an_error_that_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        sensor = start(tmp_path, "one", f"127.0.0.1:{taken.getsockname()[1]}")
        assert sensor.wait(30) != 0
    assert says(tmp_path, "one", "metrics_address")
