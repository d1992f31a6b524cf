"""`relight policy`: check, schema and show, as a person or an editor uses them."""

import json
import os
from pathlib import Path

import pytest

from relight.policy.file import parse
from tests.relight.cli.conftest import Relight

DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "policy.md"
FILE = """
act_in: [gpu]
allow: [patient]
observe: [no-progress]
policies:
  patient: {hang_floor: 10m, causes: {nvlink: {act: approval}}}
  internal: {}
overrides:
  - account: ml
    set: {signs: 2}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(FILE)
    path.chmod(0o644)
    return path


def test_check_of_a_good_file(alone: Relight, file: Path) -> None:
    done = alone("policy", "check", file)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"{file} can be used; jobs may choose: default, never, patient" in done.stdout


def test_check_tells_all_that_is_wrong(alone: Relight, file: Path) -> None:
    file.write_text("colour: red\npolicies: {p: {signs: 9, poll: soon}}")
    done = alone("policy", "check", file)
    assert done.exit_code == 1
    for text in (f"{file}:1: colour: ", f"{file}:2: policies.p.signs: ", "policies.p.poll", "3 problems"):
        assert text in done.stdout
    found = json.loads(alone("policy", "check", file, "--json").stdout)
    assert (found["ok"], [p["key"] for p in found["problems"]]) == (
        False, ["colour", "policies.p.poll", "policies.p.signs"],
    )  # fmt: skip


def test_check_tries_step_patterns_on_the_engine_that_uses_them(alone: Relight, file: Path) -> None:
    file.write_text(r"policies: {p: {step_patterns: ['(?P<step>\d+)(?=x)']}}")
    done = alone("policy", "check", file)
    assert done.exit_code == 1
    assert "policies.p.step_patterns" in done.stdout


def test_check_warns_of_what_may_not_be_meant(alone: Relight, file: Path) -> None:
    file.write_text("observe: [no-progres, 79, xid-63, kernel, nvml.ecc]")
    file.chmod(0o666)
    done = alone("policy", "check", file)
    assert done.exit_code == 0
    assert "'no-progres' is no detector" in done.stderr
    assert "services will refuse it" in done.stderr
    assert done.stderr.count("warning") == 2


def test_check_of_no_file(alone: Relight, tmp_path: Path) -> None:
    done = alone("policy", "check", tmp_path / "gone.yaml")
    assert done.exit_code == 2
    assert "gone.yaml" in done.stderr


@pytest.mark.timeout(30)
def test_check_of_what_is_no_file(alone: Relight, tmp_path: Path) -> None:
    """A pipe that nobody writes into, a device without an end: neither waits, nor fills the memory."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path):
        done = alone("policy", "check", path)
        assert (done.exit_code, done.exception.__class__) == (2, SystemExit)
        assert "no regular file" in done.stderr or "directory" in done.stderr
    long = tmp_path / "long.yaml"
    long.write_text("# " + "x" * (2 << 20))
    assert "longer than" in alone("policy", "check", long).stderr


def test_check_of_hostile_text_prints_no_escapes_and_no_traceback(alone: Relight, file: Path) -> None:
    file.write_text('"\\e[31mred\\e[0m": 1\npolicies: {a: {hang_floor: .inf, poll: 99999999999d}}\n')
    done = alone("policy", "check", file)
    assert done.exit_code == 1
    assert "\x1b" not in done.stdout
    assert "policies.a.hang_floor" in done.stdout
    assert "policies.a.poll" in done.stdout


def test_the_schema_is_json(alone: Relight) -> None:
    assert json.loads(alone("policy", "schema").stdout)["title"] == "relight policy file"


def test_show_what_a_job_would_get(alone: Relight, file: Path) -> None:
    env = {"RELIGHT_POLICY_FILE": str(file), "RELIGHT_MODE": "act"}
    done = alone("policy", "show", "patient", "--partition", "cpu", "--account", "ml", **env)
    assert done.exit_code == 0, done.stderr
    for text in (
        "policy patient, mode observe", "signs: override 1 (account ml)", "10m",
        '{"nvlink": {"act": "approval"}}',
        "cannot act: partition cpu only observes", "add cpu to `act_in`",
    ):  # fmt: skip
        assert text in done.stdout
    shown = json.loads(alone("policy", "show", "--partition", "gpu", "--json", **env).stdout)
    assert (shown["policy"]["name"], shown["mode"], shown["caps"]) == ("default", "act", [])
    assert shown["policy"]["observe_only"] == ["no-progress"]
    by_name = json.loads(alone("policy", "show", "patient", "--json", **env).stdout)
    assert (by_name["mode"], by_name["policy"]["hang_floor"]) == (None, "PT10M")


def test_show_of_what_cannot_be_had(alone: Relight, file: Path) -> None:
    done = alone("policy", "show", "internal", RELIGHT_POLICY_FILE=str(file))
    assert done.exit_code == 2
    assert "jobs may not choose policy 'internal'" in done.stderr
    done = alone("policy", "show", "--job", "1", "--user", "a", RELIGHT_POLICY_FILE=str(file))
    assert done.exit_code == 2
    file.chmod(0o666)
    done = alone("policy", "show", RELIGHT_POLICY_FILE=str(file))
    assert done.exit_code == 2
    assert "the policy file is not safe" in done.stderr


def test_the_example_of_the_docs_can_be_used() -> None:
    text = DOCS.read_text()
    example = text.split("```yaml\n", 1)[1].split("```", 1)[0]
    found = parse(example)
    assert found.act_in
    assert found.overrides
    assert found.observe
    assert {"patient", "careful"} <= set(found.policies)
