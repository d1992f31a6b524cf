"""The whole line in one place: a real Slurm cluster, a real Temporal server, relight's own processes.

Everything runs as a user would run it: `relight worker` and `relight sensor` are processes of their own, so
that tests can kill them; the training job is the demo's, run by `srun` under Slurm.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter

from relight.cli.devserver import DevServer
from relight.contracts import RecoveryOutcome
from relight.contracts.messages import MonitorResult, MonitorStatus, RecoveryStatus
from tests.slurm.cluster import SlurmCluster

ROOT = Path(__file__).parents[2]
TRAINER = ROOT / "relight" / "demo" / "trainer.py"
CLUSTER = "lab"
AWAY = float(os.environ.get("RELIGHT_TEST_AWAY", "20"))
"""How long tests keep Slurm away, in seconds. With 600 they were run by hand: see docs/reliability.md."""

CONFIG = """
cluster = "{cluster}"
scheduler = "slurm-cli"
state_dir = "{state}"

[archive]
url = "{state}/archive"
"""

POLICY = """
[policies.{name}]
settle = "1s"
hang_floor = "{hang_floor}s"
hang_factor = 3.0
approval_deadline = "10m"
confirm_window = "30s"
verify_window = "3m"
poll = "{poll}s"
{more}
"""

POLICIES = {
    "test": "",
    "pointer": 'steer = "pointer"',
    "aside": 'steer = "move_aside"',
    "variable": 'steer = "environment"\nresume_variable = "RESUME_FROM"',
    "strict": 'on_from_scratch = "hold"',
    "sure": "signs = 2",
    "bold": "signs_to_drain = 1",
}

JOB = """#!/bin/bash
#SBATCH --job-name=train
#SBATCH --open-mode=append
srun --kill-on-bad-exit=1 --unbuffered {wrap} {python} {trainer} --dir {dir} --steps {steps} \\
    --step-time {step_time} --save-every 10 {options}
