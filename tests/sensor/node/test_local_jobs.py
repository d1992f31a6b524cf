"""Which jobs are on a node, by control groups as Slurm makes them."""

from pathlib import Path

import pytest

from sensor.node.local_jobs import MOST_JOBS, LocalJobs


def make(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).mkdir(parents=True)


@pytest.mark.parametrize(
    "root",
    ["system.slice/slurmstepd.scope", "system.slice/node01_slurmstepd.scope", "freezer/slurm/uid_1001",
     "freezer/slurm_node01/uid_0"],
)  # fmt: skip
def test_jobs_are_found_where_slurm_puts_them(tmp_path: Path, root: str) -> None:
    make(tmp_path, f"{root}/job_4243/step_0/user", f"{root}/job_7", f"{root}/system", f"{root}/job_x")
    assert LocalJobs(tmp_path).look(0) == ("4243", "7")


def test_without_control_groups_nobody_knows(tmp_path: Path) -> None:
    make(tmp_path, "system.slice/sshd.service")
    assert LocalJobs(tmp_path).look(0) is None


def test_an_idle_node_has_none(tmp_path: Path) -> None:
    make(tmp_path, "system.slice/slurmstepd.scope/system")
    assert LocalJobs(tmp_path).look(0) == ()


def test_a_job_that_has_just_ended_is_remembered(tmp_path: Path) -> None:
    make(tmp_path, "system.slice/slurmstepd.scope/job_7")
    jobs = LocalJobs(tmp_path)
    jobs.look(0)
    (tmp_path / "system.slice/slurmstepd.scope/job_7").rmdir()
    assert jobs.look(30) == ("7",)
    assert jobs.look(61) == ()


def test_too_many_are_not_believed(tmp_path: Path) -> None:
    make(tmp_path, *(f"system.slice/slurmstepd.scope/job_{n}" for n in range(MOST_JOBS + 1)))
    assert LocalJobs(tmp_path).look(0) is None
