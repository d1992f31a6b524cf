"""The watchdog on real Slurm, with nothing else of relight running."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from activities.tag import tagged
from tests.integration.lab import Lab
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(120)]

PAST = datetime.now(UTC) - timedelta(hours=1)


def test_only_what_relight_holds_is_released(slurm_cluster: SlurmCluster, tmp_path: Path) -> None:
    config = tmp_path / "relight.toml"
    config.write_text(f'scheduler = "slurm-cli"\nstate_dir = "{tmp_path}/state"\n')
    env = {**slurm_cluster.env, "RELIGHT_CONFIG": str(config), "TEMPORAL_ADDRESS": "127.0.0.1:1"}

    def relight(*args: str) -> tuple[int, dict[str, dict[str, object]]]:
        command = [sys.executable, "-m", "relight", "watchdog", "--json", *args]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        assert done.stdout, done.stderr
        return done.returncode, {hold["job_id"]: hold for hold in json.loads(done.stdout)}

    def is_in(job: str, state: str) -> Callable[[], bool]:
        return lambda: slurm_cluster.job(job)["JobState"] == state

    jobs = [str(slurm_cluster.sbatch("#!/bin/bash\nsleep 300\n", "--requeue")) for _ in range(4)]
    ours, by_user, for_person, on_top = jobs
    for job in jobs:
        Lab.until(f"job {job} runs", is_in(job, "RUNNING"))
        slurm_cluster.run("scontrol", "requeuehold", job)
        Lab.until(f"job {job} is back in the queue", is_in(job, "PENDING"))
        mark = tagged("", f"recover:lab:{job}:0:abcd", "on its way", PAST, person=job == for_person)
        slurm_cluster.run("scontrol", "update", f"JobId={job}", f"Comment={mark}")
    slurm_cluster.run("scontrol", "release", by_user)
    slurm_cluster.run("scontrol", "hold", by_user)
    # A hold on top of relight's leaves no trace in Slurm: to keep the job, a person takes the mark away.
    before = slurm_cluster.job(on_top)
    slurm_cluster.run("scontrol", "hold", on_top)
    assert {k: slurm_cluster.job(on_top)[k] for k in ("Reason", "Priority")} == {
        k: before[k] for k in ("Reason", "Priority")
    }
    slurm_cluster.run("scontrol", "update", f"JobId={on_top}", "Comment=keep it")

    code, holds = relight()
    assert code == 8
    assert {job: hold["releasable"] for job, hold in holds.items()} == {
        ours: True, by_user: False, for_person: False
    }  # fmt: skip
    code, holds = relight("--act")
    assert code == 8  # the others are still held
    assert {job: hold["released"] for job, hold in holds.items()} == {
        ours: True, by_user: False, for_person: False
    }  # fmt: skip
    Lab.until("it runs", is_in(ours, "RUNNING"))
    for job in (by_user, for_person, on_top):
        assert slurm_cluster.job(job)["JobState"] == "PENDING"
    assert relight("--act")[1].keys() == {by_user, for_person}
