"""`relight checkpoints`."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from relight.cli.checkpoints import checkpoints
from relight.cli.invocation import Invocation, SpeakingGroup
from tests.relight.checkpoints.builders import write_run


def run(*arguments: str, config: Path | None = None) -> Result:
    """Runs the command alone, as `relight` would."""
    app = typer.Typer(cls=SpeakingGroup)

    @app.callback()
    def options(ctx: typer.Context) -> None:
        ctx.obj = Invocation(config)

    app.command()(checkpoints)
    return CliRunner().invoke(app, ["checkpoints", *arguments])


def test_the_table_names_state_and_reason(tmp_path: Path) -> None:
    names = write_run(tmp_path, "hf-trainer")
    (tmp_path / names[-1] / "trainer_state.json").unlink()
    result = run(str(tmp_path))
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].split() == ["CHECKPOINT", "STEP", "AGE", "SIZE", "STATE", "REASON"]
    assert lines[1].split()[:2] == [names[-1], "1100"]
    assert "incomplete" in lines[1]
    assert "checkpoint-1000 is the newest usable of 3" in result.output
    assert "checked of checkpoint-1000: names, weights and ranks, headers" in result.output


def test_json_has_the_documented_fields(tmp_path: Path) -> None:
    names = write_run(tmp_path, "megatron")
    found = json.loads(run(str(tmp_path), "--json", "--deep").stdout)
    assert (found["newest_usable"], found["step"], found["pointer"]) == (names[-1], 1100, names[-1])
    first = found["checkpoints"][0]
    assert (first["name"], first["step"], first["state"], first["reason"]) == (names[-1], 1100, "usable", "")
    assert first["bytes"] == sum(p.stat().st_size for p in (tmp_path / names[-1]).rglob("*.pt"))


def test_a_listing(tmp_path: Path) -> None:
    listing = tmp_path / "listing.json"
    listing.write_text(
        json.dumps({"root": "/x", "files": [{"path": "step-5/.metadata", "size": 9}], "contents": {}})
    )
    found = json.loads(run("--listing", str(listing), "--json").stdout)
    assert (found["newest_usable"], found["checkpoints"][0]["state"]) == (None, "incomplete")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "name either a directory or a --listing"),
        (("DIR", "--listing", "x"), 2, "name either a directory or a --listing"),
        (("--listing", "/nowhere.json"), 2, "cannot read /nowhere.json"),
        (("/nowhere",), 2, "cannot read /nowhere: No such file or directory"),
        (("DIR", "--layout", "caffe"), 2, "there is no layout 'caffe'"),
    ],
)
def test_errors_are_told_in_a_sentence(
    arguments: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    result = run(*(str(tmp_path) if a == "DIR" else a for a in arguments))
    assert result.exit_code == code
    assert says in result.output
    assert "Traceback" not in result.output


def test_a_layout_that_a_policy_describes(tmp_path: Path) -> None:
    config = tmp_path / "relight.toml"
    config.write_text('[policies.mine.checkpoint_layout]\nname = "mine"\nglob = "s*.dat"\nmarker = ".ok"\n')
    run_directory = tmp_path / "run"
    run_directory.mkdir()
    (run_directory / "s7.dat").write_bytes(b"x")
    (run_directory / "s7.dat.ok").touch()
    found = json.loads(run(str(run_directory), "--layout", "mine", "--json", config=config).stdout)
    assert (found["newest_usable"], found["step"]) == ("s7.dat", 7)
