"""The policy file on disk: who may have written it, and what happens when it changes or breaks."""

import os
from pathlib import Path

import pytest

from relight.config import ConfigError, Settings
from relight.policies import IN_FORCE, MAX_BYTES, Policies, PolicyFileUnsafe, read_policy_file, why_unsafe

GOOD = "policies: {patient: {hang_floor: 10m}}"
BETTER = "policies: {patient: {hang_floor: 20m}, calm: {}}"
BAD = "policies: {patient: {hang_floor: soon}}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    path.chmod(0o644)
    return path


@pytest.fixture
def settings(file: Path, tmp_path: Path) -> Settings:
    return Settings(policy_file=file, state_dir=tmp_path / "state")


def minutes(policies: Policies) -> float:
    return policies.file.policy("patient").hang_floor.total_seconds() / 60


def test_without_a_file_the_settings_hold(tmp_path: Path) -> None:
    policies = Policies(Settings(policies={"p": {}}, state_dir=tmp_path))  # type: ignore[dict-item]
    assert policies.file.names == ("default", "never", "p")
    assert not policies.reload()


def test_both_are_merged_and_may_not_define_the_same(file: Path, tmp_path: Path) -> None:
    both = Settings(policy_file=file, policies={"p": {}})  # type: ignore[dict-item]
    assert Policies(both).file.names == ("default", "never", "p", "patient")
    twice = Settings(policy_file=file, policies={"patient": {}})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="settings file has a policy of this name too"):
        Policies(twice)


def test_a_changed_file_is_read_again(file: Path, settings: Settings) -> None:
    policies = Policies(settings)
    assert not policies.reload()
    file.write_text(BETTER)
    assert policies.reload()
    assert (minutes(policies), policies.problem) == (20, "")
    assert not policies.reload()


def test_a_broken_file_leaves_in_force_what_was(file: Path, settings: Settings) -> None:
    policies = Policies(settings)
    file.write_text(BAD)
    assert policies.reload()
    assert minutes(policies) == 10
    assert f"{file}:1: policies.patient.hang_floor: 'soon'" in policies.problem
    assert not policies.reload()
    file.unlink()
    assert policies.reload()
    assert "No such file" in policies.problem
    file.write_text(BETTER)
    assert policies.reload()
    assert (minutes(policies), policies.problem) == (20, "")


def test_a_service_remembers_through_a_restart(file: Path, settings: Settings) -> None:
    Policies(settings, remember=True)
    kept = settings.state_dir / IN_FORCE
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == (GOOD, 0o600)
    file.write_text(BAD)
    again = Policies(settings, remember=True)
    assert minutes(again) == 10
    assert "hang_floor" in again.problem
    with pytest.raises(ConfigError, match="hang_floor"):
        Policies(settings)  # the command asks the person to mend it
    file.write_text(BETTER)
    assert again.reload()
    assert kept.read_text() == BETTER


def test_a_first_start_with_a_broken_file_says_so(file: Path, settings: Settings) -> None:
    file.write_text(BAD)
    with pytest.raises(ConfigError, match="hang_floor"):
        Policies(settings, remember=True)


def test_the_sites_own_rules_only_count_until_they_are_promoted(file: Path, tmp_path: Path) -> None:
    site = tmp_path / "signatures"
    site.mkdir()
    (site / "ours.yaml").write_text(
        "family: ours\nsignatures:\n"
        "- {id: ours.disk, pattern: 'lustre is gone', role: root, cause: storage}\n"
        "- {id: ours.net, pattern: 'fabric is gone', role: root, cause: network_fabric}\n"
    )
    (site / "xid.yaml").write_text("xid:\n  900: {does: hold_out}\n")
    settings = Settings(policy_file=file, signatures=(site,))
    assert Policies(settings).file.observe == ("ours.disk", "ours.net", "xid-900")
    file.write_text("observe: [no-progress]\npromote: [ours.net, 900]")
    policies = Policies(settings).file
    assert policies.policy("default").observe_only == ("no-progress", "ours.disk")


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_may_write_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(PolicyFileUnsafe, match="chmod go-w"):
        read_policy_file(file)
    assert "chmod go-w" in why_unsafe(file)


def test_a_directory_in_which_others_may_replace_it_is_refused(file: Path) -> None:
    file.parent.chmod(0o777)
    with pytest.raises(PolicyFileUnsafe, match="could replace the policy file"):
        read_policy_file(file)
    file.parent.chmod(0o1777)  # sticky, as /tmp
    assert read_policy_file(file)


def test_a_file_of_another_user_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    if file.stat().st_uid == 0:  # root may own it
        assert read_policy_file(file)
        os.chown(file, 1234, -1)
    with pytest.raises(PolicyFileUnsafe, match="belongs to user"):
        read_policy_file(file)


def test_what_is_no_policy_file_at_all(file: Path, tmp_path: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_policy_file(file)
    file.write_text("#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="longer than"):
        read_policy_file(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_policy_file(tmp_path)
