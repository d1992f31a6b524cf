"""One Slurm cluster for all; one lab (Temporal, worker, sensor) for the tests that kill nothing of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.lab import Lab
from tests.slurm.cluster import SlurmCluster


@pytest.fixture(scope="session")
def lab(slurm_cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Shared: for tests that do not kill the worker, the sensor, Temporal or slurmctld."""
    with Lab(tmp_path_factory.mktemp("lab"), slurm_cluster) as started:
        yield started


@pytest.fixture
def own_lab(slurm_cluster: SlurmCluster, tmp_path: Path) -> Iterator[Lab]:
    """A lab of one's own, to kill parts of."""
    with Lab(tmp_path, slurm_cluster, name="own") as started:
        yield started


@pytest.fixture(autouse=True)
def _no_job_left(slurm_cluster: SlurmCluster) -> Iterator[None]:
    """Ends the test's jobs, so that the next one finds an idle cluster."""
    yield
    slurm_cluster.run("scancel", "--user", "root")
