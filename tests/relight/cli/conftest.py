"""A real dev server, and the command run in this process as a user would run it."""

import asyncio
import itertools
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from typer.testing import CliRunner, Result

from relight.cli.devserver import DevServer, free_port
from relight.cli.main import app
from relight.cli.schema import PRINTED, schema_of
from relight.cli.watch import start_monitor
from relight.config import Settings
from relight.contracts import TrainingJob
from relight.contracts.ids import TASK_QUEUE
from tests.relight.cli.stand_ins import a_job, serving

Relight = Callable[..., Result]
Temporal = Callable[[Callable[[Client], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with DevServer(tmp_path_factory.mktemp("temporal") / "temporal.db") as started:
        yield started


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    file = tmp_path / "relight.toml"
    file.write_text(f'scheduler = "local"\nstate_dir = "{tmp_path}/state"\n')
    return file


@pytest.fixture
def nobody_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of the machine: an empty home, and no RELIGHT_ or TEMPORAL_ variable."""
    import os

    for name in os.environ:
        if name.startswith(("RELIGHT_", "TEMPORAL_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def alone(nobody_home: None, settings_file: Path) -> Relight:
    """Runs the command where no Temporal answers."""
    return _relight({"RELIGHT_CONFIG": str(settings_file), "TEMPORAL_ADDRESS": f"127.0.0.1:{free_port()}"})


@pytest.fixture
def relight(nobody_home: None, settings_file: Path, server: DevServer) -> Relight:
    """Runs the command against the dev server."""
    return _relight({"RELIGHT_CONFIG": str(settings_file), "TEMPORAL_ADDRESS": server.address})


GLOBAL_OPTIONS = ("--config", "--cluster", "--scheduler", "--state-dir")


def command_of(args: Sequence[str]) -> str:
    """The command that these arguments are for, as `relight schema` names it."""
    words = list(args)
    while words[0] in GLOBAL_OPTIONS:
        words = words[2:]
    both = " ".join(words[:2])
    return both if both in PRINTED else "audit show" if words[0] == "audit" else words[0]


@cache
def validator(command: str) -> Draft202012Validator:
    return Draft202012Validator(schema_of(command))


def check_json(args: Sequence[str], text: str) -> None:
    """What was printed is as the schema of the command says."""

    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    validator(command_of(args)).validate(json.loads(text, parse_constant=no_constant))


def _relight(env: dict[str, str]) -> Relight:
    def run(*args: object, input: str | None = None, **more: str) -> Result:
        result = CliRunner().invoke(
            app, [str(arg) for arg in args], input=input, env={"COLUMNS": "200", **env, **more}
        )
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        if "--json" in args and result.stdout and "--help" not in args:
            check_json([str(arg) for arg in args], result.stdout)
        return result

    return run


@pytest.fixture
def temporal(server: DevServer) -> Temporal:
    """Does something with a client of the dev server, from a plain test function."""

    def do(work: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
        async def connected() -> Any:
            return await work(await Client.connect(server.address, data_converter=pydantic_data_converter))

        return asyncio.run(connected())

    return do


@pytest.fixture(scope="module")
def stand_ins(server: DevServer) -> Iterator[None]:
    """A worker serves the stand-ins."""
    with serving(server.address, TASK_QUEUE):
        yield


_numbers = itertools.count(1000)


@pytest.fixture
def job_id() -> str:
    """A job id that no other test uses."""
    return str(next(_numbers))


@pytest.fixture
def watched(temporal: Temporal, job_id: str) -> TrainingJob:
    """A watched job without trouble."""
    job = a_job(job_id)
    temporal(lambda client: start_monitor(client, Settings(), job))
    return job
