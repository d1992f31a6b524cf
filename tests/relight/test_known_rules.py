"""Rules that come with an upgrade only count."""

import ast
import json
from pathlib import Path

import pytest

import relight
from relight.config import ConfigError, Settings
from relight.contracts import Source
from relight.known_rules import DETECTORS, KNOWN, built_in, new_rules, remember
from relight.policies import Policies

ROOT = Path(relight.__file__).parent.parent


def older(state: Path, *without: str) -> None:
    """As a version of relight would have left it that did not have these rules."""
    remember(state)
    path = state / KNOWN
    path.write_text(json.dumps([rule for rule in json.loads(path.read_text()) if rule not in without]))


def test_what_was_there_at_the_first_start_is_known(tmp_path: Path) -> None:
    assert new_rules(tmp_path) == ()
    remember(tmp_path / "state")
    assert new_rules(tmp_path / "state") == ()
    assert len(json.loads((tmp_path / "state" / KNOWN).read_text())) == len(set(built_in()))


def test_what_an_upgrade_brings_only_counts_until_it_is_promoted(tmp_path: Path) -> None:
    older(tmp_path, "xid-79", "no-progress")
    settings = Settings(state_dir=tmp_path)
    for _ in range(2):  # a restart does not make them known
        assert Policies(settings, remember=True).file.observe == ("no-progress", "xid-79")
    assert Policies(settings).file.policy("default").observe_only == ("no-progress", "xid-79")
    file = tmp_path / "policy.yaml"
    file.write_text("promote: [79]")
    file.chmod(0o600)
    promoted = Policies(Settings(state_dir=tmp_path, policy_file=file), remember=True)
    assert promoted.file.observe == ("no-progress",)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / KNOWN).write_text("{")
    with pytest.raises(ConfigError, match="delete it"):
        new_rules(tmp_path)


def test_all_detectors_are_named() -> None:
    found = {source.value for source in (Source.KERNEL, Source.NVML)} | {"silence"}
    for file in (*ROOT.glob("sensor/**/*.py"), *ROOT.glob("relight/**/*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                found |= {str(node.value.value) for t in node.targets if ast.unparse(t) == "DETECTOR"}
    assert found == set(DETECTORS)
