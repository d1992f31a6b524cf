"""`relight worker` as users run it, with a webhook and a key: neither is in its log nor in Temporal."""

import asyncio
from pathlib import Path

import pytest
from temporalio.client import Client

from relight.cli.devserver import DevServer
from relight.contracts import Outcome, RecoveryOutcome
from relight.contracts.ids import RECOVERY_WORKFLOW
from relight.contracts.messages import RecoveryInput
from relight.encryption import data_converter
from tests.activities.webhook import serving
from tests.worker.conftest import WorkerProcess
from tests.worker.test_encryption import key_file, key_line, payload_data
from tests.worker.test_worker import Training, crash, train  # noqa: F401 - a fixture

pytestmark = pytest.mark.temporal


async def test_secrets_stay_in_the_worker(
    worker: WorkerProcess,
    train: Training,  # noqa: F811
    server: DevServer,
    tmp_path: Path,
) -> None:
    line = key_line("k1")
    keys = key_file(tmp_path, line)
    client = await Client.connect(server.address, data_converter=data_converter(keys))
    with serving() as hook:
        hook.answers = [503, 200]
        worker.start(RELIGHT_NOTIFY__URL=hook.url, RELIGHT_ENCRYPTION__KEY_FILE=str(keys)).serving()
        job, diagnosis = await crash(train)
        recovery = await client.start_workflow(
            RECOVERY_WORKFLOW,
            RecoveryInput(monitor_id="nobody", job=job, diagnosis=diagnosis, notify=True),
            id=f"recover:{tmp_path.name}",
            task_queue=f"queue-{tmp_path.name}",
            result_type=RecoveryOutcome,
        )
        outcome = await asyncio.wait_for(recovery.result(), 60)
        told = [posted["state"] for _, posted in hook.got]
    assert outcome.outcome is Outcome.RESUMED
    assert told == ["resumed", "resumed"]  # once more after the 503
    history = (await recovery.fetch_history()).to_json()
    everything = worker.text() + history + "".join(payload_data(history))
    for secret in ("s3cr3t", hook.url, line.split()[1]):
        assert secret not in everything
    assert "503" in worker.text()  # what went wrong is there to read
