"""Datagrams that hurry the sensor, from the script that Slurm runs; real sockets."""

import asyncio
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from relight.cli.devserver import free_port
from relight.config import ConfigError
from sensor.wake import APART, job_ids, listen

EPILOG = Path(__file__).parents[2] / "deploy" / "slurm" / "epilogslurmctld.sh"


def hook(sensors: str, **environment: str) -> float:
    """Runs the hook as slurmctld does, with next to no environment; returns how long it took."""
    began = time.monotonic()
    done = subprocess.run([EPILOG], env={"RELIGHT_SENSORS": sensors, **environment}, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    return time.monotonic() - began


@asynccontextmanager
async def listening(watched: set[str]) -> AsyncIterator[tuple[str, list[float]]]:
    """An address, and when it was hurried."""
    address, hurried = f"127.0.0.1:{free_port()}", list[float]()
    transport = await listen(address, watched.__contains__, lambda: hurried.append(time.monotonic()))
    try:
        yield address, hurried
    finally:
        transport.close()


@pytest.mark.parametrize(
    "environment",
    [
        {"SLURM_JOB_ID": "4243"},
        {"SLURM_JOB_ID": "4250", "SLURM_ARRAY_JOB_ID": "4243", "SLURM_ARRAY_TASK_ID": "7"},
    ],
    ids=["a job", "a part of an array"],
)
async def test_the_end_of_a_watched_job_hurries(environment: dict[str, str]) -> None:
    async with listening({"4243", "4243_7"}) as (address, hurried):
        await asyncio.to_thread(hook, address, **environment)
        await asyncio.sleep(0.2)
        assert len(hurried) == 1


async def test_other_jobs_and_nonsense_do_not() -> None:
    async with listening({"4243"}) as (address, hurried):
        await asyncio.to_thread(hook, address, SLURM_JOB_ID="4244")
        host, _, port = address.partition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for data in (b"", b"\xff\xfe", b"4243;rm", b"4243 " * 1000):
                sender.sendto(data, (host, int(port)))
        await asyncio.sleep(0.3)
        assert hurried == []


async def test_many_ends_at_once_are_two_questions() -> None:
    async with listening({"4243"}) as (address, hurried):
        host, _, port = address.partition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                sender.sendto(b"4243\n", (host, int(port)))
                await asyncio.sleep(0.01)
        await asyncio.sleep(APART)
    assert len(hurried) == 2, "one at once, one for all that came within the second"
    assert hurried[1] - hurried[0] >= APART - 0.05


def test_nobody_who_listens_delays_or_fails_the_hook() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    assert hook(f"{nobody} {nobody} 192.0.2.1:9467 no-such-host:9467 127.0.0.1:x", SLURM_JOB_ID="1") < 1
    assert hook(nobody) < 1


def test_job_ids() -> None:
    assert job_ids(b"4243 4243_7\n") == ("4243", "4243_7")
    assert job_ids(b"$(reboot) 4243_7_8 abc 12") == ("12",)
    assert job_ids("４２".encode()) == ()


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.0.0.1:99999", "192.0.2.1:9467", "no-such-host.invalid:1"]
)
async def test_an_address_that_cannot_be_used_is_told(address: str) -> None:
    with pytest.raises(ConfigError, match="wake_address"):
        await listen(address, bool, lambda: None)
