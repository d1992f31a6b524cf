"""Slurm that answers with errors and says that all went well: nothing is done meanwhile."""

import asyncio
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from relight.contracts import Outcome
from relight.contracts.messages import MonitorStatus
from tests.integration.lab import AWAY, Lab, Training
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(240 + AWAY)]

COMMANDS = ("squeue", "sinfo", "sacct", "scontrol", "scancel", "sbatch")
LIAR = """#!/bin/sh
# {program}, which while {switch} exists fails and says that it did not.
[ -e {switch} ] || exec {real} "$@"
{says}
exit 0
"""
SAYS = {
    "an error on standard output": "echo 'slurm_load_jobs error: Unable to contact slurm controller'",
    "an error beside an empty answer": "echo 'slurm_load_jobs error: Socket timed out on send/recv' >&2",
    "half a listing": """{real} "$@" | head -c 40""",
}


@pytest.fixture(params=SAYS)
def liar(
    request: pytest.FixtureRequest, slurm_cluster: SlurmCluster, tmp_path: Path
) -> Iterator[tuple[Lab, Path]]:
    """A lab whose Slurm commands lie as long as the file exists."""
    bin_dir, switch = tmp_path / "bin", tmp_path / "lying"
    bin_dir.mkdir()
    for program in COMMANDS:
        real = shutil.which(program)
        assert real, f"{program} is not installed"
        path = bin_dir / program
        says = SAYS[request.param].format(real=real)
        path.write_text(LIAR.format(program=program, switch=switch, real=real, says=says))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    root = tmp_path / "lab"
    root.mkdir()
    with Lab(root, slurm_cluster, name="liar", poll=2, more=f'\n[slurm]\nbin_dir = "{bin_dir}"\n') as lab:
        yield lab, switch


async def unchanged(lab: Lab, training: Training, before: list[str]) -> MonitorStatus:
    """Nothing was asked of slurmctld that changes anything, and the monitor still watches."""
    assert lab.slurm.mutations() == before
    assert training.restarts() == 0
    status = await lab.status(training)
    assert status.end is None
    return status


async def test_errors_inside_a_success_mean_nothing(liar: tuple[Lab, Path]) -> None:
    lab, switch = liar
    training = lab.train(mode="act", wait_step=12)
    before = lab.slurm.mutations()
    switch.touch()
    await asyncio.sleep(AWAY / 2)
    assert await lab.recoveries(training) == []  # a healthy job is left alone
    training.fault("exception")
    await asyncio.sleep(AWAY / 2)
    await unchanged(lab, training, before)
    switch.unlink()
    known = await lab.recovery_in(training, "awaiting-approval", "draining", "verifying", "ended")
    if known.state == "awaiting-approval":  # Slurm was away for longer than `confirm_window`
        lab.cli("approve", training.job_id, "--yes")
    assert (await lab.outcome(training)).outcome is Outcome.RESUMED
    assert training.restarts() == 1
