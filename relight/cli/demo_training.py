"""The demo's training job: how it is submitted, and what its own log proves."""

import json
import re
import shlex
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from relight.scheduler.port import SubmitRequest

TRAINER = Path(__file__).parents[1] / "demo" / "trainer.py"
NODES = 2
TASKS_PER_NODE = 2
STEP_SECONDS = 0.1
SAVE_EVERY = 20
TIME_LIMIT_MINUTES = 30

_STEP = re.compile(rb"\biteration +(\d+)/")
_START = re.compile(
    rb"^(?:loaded checkpoint .* at step (\d+)|no checkpoint found, starting from step 0)", re.M
)


@dataclass(frozen=True)
class AttemptSteps:
    """What one attempt wrote into the log."""

    start: int
    """The step of the checkpoint that it loaded; 0 without one."""
    last: int | None
    """The last step that it told; None if it told none."""


@dataclass(frozen=True)
class Proof:
    """Training passed the step it failed at: read from its own log, whatever relight says."""

    failed_at: int
    resumed_at: int
    passed: int


def read_attempts(log: bytes) -> list[AttemptSteps]:
    """The attempts in a training log, oldest first."""
    starts = list(_START.finditer(log))
    attempts = []
    for i, start in enumerate(starts):
        end = starts[i + 1].start() if i + 1 < len(starts) else len(log)
        steps = _STEP.findall(log, start.end(), end)
        attempts.append(AttemptSteps(int(start[1] or 0), int(steps[-1]) if steps else None))
    return attempts


def prove(log: bytes) -> Proof | None:
    """The proof, or None while no later attempt has passed the furthest step of those before it."""
    attempts = read_attempts(log)
    if len(attempts) < 2:
        return None
    failed_at, latest = max(attempt.last or 0 for attempt in attempts[:-1]), attempts[-1]
    if latest.last is None or latest.last <= failed_at:
        return None
    return Proof(failed_at, latest.start, latest.last)


class Training:
    """The files of the demo's training job."""

    def __init__(self, directory: Path) -> None:
        self.dir = directory
        self.log = directory / "train.log"
        self.checkpoints = directory / "checkpoints"

    def request(
        self,
        scheduler: str,
        *,
        name: str = "relight-demo",
        partition: str = "",
        python: str = sys.executable,
        trainer: Path = TRAINER,
    ) -> SubmitRequest:
        """What to submit. Slurm runs the script once, `local` runs it as each task.

        Args:
            scheduler: `local`, or another.
            name: of the job.
            partition: where it runs; empty: where the scheduler puts it.
            python: runs it, on the nodes (3.9 or newer).
            trainer: the training program, where the nodes see it.
        """
        command = shlex.join(
            [
                python, str(trainer), "--dir", str(self.dir), "--step-time", str(STEP_SECONDS),
                "--save-every", str(SAVE_EVERY),
            ]
        )  # fmt: skip
        start = "exec" if scheduler == "local" else "srun --kill-on-bad-exit=1 --unbuffered"
        return SubmitRequest(
            script=f"#!/bin/sh\n{start} {command}\n",
            name=name,
            partition=partition,
            nodes=NODES,
            tasks_per_node=TASKS_PER_NODE,
            work_dir=str(self.dir),
            std_out=str(self.log),
            std_err=str(self.log),
            time_limit_minutes=TIME_LIMIT_MINUTES,
        )

    def read(self) -> bytes:
        """The whole log; empty before there is one."""
        return self.log.read_bytes() if self.log.exists() else b""

    def order_fault(self, kind: str) -> None:
        """Tells the training to fail at its next step, on its last rank."""
        scratch = self.dir / "fault.json.new"
        scratch.write_text(json.dumps({"kind": kind, "step": 0, "times": 1}))
        scratch.rename(self.dir / "fault.json")

    def fault_at(self) -> datetime | None:
        """When the fault really happened; None before."""
        fired = [file.stat().st_mtime for file in (self.dir / "faults-fired").glob("*")]
        return datetime.fromtimestamp(min(fired), UTC) if fired else None
