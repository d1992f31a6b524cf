"""Where a page's reader is: a directory, and a training job on Slurm that relight may watch."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from tests.slurm.cluster import SlurmCluster

JOB = f"""#!/bin/bash
#SBATCH --job-name=train --requeue --open-mode=append --output=train.log
exec {sys.executable} -m relight.demo.trainer --dir . --step-time 0.1 --save-every 5
"""


class Around(Protocol):
    """What a place needs of the world around it."""

    root: Path
    slurm: SlurmCluster

    def relight(self, *args: str) -> str:
        """Runs the command, and returns what it prints."""
        ...

    def until(self, what: str, test: Callable[[], Any], timeout: float = 60, every: float = 0.05) -> Any:
        """Waits."""
        ...


class Place:
    """One page: its directory, its job, what happened to that."""

    def __init__(self, world: Around, page: str) -> None:
        self.world, self.page = world, page
        self.dir = world.root / re.sub(r"\W+", "-", page)
        self.dir.mkdir()
        self.job = ""
        """Id of its training job, once there is one."""
        self.watched = self.broken = False

    def start_job(self) -> None:
        """Submits the page's training job, which will save into a directory that is there."""
        (self.dir / "checkpoints").mkdir(exist_ok=True)
        script = self.dir / "job.sh"
        script.write_text(JOB)
        self.job = self.world.slurm.run("sbatch", "--parsable", f"--chdir={self.dir}", str(script)).strip()

    def watch(self) -> None:
        """Puts it under watch, where the page has not done it."""
        if not self.watched:
            (self.dir / "checkpoints").mkdir(exist_ok=True)  # its job may have been submitted by the page
            self.world.relight("watch", self.job, "--checkpoints", str(self.dir / "checkpoints"), "--no-wait")
            self.watched = True

    def break_it(self) -> None:
        """Lets the training crash at its next step, if it is not broken already."""
        if not self.broken:
            self.world.until(
                "its first checkpoint", lambda: [*(self.dir / "checkpoints").glob("step_*[0-9]")]
            )
            (self.dir / "fault.json").write_text('{"kind": "exception", "step": 0}')
            self.broken = True

    def checkpoints(self) -> list[Path]:
        """What the training has saved."""
        return [*(self.dir / "checkpoints").glob("step_*[0-9]")]

    def view(self) -> Any:
        """`relight show --json`."""
        return json.loads(self.world.relight("show", self.job, "--json"))

    def waiting(self) -> dict[str, Any]:
        """The recovery whose plan waits for a person, once there is one."""

        def found() -> Any:
            latest = (self.view()["recoveries"] or [{}])[-1]
            return latest if (latest.get("status") or {}).get("state") == "awaiting-approval" else None

        return dict(self.world.until(f"a plan for job {self.job} waits", found, every=0.3))

    def outcome(self) -> str:
        """How the latest recovery ended, once it has."""

        def found() -> Any:
            return ((self.view()["recoveries"] or [{}])[-1].get("outcome") or {}).get("outcome")

        return str(self.world.until(f"the recovery of job {self.job} ends", found, every=0.3))
