"""Which files a service that acts does not trust."""

import os
from pathlib import Path

import pytest

from relight.permissions import UnsafePermissions, _ownership, problem, problems, require_safe


@pytest.mark.parametrize(
    ("mode", "secret", "says"),
    [
        (0o600, False, ""),
        (0o644, False, ""),
        (0o664, False, "chmod go-w"),
        (0o646, False, "chmod go-w"),
        (0o600, True, ""),
        (0o400, True, ""),
        (0o640, True, "chmod 600"),
        (0o604, True, "chmod 600"),
        (0o666, True, "chmod 600"),
    ],
)
def test_the_mode_of_a_file(tmp_path: Path, mode: int, secret: bool, says: str) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(mode)
    why = problem(file, secret=secret)
    assert says in why
    assert bool(why) is bool(says)
    assert not says or f"{mode:04o}" in why


@pytest.mark.parametrize(("mode", "safe"), [(0o755, True), (0o775, False), (0o777, False), (0o1777, True)])
def test_the_directory_counts_too(tmp_path: Path, mode: int, safe: bool) -> None:
    directory = tmp_path / "etc"
    directory.mkdir()
    file = directory / "relight.toml"
    file.touch(0o644)
    directory.chmod(mode)
    why = problem(file)
    assert bool(why) is not safe
    assert safe or f"chmod go-w {directory}" in why


def test_a_link_is_as_safe_as_what_it_leads_to(tmp_path: Path) -> None:
    open_to_all = tmp_path / "target"
    open_to_all.touch()
    open_to_all.chmod(0o666)
    link = tmp_path / "link"
    link.symlink_to(open_to_all)
    assert "chmod go-w" in problem(link)


@pytest.mark.parametrize(("owner", "trusted"), [(0, True), (1000, True), (1001, False)])
def test_a_file_of_somebody_else_is_not_trusted(owner: int, trusted: bool) -> None:
    found = os.stat_result((0o100600, 1, 1, 1, owner, 0, 0, 0, 0, 0))
    why = _ownership(Path("relight.toml"), found, euid=1000)
    assert bool(why) is not trusted
    assert trusted or "user id 1001" in why


def test_everything_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    settings, key = tmp_path / "relight.toml", tmp_path / "keys"
    settings.touch()
    settings.chmod(0o666)
    key.touch()
    key.chmod(0o644)
    missing = tmp_path / "missing"
    assert len(problems([settings, missing], [key])) == 2
    with pytest.raises(UnsafePermissions, match=r"relight\.toml.*; .*keys"):
        require_safe([settings], [key])
    settings.chmod(0o600)
    key.chmod(0o600)
    require_safe([settings, missing], [key])
