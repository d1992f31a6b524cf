"""What the command says where nothing answers, and what works nevertheless."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from relight.cli.lazy import LAZY
from relight.cli.main import app
from tests.relight.cli.conftest import Relight


@pytest.mark.parametrize(
    "args",
    [
        ("jobs",), ("jobs", "--json"), ("show", "1"), ("approve", "1", "--yes"), ("reject", "1", "--yes"),
        ("mode", "1", "act"), ("unwatch", "1"), ("setup",), ("watch", "1"), ("why", "1"), ("pause", "1"),
        ("unpause", "--cluster"), ("guard",), ("guard", "reset"), ("nodes",),
    ],
)  # fmt: skip
def test_no_temporal(alone: Relight, args: tuple[str, ...]) -> None:
    done = alone(*args)
    assert done.exit_code == 3
    assert done.stdout == ""
    [line] = done.stderr.strip().splitlines()
    assert "no Temporal server answers at 127.0.0.1:" in line
    assert "relight up" in line
    assert "tonic" not in line


def test_config_works_alone_and_tells_origins(alone: Relight, settings_file: Path) -> None:
    found = {one["key"]: one for one in json.loads(alone("--cluster", "here", "config", "--json").stdout)}
    assert found["scheduler"] == {"key": "scheduler", "value": "local", "origin": f"file {settings_file}"}
    assert found["cluster"]["origin"] == "flag"
    assert found["sensor.log_poll"] == {"key": "sensor.log_poll", "value": "250ms", "origin": "default"}
    table = alone("config")
    assert table.exit_code == 0
    assert str(settings_file) in table.stdout


def test_config_shows_the_default_policy_wherever_it_comes_from(alone: Relight, tmp_path: Path) -> None:
    def shown(**env: str) -> dict[str, tuple[object, str]]:
        found = json.loads(alone("config", "--json", **env).stdout)
        return {one["key"]: (one["value"], one["origin"]) for one in found}

    assert shown()["policies.default.hang_floor"] == ("1m", "default")
    file = tmp_path / "policy.yaml"
    file.write_text("policies:\n  default:\n    hang_floor: 5m\n")
    with_file = shown(RELIGHT_POLICY_FILE=str(file))
    assert with_file["policies.default.hang_floor"] == ("5m", f"policy file {file}")
    assert with_file["policies.default.signs"] == (1, "default")
    settings = shown(RELIGHT_POLICIES='{"default": {"hang_floor": "2m"}}')
    assert settings["policies.default.hang_floor"] == (
        "2m",
        "environment RELIGHT_POLICIES__DEFAULT__HANG_FLOOR",
    )
    file.write_text("policies: [")
    done = alone("config", RELIGHT_POLICY_FILE=str(file))
    assert done.exit_code == 0, "to see the settings is how one finds what is wrong with them"
    assert "cannot be used" in done.stderr


@pytest.mark.parametrize(
    ("args", "env", "code", "says"),
    [
        (("checkpoints",), {}, 2, "name either a directory"),
        (("checkpoints", ""), {}, 2, "has no name"),
        (("checkpoints", " "), {}, 2, "has no name"),
        (("checkpoints", "no/such"), {}, 2, "cannot read"),
        (("checkpoints", "binary"), {}, 2, "Not a directory"),
        (("checkpoints", ".", "--layout", "no-such"), {}, 2, "known layouts: "),
        (("checkpoints", "no-such://a/b"), {}, 2, "cannot open no-such://a/b"),
        (("checkpoints", "--listing", "broken.toml"), {}, 2, "not a listing"),
        (("catalogue", "lint", "--signatures", "no-such"), {}, 2, "--signatures no-such: there is no such"),
        (("catalogue", "list", "--signatures", "binary"), {}, 2, "--signatures binary: there is no such"),
        (("diagnose", "--signatures", "no-such", "binary"), {}, 2, "--signatures no-such: there is no such"),
        (("policy", "show", "--job", "abc"), {}, 2, "'abc' is no job id"),
        (("jobs",), {"TEMPORAL_CONFIG_FILE": "broken.toml"}, 2, "client settings cannot be read"),
        (("jobs",), {"TEMPORAL_PROFILE": "no-such"}, 2, "Profile 'no-such' not found"),
        (("jobs",), {"TEMPORAL_ADDRESS": "no address"}, 2, "as host:port"),
        (("--config", "binary", "config"), {}, 2, "is not valid TOML"),
        (("demo", "--dir", "no/such"), {}, 2, "--dir no/such: No such file"),
        (("sensor", "node", "--name", "a b"), {}, 2, "no name of a node"),
        (("audit", "check-archive", "/no/such"), {}, 1, "there is no archive /no/such"),
        (("audit", "check-archive", "broken.toml"), {}, 1, "there is no archive broken.toml"),
    ],
)
def test_mistakes_are_told_in_a_line(
    alone: Relight, tmp_path: Path, args: tuple[str, ...], env: dict[str, str], code: int, says: str
) -> None:
    (tmp_path / "broken.toml").write_text("x = [")
    (tmp_path / "binary").write_bytes(b"\x80\x00")
    done = alone(*args, **env)
    assert done.exit_code == code
    [line] = done.stderr.strip().splitlines()
    assert says in line


def test_a_port_that_is_none_is_a_usage_error(alone: Relight) -> None:
    assert alone("up", "--port", "99999").exit_code == 2
    assert alone("up", "--ui-port", "0").exit_code == 2


def test_a_misspelt_variable_is_told(alone: Relight) -> None:
    done = alone("config", RELIGHT_MODUS="act")
    assert done.exit_code == 0
    assert "RELIGHT_MODUS" in done.stderr


def test_bad_settings_are_a_usage_error(alone: Relight, settings_file: Path) -> None:
    settings_file.write_text("mode = 1")
    done = alone("jobs")
    assert done.exit_code == 2
    assert "setting mode" in done.stderr


def test_up_names_a_taken_port(alone: Relight) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = alone("up", "--port", taken.getsockname()[1])
    assert done.exit_code == 1
    assert "--port" in done.stderr


def test_losing_a_node_is_for_the_local_scheduler_only(alone: Relight) -> None:
    done = alone("demo", "--scheduler", "slurm-cli", "--fault", "node-loss")
    assert done.exit_code == 2
    assert "other people's jobs" in done.stderr


def test_module_and_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relight", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("relight ")


def test_every_command_has_help(alone: Relight) -> None:
    own = [
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    ]
    overview = alone("--help").stdout
    for name in (*own, *LAZY):
        done = alone(name, "--help")
        assert done.exit_code == 0, name
        assert f"Usage: relight {name}" in done.stdout.replace("root", "relight"), done.stdout
        assert f" {name} " in overview


def test_lazy_modules_are_not_imported_by_other_commands() -> None:
    code = (
        "import sys, relight.cli.main\n"
        f"print([m for m in {[lazy.module for lazy in LAZY.values()]} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