"""


class Process:
    """One of relight's processes, with its output in a file."""

    def __init__(self, argv: list[str], env: Mapping[str, str], log: Path) -> None:
        self.argv, self.env, self.log = argv, env, log
        self.popen: subprocess.Popen[bytes] | None = None

    def start(self) -> "Process":
        with self.log.open("ab") as out:
            self.popen = subprocess.Popen(
                self.argv, env=dict(self.env), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        return self

    def kill(self, sig: int = signal.SIGKILL) -> None:
        """Ends it (kill -9 unless told otherwise) and waits until it is gone."""
        if self.popen is not None and self.popen.poll() is None:
            self.popen.send_signal(sig)
            try:
                self.popen.wait(40)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()

    @property
    def alive(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class Training:
    """One submitted training job and what it wrote."""

    def __init__(self, lab: "Lab", job_id: str, directory: Path) -> None:
        self.lab, self.job_id, self.dir = lab, job_id, directory
        self.log = directory / "train.log"

    def steps(self) -> list[int]:
        """The steps that its log tells, in the order printed."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines() if self.log.exists() else []:
            if " iteration " in line and "/" in line:
                found.append(int(line.split(" iteration ", 1)[1].split("/", 1)[0]))
        return found

    def last_step(self) -> int:
        return max(self.steps(), default=0)

    def fault(self, kind: str, rank: int = 1, step: int | None = None, **more: Any) -> datetime:
        """Injects a fault now (or at a step) and returns when."""
        order = {"kind": kind, "step": self.last_step() + 1 if step is None else step, "rank": rank, **more}
        scratch = self.dir / "fault.json.new"
        scratch.write_text(json.dumps(order))
        now = datetime.now(UTC)
        scratch.rename(self.dir / "fault.json")
        return now

    def info(self) -> dict[str, str]:
        return self.lab.slurm.job(self.job_id)

    def restarts(self) -> int:
        return int(self.info()["Restarts"])


class Lab:
    """relight at work on a real Slurm cluster."""

    def __init__(
        self,
        root: Path,
        slurm: SlurmCluster,
        *,
        hang_floor: float = 4,
        poll: float = 300,
        name: str = CLUSTER,
        top: str = "",
        more: str = "",
    ) -> None:
        """Writes the settings: `top` are lines for their beginning, `more` tables for their end."""
        self.root, self.slurm, self.name = root, slurm, name
        self.server = DevServer(root / "temporal.db")
        config = root / "relight.toml"
        policies = [
            POLICY.format(name=policy, more=more, hang_floor=hang_floor, poll=poll)
            for policy, more in POLICIES.items()
        ]
        config.write_text(top + CONFIG.format(cluster=name, state=root / "state") + "".join(policies) + more)
        self._config = config
        self._client: Client | None = None
        self._jobs = 0

    def __enter__(self) -> "Lab":
        self.server.start()
        self.env = {
            **self.slurm.env,
            "TEMPORAL_ADDRESS": self.server.address,
            "RELIGHT_CONFIG": str(self._config),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "200",
        }
        self.worker = self.process("worker").start()
        self.sensor = self.process("sensor").start()
        return self

    def __exit__(self, *exc: object) -> None:
        if exc[0] is not None:
            for process in (self.worker, self.sensor):
                print(f"--- {process.log.name}\n{process.text()[-6000:]}", file=sys.stderr)
        for process in (self.worker, self.sensor):
            process.kill()
        self.server.stop()

    def process(self, command: str, *, name: str = "", **env: str) -> Process:
        """Another of relight's processes, not started yet."""
        log = self.root / f"{name or command}.log"
        return Process([sys.executable, "-m", "relight", command], {**self.env, **env}, log)

    # ---- the command -----------------------------------------------------------
    def cli(self, *args: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        """Runs `relight ARGS` as a user would."""
        done = subprocess.run(
            [sys.executable, "-m", "relight", *args],
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=60,
        )
        if check and done.returncode:
            raise AssertionError(f"relight {args}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def temporal(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Runs Temporal's own command, as somebody who knows nothing of relight's would."""
        program = shutil.which("temporal", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        assert program, "the `temporal` command is not installed"
        return subprocess.run(
            [program, *args], env=self.env, capture_output=True, text=True, timeout=60, check=True
        )

    # ---- jobs ------------------------------------------------------------------
    def train(
        self, options: str = "", *, nodes: int = 2, steps: int = 100000, step_time: float = 0.1,
        sbatch: tuple[str, ...] = (), mode: str | None = "observe", wait_step: int = 5, wrap: str = "",
        policy: str = "test",
    ) -> Training:  # fmt: skip
        """Submits a training job, watches it, and waits until it makes progress (mode None: not watched).

        `wrap` is a command that gets the training's own command as its arguments.
        """
        self._jobs += 1
        directory = self.root / f"job{self._jobs}"
        directory.mkdir()
        script = JOB.format(
            wrap=wrap,
            python=sys.executable,
            trainer=TRAINER,
            dir=directory,
            steps=steps,
            step_time=step_time,
            options=options,
        )
        job = self.slurm.sbatch(
            script, "-N", str(nodes), "--ntasks-per-node=2", "-o", str(directory / "train.log"), *sbatch
        )
        training = Training(self, str(job), directory)
        if mode is not None:
            self.cli(
                "watch", training.job_id, "--policy", policy, "--mode", mode,
                "--checkpoints", str(directory / "checkpoints"), "--force",  # made by the job
            )  # fmt: skip
        self.until(f"step {wait_step}", lambda: training.last_step() >= wait_step, 60)
        return training

    # ---- Temporal --------------------------------------------------------------
    async def client(self) -> Client:
        if self._client is None:
            self._client = await Client.connect(self.server.address, data_converter=pydantic_data_converter)
        return self._client

    async def monitor(self, training: Training) -> WorkflowHandle[Any, MonitorResult]:
        """The monitor of a job."""
        client = await self.client()
        query = f"WorkflowType='TrainingJobMonitor' AND RelightJobId='{training.job_id}'"
        end = time.monotonic() + 20
        while time.monotonic() < end:
            async for found in client.list_workflows(query):
                return client.get_workflow_handle(found.id, result_type=MonitorResult)
            await asyncio.sleep(0.2)
        raise AssertionError(f"no monitor of job {training.job_id}")

    async def status(self, training: Training) -> MonitorStatus:
        handle = await self.monitor(training)
        return await handle.query("status", result_type=MonitorStatus)

    async def recoveries(self, training: Training) -> list[str]:
        """Ids of all recoveries of a job, oldest first."""
        client = await self.client()
        query = f"WorkflowType='RecoveryWorkflow' AND RelightJobId='{training.job_id}'"
        found = [w async for w in client.list_workflows(query)]
        return [w.id for w in sorted(found, key=lambda w: w.start_time)]

    async def recovery(
        self, training: Training, timeout: float = 60, number: int = 0
    ) -> WorkflowHandle[Any, RecoveryOutcome]:
        """A recovery of a job (the first), once there is one."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            found = await self.recoveries(training)
            if len(found) > number:
                client = await self.client()
                return client.get_workflow_handle(found[number], result_type=RecoveryOutcome)
            await asyncio.sleep(0.2)
        raise AssertionError(f"no recovery of job {training.job_id} within {timeout} s")

    async def recovery_in(
        self, training: Training, *states: str, timeout: float = 60, number: int = 0
    ) -> RecoveryStatus:
        """The status of a recovery of the job (the first), once it is in one of these states."""
        handle = await self.recovery(training, timeout, number)
        end = time.monotonic() + timeout
        status = None
        while time.monotonic() < end:
            try:
                status = await handle.query("status", result_type=RecoveryStatus)
            except Exception as error:  # the worker may be down on purpose just now
                print(f"query: {error}")
            if status is not None and status.state in states:
                return status
            await asyncio.sleep(0.1)
        raise AssertionError(f"recovery not in {states} within {timeout} s but {status}")

    async def outcome(self, training: Training, timeout: float = 120, number: int = 0) -> RecoveryOutcome:
        """How a recovery of the job (the first) ended."""
        handle = await self.recovery(training, timeout, number)
        return await asyncio.wait_for(handle.result(), timeout)

    # ---- waiting ---------------------------------------------------------------
    @staticmethod
    def until(what: str, test: Callable[[], object], timeout: float = 60, every: float = 0.1) -> None:
        """Waits, in this thread."""
        end = time.monotonic() + timeout
        while not test():
            assert time.monotonic() < end, f"not within {timeout} s: {what}"
            time.sleep(every)

    @staticmethod
    async def until_async(
        what: str, test: Callable[[], object], timeout: float = 60, every: float = 0.1
    ) -> None:
        """Waits, and lets the event loop go on."""
        end = time.monotonic() + timeout
        while not test():
            assert time.monotonic() < end, f"not within {timeout} s: {what}"
            await asyncio.sleep(every)

    @staticmethod
    async def until_found(find: Callable[[], list[Any]], timeout: float = 30) -> list[Any]:
        """What is found, once it is something."""
        end = time.monotonic() + timeout
        while not (found := find()):
            assert time.monotonic() < end, f"nothing found within {timeout} s"
            await asyncio.sleep(0.2)
        return found
