"""The checkpoint directory that a person names."""

from pathlib import Path

import pytest

from relight.cli import checkpoint_directory
from relight.cli.exit_codes import CommandError, ExitCode


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / "there").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("written", "directory"),
    [
        ("there", "{home}/there"),
        ("./there", "{home}/there"),
        ("~/there", "{home}/there"),
        ("{home}/there", "{home}/there"),
        ("file://{home}/there", "file://{home}/there"),
        ("memory://bucket/run", "memory://bucket/run"),
    ],
)
def test_one_that_is_there_is_named_as_services_need_it(home: Path, written: str, directory: str) -> None:
    found = checkpoint_directory.usable(written.format(home=home))
    assert found == directory.format(home=home)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("nosuch", "there is no directory {home}/nosuch"),
        ("~/nosuch", "there is no directory {home}/nosuch"),
        ("file", "{home}/file is no directory"),
        ("file/below", "there is no directory {home}/file/below"),
        ("file://{home}/nosuch", "there is no directory file://{home}/nosuch"),
        ("nosuch://bucket/run", "cannot open nosuch://bucket/run"),
        ("x" * 300, "the checkpoint directory {home}/xxx"),
    ],
)
def test_one_that_is_not_there_needs_force(
    home: Path, written: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CommandError) as refused:
        checkpoint_directory.usable(written.format(home=home))
    assert refused.value.code is ExitCode.USAGE
    assert str(refused.value).startswith(says.format(home=home))
    assert "--force" in str(refused.value)
    assert capsys.readouterr().err == ""
    taken = checkpoint_directory.usable(written.format(home=home), force=True)
    assert taken == checkpoint_directory.absolute(written.format(home=home))
    assert says.format(home=home) in capsys.readouterr().err


@pytest.mark.parametrize("written", ["", "  ", "~nobody-of-this-name/x"])
def test_what_names_nothing_is_refused_even_so(written: str) -> None:
    with pytest.raises(CommandError) as refused:
        checkpoint_directory.usable(written, force=True)
    assert refused.value.code is ExitCode.USAGE
