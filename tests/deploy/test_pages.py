"""What docs/how-to/deploy.md and slurm-setup.md name exists: files, units, commands, settings, alerts."""

import re
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from relight.config import Settings
from relight.contracts import Policy
from tests.deploy import commands
from tests.deploy.stack import ROOT

PAGES = {name: (ROOT / "docs" / "how-to" / name).read_text() for name in ("deploy.md", "slurm-setup.md")}
ALL = "\n".join(PAGES.values())


def test_files_and_units() -> None:
    paths = set(re.findall(r"\bdeploy/[\w./@-]+\w", ALL))
    assert len(paths) >= 7
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    units = set(re.findall(r"\b(relight-(?:worker@|sensor|node-sensor|watchdog))(?=[\d\s`.]|$)", ALL))
    assert units
    for unit in units:
        assert (ROOT / "deploy" / "systemd" / f"{unit}.service").exists(), unit


def test_commands() -> None:
    blocks = "\n".join(re.findall(r"^ *```sh\n(.*?)```", ALL, re.MULTILINE | re.DOTALL))
    typed = re.findall(r"(?:^ *|/|-- |exec \w+ )(relight [a-z][^\n#]*)", blocks, re.MULTILINE)
    quoted = re.findall(r"`(relight [a-z][^`]*)`", ALL)
    found = {" ".join(line.split()) for line in typed + quoted}
    assert {"relight setup", "relight worker", "relight sensor", "relight doctor"} <= found
    for line in found:
        assert commands.problem(commands.relight_words(line)) == "", line


NAMED = set(re.findall(r"`((?:worker|sensor|node|slurm|drain)\.\w+)`", ALL))
FILES = {"sensor.lock", "slurm.conf", "slurm.key"}


@pytest.mark.parametrize("name", sorted(NAMED - FILES))
def test_settings(name: str) -> None:
    section, _, setting = name.partition(".")
    inner: Any = Settings.model_fields[section].annotation
    assert issubclass(inner, BaseModel)
    assert setting in inner.model_fields


def test_settings_of_policies() -> None:
    for name in ("poll", "approval_deadline", "steer"):
        assert f"`{name}" in ALL.replace("`policy.", "`")
        assert name in Policy.model_fields


def test_settings_of_the_environment() -> None:
    for section, setting in re.findall(r"RELIGHT_([A-Z]+)__([A-Z_]+)", ALL):
        inner: Any = Settings.model_fields[section.lower()].annotation
        assert setting.lower() in inner.model_fields


def test_alerts() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    named = set(re.findall(r"`(Relight\w+)`", ALL))
    assert named
    assert named <= {rule["alert"] for rule in rules}


def test_the_deployment_is_named_like_the_task_queue() -> None:
    names = set(re.findall(r"--deployment-name (\S+)", ALL))
    assert names == {Settings.model_fields["task_queue"].default}
