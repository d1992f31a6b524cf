"""Pytest fixtures: a real Slurm cluster."""

from collections.abc import Iterator

import pytest

from tests.slurm.cluster import ClusterError, SlurmCluster


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """Four nodes, DOWN three seconds after they died. Fails, and never skips, where Slurm is missing."""
    try:
        cluster = SlurmCluster(nodes=4, slurmd_timeout=3, message_timeout=3).start()
    except ClusterError as error:
        pytest.fail(str(error), pytrace=False)
    yield cluster
    cluster.stop()
