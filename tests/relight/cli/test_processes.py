"""Services are started again when they end by themselves, and ended when they are to end."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from relight.cli.processes import Service, relight_argv
from relight.cli.up import running


async def until(test: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while True:
            if test():
                return
            await asyncio.sleep(0.05)


async def test_a_service_that_ends_is_started_again(tmp_path: Path) -> None:
    said: list[str] = []
    log = tmp_path / "log"
    service = Service(
        "worker",
        [sys.executable, "-c", "print('hello'); raise SystemExit(4)"],
        os.environ,
        log=log,
        tell=said.append,
    )
    async with running(service):
        await until(lambda: service.restarts >= 1 and log.read_text().count("hello") >= 2)
    assert "the worker ended (exit code 4); it starts again in 0.5 s" in said[0]


async def test_a_service_is_asked_to_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), sys.exit(0)))\n"
        "print('up', flush=True); time.sleep(600)"
    )
    async with running(Service("sensor", [sys.executable, "-c", code], os.environ, log=log)):
        await until(lambda: log.exists() and "up" in log.read_text())
        began = time.monotonic()
    assert time.monotonic() - began < 20
    assert log.read_text().endswith("bye\n")


def test_children_get_this_invocations_options() -> None:
    argv = relight_argv(
        "worker", config_file=Path("/x.toml"), flags={"state_dir": Path("/s"), "cluster": "c"}
    )
    assert argv[1:] == [
        "-m", "relight", "--config", "/x.toml", "--state-dir", "/s", "--cluster", "c", "worker",
    ]  # fmt: skip
