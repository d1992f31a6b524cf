"""`relight demo`, whole, as a user runs it: exit code 0 means that training passed the step it failed at."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.relight.cli.conftest import check_json

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]


def demo(*args: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("RELIGHT_", "TEMPORAL_"))}
    return subprocess.run(
        [sys.executable, "-m", "relight", "demo", *args],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=280,
    )  # fmt: skip


@pytest.mark.parametrize(
    "args",
    [
        ("--fault", "exception"),
        ("--fault", "hang"),
        ("--fault", "node-loss"),
        ("--fault", "sigkill", "--mode", "observe", "--yes"),
    ],
)
def test_training_passes_the_step_it_failed_at(args: tuple[str, ...]) -> None:
    done = demo(*args, "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    check_json(["demo"], done.stdout)
    result: Any = json.loads(done.stdout)
    assert result["ok"]
    assert result["outcome"]["outcome"] == "resumed"
    assert result["resumed_at_step"] <= result["failed_at_step"] < result["passed_step"]
    if "node-loss" in args:
        assert result["outcome"]["excluded_nodes"], "the lost node is kept out"
    if "observe" in args:
        assert result["outcome"]["approved_by"] == "demo"


def test_people_see_what_happened_and_when() -> None:
    done = demo("--fault", "cuda")
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        "now the fault: cuda",
        "detected",
        "acted: requeue accepted",
        "steps lost",
        "web UI: http://",
    ):
        assert words in done.stdout
    assert "\x1b[" not in done.stdout, "plain text where no terminal is"


def test_it_fails_where_training_does_not_resume(tmp_path: Path) -> None:
    done = demo("--mode", "observe", "--timeout", "25", "--dir", str(tmp_path), "--json")
    assert done.returncode == 1
    assert not json.loads(done.stdout)["ok"]
    assert "relight approve" in done.stderr, "it says how a person would decide"
    [kept] = tmp_path.iterdir()
    assert (kept / "worker.log").exists(), "the logs of a failed demo are kept"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_of_an_interrupted_demo(tmp_path: Path, number: signal.Signals) -> None:
    log = tmp_path / "out"
    work = tmp_path / "work"
    work.mkdir()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "relight", "demo", "--dir", str(work)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
    end = time.monotonic() + 120
    while "RUNNING" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)
    assert running_in(work)
    process.send_signal(number)
    assert process.wait(60) == 130, log.read_text()
    assert "interrupted" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert running_in(work) == []
    assert list(work.iterdir()) == []


def running_in(directory: Path) -> list[str]:
    """Command lines of all processes that name this directory."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has just ended
            continue
        if f"{directory}/" in line:
            found.append(line)
    return found
