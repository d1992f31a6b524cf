"""What an ordinary user of Slurm can do with relight: restart their own jobs elsewhere, and nothing more."""

import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from relight.contracts import JobState
from relight.scheduler.port import NotPermitted, SchedulerError
from relight.scheduler.slurm_cli import SlurmCliScheduler
from relight.scheduler.slurm_run import SlurmCommands
from tests.relight.scheduler.contract import request
from tests.relight.scheduler.test_slurm_cli import SlurmSite, cluster, commands, site  # noqa: F401 - fixtures

pytestmark = pytest.mark.slurm


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory in which anybody may write. Not `tmp_path`: each pytest that starts closes its parents."""
    with tempfile.TemporaryDirectory(prefix="relight-") as path:
        Path(path).chmod(0o777)
        yield Path(path)


@pytest.fixture
def as_nobody(open_path: Path) -> SlurmCliScheduler:
    """Relight's adapter, whose Slurm commands run as user `nobody`."""
    wrappers = open_path / "bin"
    wrappers.mkdir()
    for name in ("squeue", "scontrol", "sinfo", "sacct", "scancel", "sbatch"):
        script = wrappers / name
        script.write_text(
            f'#!/bin/sh\nexec setpriv --reuid=nobody --clear-groups {shutil.which(name)} "$@"\n'
        )
        script.chmod(0o755)
    assert pwd.getpwnam("nobody").pw_uid != 0
    return SlurmCliScheduler(SlurmCommands(str(wrappers)))


async def test_an_ordinary_user_restarts_their_own_job_elsewhere(
    site: SlurmSite,  # noqa: F811
    as_nobody: SlurmCliScheduler,
    open_path: Path,
) -> None:
    job_id = await site.scheduler.submit(request(open_path, user="nobody"))
    node = (await site.until_running(job_id)).nodes[0]
    await as_nobody.requeue_hold(job_id)
    await site.until_held(job_id)
    await as_nobody.exclude_nodes(job_id, [node])
    await as_nobody.set_comment(job_id, "relight: seen")
    await as_nobody.release(job_id)
    again = await site.until_running(job_id)
    assert node not in again.nodes
    assert (again.restart_count, again.user, again.state) == (1, "nobody", JobState.RUNNING)


async def test_other_peoples_jobs_and_nodes_are_out_of_reach(
    site: SlurmSite,  # noqa: F811
    as_nobody: SlurmCliScheduler,
    open_path: Path,
) -> None:
    job_id = await site.scheduler.submit(request(open_path, user="root"))
    running = await site.until_running(job_id)
    with pytest.raises(NotPermitted):
        await as_nobody.requeue_hold(job_id)
    with pytest.raises(NotPermitted):
        await as_nobody.set_comment(job_id, "mine")
    with pytest.raises(SchedulerError):
        await as_nobody.drain_node(running.nodes[0], "relight: mine")
    nodes = await site.scheduler.nodes([running.nodes[0]])
    assert not nodes[running.nodes[0]].is_drained
    assert (await site.scheduler.job(job_id)).state is JobState.RUNNING
