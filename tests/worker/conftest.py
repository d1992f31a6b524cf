"""A real Temporal dev server for the session, and `relight worker` as the process that users run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from relight.cli.devserver import DevServer


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with DevServer(tmp_path_factory.mktemp("temporal") / "temporal.db") as server:
        yield server


@pytest.fixture
async def client(server: DevServer) -> Client:
    return await Client.connect(server.address, data_converter=pydantic_data_converter)


class WorkerProcess:
    """`relight worker`, with its output in a file."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        self.log = directory / "worker.log"
        self.environment, self._directory = environment, directory
        self.popen: subprocess.Popen[bytes] | None = None

    def start(self, **more: str) -> "WorkerProcess":
        with self.log.open("wb") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "relight", "worker"],
                env={**self.environment, **more},
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        return self

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, timeout: float = 60) -> int:
        assert self.popen is not None
        return self.popen.wait(timeout)

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> int:
        assert self.popen is not None
        self.popen.send_signal(sig)
        return self.wait()

    def until(self, what: str, test: Callable[[], object], timeout: float = 60) -> None:
        end = time.monotonic() + timeout
        while not test():
            assert self.popen is not None
            assert self.popen.poll() is None, f"the worker ended\n{self.text()}"
            assert time.monotonic() < end, f"not within {timeout} s: {what}\n{self.text()}"
            time.sleep(0.05)

    def serving(self) -> None:
        self.until("it serves", lambda: "the worker serves" in self.text())


@pytest.fixture
def worker(server: DevServer, tmp_path: Path) -> Iterator[WorkerProcess]:
    """Not started yet; on the local scheduler and a queue of its own."""
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("RELIGHT_", "TEMPORAL_"))},
        "TEMPORAL_ADDRESS": server.address,
        "RELIGHT_SCHEDULER": "local",
        "RELIGHT_STATE_DIR": str(tmp_path / "state"),
        "RELIGHT_TASK_QUEUE": f"queue-{tmp_path.name}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "HOME": str(tmp_path),
        "COLUMNS": "200",
    }
    process = WorkerProcess(environment, tmp_path)
    yield process
    if process.popen is not None and process.popen.poll() is None:
        process.popen.kill()
        process.popen.wait()
