"""systemd itself reads the units; they run commands that exist, with little power."""

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy import commands

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
SERVICES = sorted(path.name for path in UNITS.glob("*.service"))
LONG_LIVED = ["relight-node-sensor.service", "relight-sensor.service", "relight-worker@.service"]


def read(unit: str) -> configparser.RawConfigParser:
    """The unit's settings; of several with one name, the last."""
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(UNITS / unit)
    return parser


def systemd_analyze(*argv: str, cwd: Path) -> str:
    program = shutil.which("systemd-analyze")
    assert program, "these tests need systemd-analyze: apt-get install systemd"
    done = subprocess.run(
        [program, *argv],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning", "SYSTEMD_UNIT_PATH": f"{cwd}:"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units as an operator installs them: the program is there, the template has an instance."""
    directory = tmp_path_factory.mktemp("units")
    for unit in UNITS.iterdir():
        name = unit.name.replace("@.", "@1.")
        (directory / name).write_text(unit.read_text().replace("/opt/relight/bin/relight", "/bin/true"))
    return directory


def test_systemd_takes_them_without_a_warning(installed: Path) -> None:
    names = sorted(path.name for path in installed.iterdir())
    assert len(names) >= 5
    said = systemd_analyze("verify", "--man=no", "--recursive-errors=no", *names, cwd=installed)
    assert [line for line in said.splitlines() if "relight" in line] == []


@pytest.mark.parametrize("unit", SERVICES)
def test_what_it_runs_is_a_command(unit: str) -> None:
    assert commands.problem(commands.relight_words(read(unit)["Service"]["ExecStart"])) == ""


def test_the_check_of_commands_finds_what_does_not_exist() -> None:
    for wrong in (["wroker"], ["worker", "--fast"], ["sensor", "nodes"], ["sensor", "node", "--gpu", "8"]):
        assert "No such" in commands.problem(wrong), wrong


@pytest.mark.parametrize("unit", LONG_LIVED)
def test_it_comes_back_and_can_do_little(unit: str, installed: Path) -> None:
    service = read(unit)["Service"]
    assert service["Restart"] == "always"
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    said = systemd_analyze("security", "--offline=true", unit.replace("@.", "@1."), cwd=installed)
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", said)
    assert exposure, said
    # The node sensor is root without its powers: it opens /dev/kmsg and the GPUs' device files.
    assert float(exposure[1]) <= (5.0 if "node" in unit else 2.5)


def test_workers_of_one_host_do_not_share_a_port() -> None:
    assert "worker-%i.env" in (UNITS / "relight-worker@.service").read_text()
