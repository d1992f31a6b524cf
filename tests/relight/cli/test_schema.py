"""`relight schema`: every `--json` has one, it is true, and it says what the fields mean.

The runner of all command tests (`conftest.check_json`) holds whatever they print against it, too.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from jsonschema import Draft202012Validator, ValidationError

from relight.audit.archive import open_archive
from relight.cli.main import app
from relight.cli.output import print_json
from relight.cli.schema import PRINTED, schema_of
from relight.cli.shapes import ProgressView
from relight.contracts import Attempt, Progress
from relight.contracts.messages import MonitorStatus
from relight.diagnosis.findings import StepLine
from tests.relight.audit.making import HISTORIES, T0, an_audit
from tests.relight.cli.conftest import Relight, check_json, command_of
from tests.relight.cli.stand_ins import a_job


def commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """All commands with their names."""
    if name:
        yield name, command
    if hasattr(command, "list_commands"):
        for below in command.list_commands(None):
            yield from commands(command.get_command(None, below), f"{name} {below}".strip())


def test_every_json_has_a_schema_and_no_other() -> None:
    having = {
        name
        for name, command in commands(typer.main.get_command(app))
        if any("--json" in option.opts for option in command.params)
    }
    assert having == set(PRINTED)


@pytest.mark.parametrize("command", PRINTED)
def test_schemas_are_schemas(command: str) -> None:
    found = schema_of(command)
    Draft202012Validator.check_schema(found)
    assert found["title"] == f"relight {command} --json"


def test_fields_are_described_from_their_docstrings() -> None:
    shown = schema_of("show")
    assert shown["properties"]["earlier_ids"]["description"].startswith("Job ids that this run had before")
    assert shown["properties"]["started"]["description"] == "When relight began to watch it.", "inherited"


def test_a_wrong_output_is_refused() -> None:
    with pytest.raises(ValidationError):
        check_json(["jobs"], '[{"monitor_id": 3}]')
    with pytest.raises(ValidationError):
        check_json(["setup"], "{}")


def test_numbers_that_json_has_no_word_for(capsys: pytest.CaptureFixture[str]) -> None:
    step = StepLine(step=1, file="x", line=1, offset=0, loss=float("nan"), throughput=float("inf"))
    print_json(ProgressView(step_lines=1, phase_lines=0, steps=(step,)))
    text = capsys.readouterr().out
    check_json(["progress", "test"], text)
    [shown] = json.loads(text)["steps"]
    assert (shown["loss"], shown["throughput"]) == ("NaN", "Infinity")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "train.log").write_text(
        "iteration 1/ 10 | lm loss: 1.0\niteration 2/ 10 | lm loss: nan\nsaving checkpoint at step 2\n"
        "torch.OutOfMemoryError: CUDA out of memory.\n"
    )
    (tmp_path / "policy.yaml").write_text("policies:\n  p: {signs: 9}\n")
    (tmp_path / "checkpoints" / "step_2").mkdir(parents=True)
    open_archive(str(tmp_path / "archive"), tmp_path).append(an_audit(1), T0)
    return tmp_path


@pytest.mark.parametrize(
    "args",
    [
        ("diagnose", "train.log"), ("catalogue", "list"), ("catalogue", "test", "train.log"),
        ("catalogue", "lint"), ("progress", "test", "train.log"), ("checkpoints", "checkpoints"), ("config",),
        ("policy", "check", "policy.yaml"), ("policy", "show"), ("policy", "show", "--partition", "x"),
        ("audit", "check-archive", "{files}/archive"), ("doctor",), ("watchdog",),
        ("audit", "verify", "crash", "--history", f"{HISTORIES}/crash.0.recovery.json"),
    ],
)  # fmt: skip
def test_what_needs_no_temporal(alone: Relight, files: Path, args: tuple[str, ...]) -> None:
    done = alone(*(arg.format(files=files) for arg in args), "--json")
    assert done.stdout, done.stderr
    check_json(args, done.stdout)


def test_a_status_with_all_kinds_of_values(capsys: pytest.CaptureFixture[str]) -> None:
    job = a_job("1")
    progress = Progress(step=1, at=T0, loss=float("-inf"))
    status = MonitorStatus(job=job, state="watching", progress=progress, last_restart=T0)
    print_json(status)
    shown = json.loads(capsys.readouterr().out)
    assert shown["progress"]["loss"] == "-Infinity"
    assert Attempt.model_validate(shown["job"]["attempt"]) == job.attempt


@pytest.mark.parametrize(
    ("args", "command"),
    [
        (("--cluster", "x", "jobs", "--json"), "jobs"),
        (("audit", "4243"), "audit show"),
        (("audit", "verify", "r"), "audit verify"),
        (("nodes", "drains"), "nodes drains"),
        (("guard",), "guard"),
    ],
)
def test_which_command_it_was(args: tuple[str, ...], command: str) -> None:
    assert command_of(args) == command


def test_the_command_lists_and_prints(alone: Relight) -> None:
    assert "relight policy check --json" in alone("schema").stdout
    assert json.loads(alone("schema", "policy", "check").stdout) == schema_of("policy check")
    done = alone("schema", "unpause")
    assert done.exit_code == 2
    assert "no command 'unpause' with --json" in done.stderr
