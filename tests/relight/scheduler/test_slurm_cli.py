"""The `slurm-cli` adapter on a real Slurm cluster."""

import asyncio
from collections.abc import Iterator

import pytest

from relight.scheduler.port import Scheduler
from relight.scheduler.slurm_cli import SlurmCliScheduler
from relight.scheduler.slurm_run import SlurmCommands
from tests.relight.scheduler.contract import SchedulerContract, Site
from tests.slurm.cluster import SlurmCluster

pytestmark = pytest.mark.slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """As after an installation, a requeued job has to wait much longer than any test does."""
    with SlurmCluster(nodes=4, slurmd_timeout=2, message_timeout=3, cred_expire=120) as started:
        yield started


@pytest.fixture
def commands(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCommands:
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    return SlurmCommands()


class SlurmSite(Site):
    """The cluster, as the contract wants it."""

    def __init__(self, cluster: SlurmCluster, scheduler: Scheduler) -> None:
        self.cluster, self.scheduler = cluster, scheduler

    async def kill_node(self, node: str) -> None:
        await asyncio.to_thread(self.cluster.kill_node, node)

    async def restore_node(self, node: str) -> None:
        self.cluster.restore_node(node)


@pytest.fixture
def site(cluster: SlurmCluster, commands: SlurmCommands) -> Iterator[SlurmSite]:
    yield SlurmSite(cluster, SlurmCliScheduler(commands))
    cluster.run("scancel", "--user=root")
    cluster.run("scancel", "--user=nobody")
    cluster.wait_idle()


class TestSlurmCli(SchedulerContract):
    """The contract."""
