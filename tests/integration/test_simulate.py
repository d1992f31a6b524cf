"""`relight simulate` on real Slurm: a canary in a partition, watched in observe mode, and gone afterwards."""

import json
from pathlib import Path

import pytest

from tests.integration.lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(240)]


def test_a_gpu_error_in_a_canary(lab: Lab, tmp_path: Path) -> None:
    lab.until("a worker serves", lambda: "the worker serves" in lab.worker.text())
    other = lab.slurm.sbatch("#!/bin/bash\nsleep 600\n", "-N1")
    partition = lab.slurm.job(str(other))["Partition"]
    done = lab.cli(
        "simulate", "cuda", "--partition", partition, "--policy", "test", "--dir", str(tmp_path), "--json",
        "--timeout", "55",
    )  # fmt: skip
    view = json.loads(done.stdout)
    assert (view["ok"], view["mode"], view["outcome"]) == (True, "observe", None)
    assert (view["symptom"], view["cause"], view["suspects"]) == ("crash", "gpu_memory_ecc", [view["node"]])
    assert view["plan"]["action"] == "restart_exclude_node"
    assert lab.slurm.job(view["job_id"])["JobState"] in {"CANCELLED", "FAILED"}
    assert lab.slurm.job(str(other))["JobState"] == "RUNNING", "no other job is touched"
    assert list(tmp_path.iterdir()) == []
    refused = lab.cli("simulate", "cuda", "--partition", "no-such", "--dir", str(tmp_path), check=False)
    assert refused.returncode == 6, refused.stderr
    assert "Traceback" not in refused.stderr
    assert list(tmp_path.iterdir()) == [], "where no job ran, nothing is kept"
