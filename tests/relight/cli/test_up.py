"""`relight up`: everything in one process tree, kept running, and ended as a whole."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relight.cli.devserver import free_port, port_is_free
from relight.cli.exit_codes import ExitCode

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(240)]


class Up:
    """A running `relight up`, with its output."""

    def __init__(self, tmp_path: Path) -> None:
        self.port, self.ui_port = free_port(), free_port()
        self.log = tmp_path / "up.log"
        config = tmp_path / "relight.toml"
        config.write_text(f'scheduler = "local"\ncluster = "try"\nstate_dir = "{tmp_path}/state"\n')
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("RELIGHT_", "TEMPORAL_"))},
            "RELIGHT_CONFIG": str(config),
            "PYTHONUNBUFFERED": "1",
        }
        argv = [sys.executable, "-m", "relight", "up"]
        argv += ["--port", str(self.port), "--ui-port", str(self.ui_port)]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(argv, env=self.env, stdout=out, stderr=out)

    def until(self, what: str, timeout: float = 90) -> None:
        end = time.monotonic() + timeout
        while not re.search(what, self.log.read_text(errors="replace")):
            assert self.process.poll() is None, self.log.read_text(errors="replace")
            assert time.monotonic() < end, self.log.read_text(errors="replace")
            time.sleep(0.1)

    def children(self, name: str) -> list[int]:
        """Pids of its children whose command line ends with `name`."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parent = int(re.search(r"PPid:\s+(\d+)", (entry / "status").read_text())[1])  # type: ignore[index]
                words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            except (OSError, TypeError):
                continue
            if parent == self.process.pid and words[-1].decode() == name:
                found.append(int(entry.name))
        return found


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    started = Up(tmp_path)
    try:
        yield started
    finally:
        started.process.terminate()
        started.process.wait(90)


def test_all_of_it_runs_is_kept_running_and_ends(up: Up) -> None:
    up.until("relight is up")
    done = subprocess.run(
        [sys.executable, "-m", "relight", "jobs"],
        env={**up.env, "TEMPORAL_ADDRESS": f"127.0.0.1:{up.port}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "no job is watched" in done.stdout
    assert f"export TEMPORAL_ADDRESS=127.0.0.1:{up.port}" in up.log.read_text()

    [worker] = up.children("worker")
    os.kill(worker, signal.SIGKILL)
    up.until(r"the worker ended \(signal SIGKILL\)")
    end = time.monotonic() + 60
    while (again := up.children("worker")) in ([], [worker]):
        assert time.monotonic() < end, up.log.read_text()
        time.sleep(0.1)

    [sensor] = up.children("sensor")
    other = [sys.executable, "-m", "relight", "up", "--port", str(free_port()), "--ui-port", str(free_port())]
    done = subprocess.run(other, env=up.env, capture_output=True, text=True, timeout=60)
    assert done.returncode == ExitCode.REFUSED, "it would share Temporal's database and the sensor's lock"
    assert f"another sensor (pid {sensor} on {socket.gethostname()})" in " ".join(done.stderr.split())
    assert "RELIGHT_STATE_DIR" in done.stderr
    up.process.send_signal(signal.SIGTERM)
    assert up.process.wait(90) == 0, up.log.read_text()
    assert port_is_free(up.port)
    assert port_is_free(up.ui_port)
    for pid in (*again, sensor):
        assert not Path(f"/proc/{pid}").exists(), "a service outlived relight up"
