"""What would wedge a workflow later is told at the start, in one sentence."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from relight.cli.devserver import HOST, DevServer, find_temporal, free_port
from relight.contracts.ids import SEARCH_ATTRIBUTES
from relight.temporal import NotReady
from tests.worker.conftest import WorkerProcess
from worker.preflight import check_search_attributes

pytestmark = pytest.mark.temporal


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    """The address of a server that nobody has set up for relight: one attribute is there, of another type."""
    port = free_port()
    process = subprocess.Popen(
        [
            str(find_temporal()), "server", "start-dev", "--headless", "--ip", HOST, "--log-level", "error",
            "--port", str(port), "--search-attribute", f"{SEARCH_ATTRIBUTES[0].name}=Int",
        ],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    yield f"{HOST}:{port}"
    process.terminate()
    process.wait()


async def connect(address: str) -> Client:
    """Once the server answers."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await Client.connect(address, data_converter=pydantic_data_converter)
            except RuntimeError:
                await asyncio.sleep(0.1)


async def test_search_attributes_are_there(client: Client) -> None:
    await check_search_attributes(client)


async def test_search_attributes_are_missing_or_of_another_type(bare: str) -> None:
    with pytest.raises(NotReady) as caught:
        await check_search_attributes(await connect(bare))
    message = str(caught.value)
    assert all(key.name in message for key in SEARCH_ATTRIBUTES)
    assert "relight setup" in message


async def test_the_worker_says_so_and_ends(bare: str, worker: WorkerProcess) -> None:
    await connect(bare)
    assert worker.start(TEMPORAL_ADDRESS=bare).wait() != 0
    assert "relight setup" in worker.text()
    assert "Traceback" not in worker.text()


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        ("TEMPORAL_ADDRESS", f"{HOST}:1", "no Temporal server answers"),
        ("TEMPORAL_NAMESPACE", "nobody-made-it", "nobody-made-it"),
        ("RELIGHT_WORKER__METRICS_ADDRESS", "nonsense", "metrics_address"),
        ("RELIGHT_POLICIES", '{"p": {"hang_factor": 0}}', "hang_factor"),
        ("RELIGHT_SLURM__BIN_DIR", "/nowhere", "/nowhere"),
    ],
)
def test_other_reasons_not_to_start(worker: WorkerProcess, setting: str, value: str, says: str) -> None:
    scheduler = "slurm-cli" if "SLURM" in setting else "local"
    assert worker.start(**{"RELIGHT_SCHEDULER": scheduler, setting: value}).wait() != 0
    assert says in worker.text()
    assert "Traceback" not in worker.text()


def test_a_metrics_port_that_is_taken(worker: WorkerProcess, server: DevServer) -> None:
    assert worker.start(RELIGHT_WORKER__METRICS_ADDRESS=server.address).wait() != 0
    assert server.address in worker.text()
    assert "Traceback" not in worker.text()


def test_a_scheduler_that_is_away_is_waited_for(worker: WorkerProcess, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("squeue", "scontrol", "sacct", "sbatch", "scancel"):
        program = programs / name
        program.write_text(
            "#!/bin/sh\necho 'slurm_load_jobs error: Unable to contact slurm controller' >&2\nexit 1\n"
        )
        program.chmod(0o755)
    worker.start(RELIGHT_SCHEDULER="slurm-cli", RELIGHT_SLURM__BIN_DIR=str(programs)).serving()
    assert "does not answer" in worker.text()
    assert worker.stop() == 0
