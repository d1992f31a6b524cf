"""relight's processes, the simulated Slurm and a Temporal server for the benchmark, and what each uses."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from temporalio.client import Client

from bench.scale.cluster import CLUSTER
from relight.cli.devserver import DevServer, free_port
from relight.temporal import connect

COMMANDS = ("squeue", "sinfo", "scontrol", "sacct", "scancel", "sbatch")
SOURCE = Path(__file__).with_name("command.c")
CONFIG = """
cluster = "{cluster}"
scheduler = "slurm-cli"
state_dir = "{state}"
mode = "act"
{more}
"""
STORM_LIMITS = """
[guard_limits]
recoveries_per_hour = 1000
"""
"""The guard's shipped limits let 200 recoveries begin in an hour; for the storm it is as many as it can
be."""


class Used:
    """CPU seconds and resident bytes of a process and its children, those that ended included."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def cpu(self) -> float:
        """Seconds of CPU so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Resident bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Plant:
    """All processes, in one directory. The Temporal server is started here unless `address` names another.

    Args:
        root: an empty directory with a short name (a Unix socket lies in it).
        jobs: how many jobs the simulated cluster runs.
        step_seconds: from one step line of a job to its next.
        more: further settings of relight, as TOML.
        address: of a Temporal server that runs elsewhere; its namespace must be set up (`relight setup`).
    """

    def __init__(
        self, root: Path, jobs: int, *, step_seconds: float = 10.0, more: str = "", address: str = ""
    ) -> None:
        self.root, self.jobs = root, jobs
        self._step_seconds, self._more, self._address = step_seconds, more, address
        self.server = None if address else DevServer(root / "temporal.db")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._metrics = f"127.0.0.1:{free_port()}"
        self.client: Client

    async def start(self) -> None:
        """Starts all of them, the sensor not yet: a sensor looks at each job from the first moment on.

        Raises:
            RuntimeError: one of them ended at once; the message is what it said last.
        """
        _install(self.root)
        (self.root / "relight.toml").write_text(
            CONFIG.format(cluster=CLUSTER, state=self.root / "state", more=self._more)
        )
        if self.server is not None:
            self.server.start()
        env = self._environment("worker")
        os.environ["TEMPORAL_ADDRESS"] = env["TEMPORAL_ADDRESS"]
        self.client = await connect()
        cluster = ["--jobs", str(self.jobs), "--step-seconds", str(self._step_seconds)]
        self._run("slurmctld", ["-m", "bench.scale.slurmctld", str(self.root), *cluster], dict(os.environ))
        await self._until("slurmctld", lambda: (self.root / "ctl.sock").exists())
        self._run("worker", ["-m", "relight", "worker"], env)
        await self._until("worker", lambda: "the worker serves" in self.said("worker"))

    def start_sensor(self) -> None:
        """Starts the sensor."""
        self._run("sensor", ["-m", "relight", "sensor"], self._environment("sensor"))

    def stop(self) -> None:
        """Ends all of them."""
        for process in self._processes.values():
            process.send_signal(signal.SIGKILL)
            process.wait()
        if self.server is not None:
            self.server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for name in self._processes:
                print(f"--- {name}\n{self.said(name)[-3000:]}", file=sys.stderr)
        self.stop()

    # ---- what they use and say ---------------------------------------------------------------------------

    def used(self) -> dict[str, Used]:
        """What to ask for CPU and memory, by the process' name."""
        pids = {name: process.pid for name, process in self._processes.items()}
        if self.server is not None:
            pids["temporal"] = self.server.pid
        return {name: Used(pid) for name, pid in pids.items()}

    def bench(self, *args: str) -> Any:
        """Tells the simulated slurmctld something, and returns its answer."""
        with socket.socket(socket.AF_UNIX) as ctl:
            ctl.connect(str(self.root / "ctl.sock"))
            ctl.sendall("".join(f"{arg}\0" for arg in ("bench", *args)).encode())
            ctl.shutdown(socket.SHUT_WR)
            with ctl.makefile("rb") as answer:
                return json.loads(answer.read()[1:])

    def sensor_metrics(self) -> dict[str, float]:
        """The sensor's metrics without labels, and `relight_sensor_log_lag_seconds` of its worst job."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=30) as answer:
            return read_metrics(answer.read().decode())

    def said(self, name: str) -> str:
        """The log of a process."""
        path = self.root / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # ---- inside ------------------------------------------------------------------------------------------

    def _environment(self, side: str) -> dict[str, str]:
        where = self._address or (self.server.address if self.server is not None else "")
        base = dict(os.environ) if self._address or self.server is None else self.server.environment
        return {
            **base,
            "TEMPORAL_ADDRESS": where,
            "RELIGHT_CONFIG": str(self.root / "relight.toml"),
            "RELIGHT_SLURM__BIN_DIR": str(self.root / f"bin-{side}"),
            "RELIGHT_SENSOR__METRICS_ADDRESS": self._metrics,
        }

    def _run(self, name: str, argv: list[str], env: dict[str, str]) -> None:
        # As where relight is installed: Temporal's sandbox imports the workflows anew for each execution, and
        # without compiled files that takes as much CPU as all else that a worker does.
        env = {name: value for name, value in env.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = str(self.root / "pycache")
        with (self.root / f"{name}.log").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                [sys.executable, *argv], env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    async def _until(self, name: str, test: Any, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not test():
            if self._processes[name].poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{name} does not come up: {self.said(name)[-2000:]}")
            await asyncio.sleep(0.05)


def _install(root: Path) -> None:
    """Compiles the command and links it under the names of Slurm's commands, for each side."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise RuntimeError("there is no C compiler `cc`: install one (Debian: apt-get install gcc libc6-dev)")
    subprocess.run([compiler, "-O2", "-Wall", "-o", str(root / "command"), str(SOURCE)], check=True)
    for side in ("worker", "sensor"):
        directory = root / f"bin-{side}"
        directory.mkdir()
        for name in COMMANDS:
            (directory / name).symlink_to(root / "command")


_SAMPLE = re.compile(r"^(relight_\w+)(\{[^}]*\})? (\S+)$")


def read_metrics(text: str) -> dict[str, float]:
    """Samples of a Prometheus exposition by name; of several series the largest value."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if (sample := _SAMPLE.match(line)) is not None:
            name, value = sample[1], float(sample[3])
            found[name] = max(value, found.get(name, value))
    return found
