"""Shell completion: job ids where Temporal answers, and silently nothing where it does not."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relight.cli.devserver import DevServer, free_port
from relight.cli.exit_codes import MEANINGS, ExitCode
from relight.cli.watch import start_monitor
from relight.config import Settings
from tests.relight.cli.conftest import Relight, Temporal
from tests.relight.cli.stand_ins import a_job

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("stand_ins")]


def complete(line: str, address: str, settings_file: Path, **env: str) -> tuple[list[str], str]:
    """What bash is offered at the end of a line, and what was written beside it."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, "-m", "relight"],
        env={
            **os.environ, "RELIGHT_CONFIG": str(settings_file), "TEMPORAL_ADDRESS": address,
            "_RELIGHT_COMPLETE": "complete_bash", "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1), **env,
        },
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout.split(), done.stderr


def test_ids_of_watched_jobs(
    nobody_home: None, temporal: Temporal, server: DevServer, settings_file: Path, job_id: str
) -> None:
    for name, cluster in ((f"{job_id}1", "here"), (f"{job_id}2", "there"), (f"9{job_id}", "here")):
        job = a_job(name, cluster)
        temporal(lambda client, job=job: start_monitor(client, Settings(), job))
    both = [f"{job_id}1", f"{job_id}2"]
    for command in ("show", "logs", "why", "approve", "mode", "pause", "audit show", "doctor"):
        assert complete(f"relight {command} {job_id}", server.address, settings_file) == (both, "")
    here = complete(f"relight --cluster here show {job_id}", server.address, settings_file)
    assert here == ([f"{job_id}1"], "")


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"TEMPORAL_ADDRESS": "no address"},
        {"TEMPORAL_ADDRESS": "http://localhost:1"},
        {"TEMPORAL_PROFILE": "no-such"},
        {"RELIGHT_CONFIG": "/no/such.toml"},
        {"RELIGHT_MODE": "maybe"},
    ],
)
def test_silence(nobody_home: None, settings_file: Path, env: dict[str, str]) -> None:
    began = time.monotonic()
    assert complete("relight show 4", f"127.0.0.1:{free_port()}", settings_file, **env) == ([], "")
    assert time.monotonic() - began < 15


def test_commands_are_completed_too(nobody_home: None, settings_file: Path) -> None:
    offered, _ = complete("relight lo", "127.0.0.1:1", settings_file)
    assert offered == ["logs"]


def test_exit_codes_are_in_the_help_and_in_the_reference(alone: Relight) -> None:
    overview = " ".join(alone("--help").stdout.split())
    reference = (Path(__file__).parents[3] / "docs" / "reference" / "exit-codes.md").read_text()
    assert set(MEANINGS) == set(ExitCode)
    for code, words in MEANINGS.items():
        assert f"{code.value} {words.replace('`', '')}" in overview
        assert f"| {code.value} | `{code.name}` | {words} |" in reference
    assert "Exit codes: relight --help" in alone("show", "--help").stdout
