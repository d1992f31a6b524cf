"""Whether the workflows would be compiled for each execution."""

import importlib
import os
import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relight.bytecode import is_cached, why_compiled_anew

PACKAGE = "a_package_of_workflows"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module of a package that can be found, and has no cache yet."""
    directory = tmp_path / PACKAGE
    directory.mkdir()
    (directory / "__init__.py").touch()
    (directory / "one.py").write_text("X = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "pycache_prefix", None)
    importlib.invalidate_caches()
    yield directory / "one.py"
    importlib.invalidate_caches()


def compile_all(module: Path, mode: py_compile.PycInvalidationMode | None = None) -> None:
    for source in module.parent.glob("*.py"):
        py_compile.compile(str(source), invalidation_mode=mode)


@pytest.mark.parametrize("forbidden", [True, False])
def test_without_a_cache_it_says_why_and_what_helps(
    module: Path, monkeypatch: pytest.MonkeyPatch, forbidden: bool
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", forbidden)
    why = why_compiled_anew(PACKAGE)
    assert ("PYTHONDONTWRITEBYTECODE is set" if forbidden else "cannot be written") in why
    assert f"python -m compileall {module.parent}" in why


@pytest.mark.parametrize("mode", list(py_compile.PycInvalidationMode))
def test_a_cache_is_enough_whatever_the_environment_says(
    module: Path, monkeypatch: pytest.MonkeyPatch, mode: py_compile.PycInvalidationMode
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    compile_all(module, mode)
    assert why_compiled_anew(PACKAGE) == ""


def test_a_cache_of_an_older_source_is_none(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_all(module, py_compile.PycInvalidationMode.TIMESTAMP)
    assert is_cached(module)
    os.utime(module, (1, 1))
    assert not is_cached(module)
    assert why_compiled_anew(PACKAGE)


def test_a_package_that_is_not_there_says_nothing() -> None:
    assert why_compiled_anew("no_such_package_at_all") == ""
