"""Services that act refuse settings that others could change, and secrets that others could read."""

from pathlib import Path

import pytest

from relight.cli.exit_codes import ExitCode
from tests.relight.cli.conftest import Relight

SECRET = "hooks.example.org/T0/s3cret"


@pytest.mark.parametrize("command", ["worker", "up"])
def test_a_worker_refuses_settings_that_others_can_write(
    alone: Relight, settings_file: Path, command: str
) -> None:
    settings_file.chmod(0o666)
    result = alone(command)
    assert result.exit_code == ExitCode.USAGE
    assert f"chmod go-w {settings_file}" in result.stderr.replace("\n", "")


def test_a_sensor_refuses_them_in_act_mode(alone: Relight, settings_file: Path) -> None:
    settings_file.chmod(0o620)
    result = alone("sensor", RELIGHT_MODE="act")
    assert result.exit_code == ExitCode.USAGE
    assert "chmod go-w" in result.stderr


def test_a_sensor_that_observes_is_only_warned(alone: Relight, settings_file: Path) -> None:
    settings_file.chmod(0o666)
    result = alone("sensor", RELIGHT_SENSOR__METRICS_ADDRESS="host.invalid:1")  # so that it does not stay
    assert "warning" in result.stderr
    assert "chmod go-w" in result.stderr
    assert "metrics_address" in result.stderr


def test_signatures_of_the_site_are_settings_too(alone: Relight, tmp_path: Path) -> None:
    mine = tmp_path / "signatures"
    mine.mkdir()
    mine.chmod(0o777)
    result = alone("worker", RELIGHT_SIGNATURES=f'["{mine}"]')
    assert result.exit_code == ExitCode.USAGE
    assert f"chmod go-w {mine}" in result.stderr.replace("\n", "")


def test_settings_with_the_webhook_are_a_secret(alone: Relight, settings_file: Path) -> None:
    with settings_file.open("a") as file:
        file.write(f'\n[notify]\nurl = "https://{SECRET}"\n')
    settings_file.chmod(0o644)
    result = alone("worker")
    assert result.exit_code == ExitCode.USAGE
    assert "chmod 600" in result.stderr
    assert SECRET not in result.output


@pytest.mark.parametrize("command", [["config"], ["config", "--json"], ["watch", "1"]])
def test_the_webhook_is_never_shown(alone: Relight, command: list[str]) -> None:
    result = alone(*command, RELIGHT_NOTIFY__URL=f"https://{SECRET}")
    assert SECRET not in result.output
    assert "s3cret" not in result.output


def test_not_even_when_it_is_wrong(alone: Relight) -> None:
    result = alone("config", RELIGHT_NOTIFY__URL=SECRET)
    assert result.exit_code == ExitCode.USAGE
    assert "must begin with https://" in result.stderr
    assert "s3cret" not in result.output


@pytest.mark.parametrize("command", [["worker"], ["sensor"], ["jobs"]])
@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        (None, 0o600, "cannot be read"),
        ("", 0o600, "has no key"),
        ("k1 c2hvcnQ=", 0o600, "line 1"),
        ("k1 " + "A" * 43 + "=", 0o644, "chmod 600"),
    ],
    ids=["missing", "empty", "short", "readable"],
)
def test_a_key_file_that_cannot_be_used(
    alone: Relight, tmp_path: Path, command: list[str], content: str | None, mode: int, says: str
) -> None:
    keys = tmp_path / "keys"
    if content is not None:
        keys.write_text(content)
        keys.chmod(mode)
    result = alone(*command, RELIGHT_ENCRYPTION__KEY_FILE=str(keys))
    assert result.exit_code == ExitCode.USAGE
    assert says in result.stderr.replace("\n", " ")
    assert "AAAA" not in result.output
