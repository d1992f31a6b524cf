"""With a key, Temporal keeps no plain text; without it, a worker says what it lacks."""

import asyncio
import base64
import os
import re
from pathlib import Path

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Worker

from relight.cli.devserver import DevServer
from relight.contracts import Mode, Outcome
from relight.contracts.ids import MEMO_JOB, RECOVERY_WORKFLOW
from relight.contracts.messages import RecoveryInput, RecoveryStatus
from relight.encryption import Codec, EncryptionError, data_converter, read_keys
from tests.workflows import samples
from tests.workflows.world import World, activities, error
from workflows import WORKFLOWS

WORDS = ("iter_0000100", "CUDA", "the scheduler says FAILED", "a reason of ada", "disk on fire")
"""What a recovery's history holds when nothing is encrypted."""


def key_line(name: str) -> str:
    return f"{name} {base64.b64encode(os.urandom(32)).decode()}\n"


def key_file(directory: Path, *lines: str) -> Path:
    file = directory / "keys"
    file.write_text("# the cluster's keys\n\n" + "".join(lines))
    file.chmod(0o600)
    return file


async def test_keys_rotate(tmp_path: Path) -> None:
    old, new = key_line("2026-01"), key_line("2026-02")
    plain = Payload(metadata={"encoding": b"json/plain"}, data=b'"hello"')
    before = Codec(read_keys(key_file(tmp_path, old)))
    after = Codec(read_keys(key_file(tmp_path, new, old)))
    (sealed,) = await before.encode([plain])
    assert b"hello" not in sealed.SerializeToString()
    assert await after.decode([sealed]) == [plain]
    (again,) = await after.encode([plain])
    assert again.metadata["encryption-key-id"] == b"2026-02"
    with pytest.raises(EncryptionError, match=r"'2026-02'.*has 2026-01"):
        await before.decode([again])
    with pytest.raises(EncryptionError, match=r"'2026-02'.*KEY_FILE"):
        await Codec({}).decode([again])
    assert await after.decode([plain]) == [plain]  # from before there was a key


@pytest.mark.parametrize("change", ["data", "name"])
async def test_a_payload_that_was_changed_is_refused(tmp_path: Path, change: str) -> None:
    codec = Codec(read_keys(key_file(tmp_path, key_line("a"), key_line("b"))))
    (sealed,) = await codec.encode([Payload(data=b"x" * 40)])
    if change == "data":
        sealed.data = sealed.data[:-1] + bytes([sealed.data[-1] ^ 1])
    else:
        sealed.metadata["encryption-key-id"] = b"b"
    with pytest.raises(EncryptionError, match="another key, or was changed"):
        await codec.decode([sealed])


async def start(client: Client, queue: str) -> WorkflowHandle[RecoveryInput, object]:
    return await client.start_workflow(
        RECOVERY_WORKFLOW,
        RecoveryInput(monitor_id="nobody", job=samples.job(Mode.OBSERVE), diagnosis=samples.diagnosis()),
        id=f"recover:{queue}",
        task_queue=queue,
        memo={MEMO_JOB: samples.job()},
        static_summary="CUDA error",
    )


async def run_once(client: Client, queue: str) -> str:
    """One recovery with an approval and a failing step. Returns its history as JSON."""
    world = World()
    world.will("resubmit", error("Refused", "disk on fire"))
    async with Worker(client, task_queue=queue, workflows=list(WORKFLOWS), activities=activities(world)):
        recovery = await start(client, queue)
        async with asyncio.timeout(40):
            while True:
                try:
                    status = await recovery.query("status", result_type=RecoveryStatus)
                except RPCError:
                    await asyncio.sleep(0.1)
                    continue
                if status.state == "awaiting-approval":
                    break
                await asyncio.sleep(0.1)
            await recovery.signal("approve", {"by": "ada", "reason": "a reason of ada"})
            outcome = await recovery.result()
    assert outcome["outcome"] == Outcome.HELD  # type: ignore[index]
    history = (await recovery.fetch_history()).to_json()
    return history + "".join(payload_data(history))


def payload_data(history: str) -> list[str]:
    """The data of all payloads, decoded from their base64."""
    found = re.findall(r'"data": ?"([A-Za-z0-9+/=]*)"', history)
    return [base64.b64decode(text).decode(errors="replace") for text in found]


@pytest.mark.parametrize("sealed", [True, False])
async def test_the_history_holds_no_plain_text(server: DevServer, tmp_path: Path, sealed: bool) -> None:
    keys = key_file(tmp_path, key_line("k1")) if sealed else None
    client = await Client.connect(server.address, data_converter=data_converter(keys))
    history = await run_once(client, f"sealed-{sealed}-{tmp_path.name}")
    found = [word for word in WORDS if word in history]
    assert found == ([] if sealed else list(WORDS))


async def test_a_worker_without_the_key_says_so(server: DevServer, tmp_path: Path) -> None:
    sealing = data_converter(key_file(tmp_path, key_line("k1")))
    client = await Client.connect(server.address, data_converter=sealing)
    bare = await Client.connect(server.address, data_converter=data_converter(None))
    queue = f"bare-{tmp_path.name}"
    async with Worker(bare, task_queue=queue, workflows=list(WORKFLOWS), activities=activities(World())):
        recovery = await start(client, queue)
        async with asyncio.timeout(30):
            while True:
                events = (await recovery.fetch_history()).events
                failed = [e for e in events if e.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED]
                if failed:
                    break
                await asyncio.sleep(0.1)
    message = failed[0].workflow_task_failed_event_attributes.failure.message
    assert "encrypted with key 'k1'" in message
    assert "RELIGHT_ENCRYPTION__KEY_FILE" in message
    await recovery.terminate("the test is over")
