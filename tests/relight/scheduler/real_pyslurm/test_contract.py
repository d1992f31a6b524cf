"""The `slurm-pyslurm` adapter on a real Slurm cluster, with the real pyslurm: `make test-pyslurm`.

Collected only there (`RELIGHT_REAL_PYSLURM`): pyslurm is built for one release of Slurm, and
Debian has others.
"""

from collections.abc import AsyncIterator, Iterator

import pytest

from relight.scheduler.pyslurm_probe import probe
from relight.scheduler.slurm_cli import SlurmCliScheduler
from relight.scheduler.slurm_pyslurm import SlurmPyslurmScheduler
from relight.scheduler.slurm_run import SlurmCommands
from tests.relight.scheduler.contract import SchedulerContract
from tests.relight.scheduler.test_slurm_cli import SlurmSite
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with SlurmCluster(
        nodes=4, gpus_per_node=8, slurmd_timeout=3, message_timeout=3, cred_expire=120
    ) as started:
        yield started


@pytest.fixture
async def site(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SlurmSite]:
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    monkeypatch.setenv("TZ", "America/Caracas")  # nobody's time zone may matter
    found = probe()
    assert found.usable, found.why_not
    adapter = SlurmPyslurmScheduler(SlurmCliScheduler(SlurmCommands()))
    await adapter.version()  # starts its process
    yield SlurmSite(cluster, adapter)
    adapter.close()
    for user in ("root", "nobody"):
        cluster.run("scancel", f"--user={user}")
    cluster.wait_idle()


class TestRealPyslurm(SchedulerContract):
    """The contract."""
