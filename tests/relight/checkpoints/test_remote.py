"""Addresses such as `s3://...`: through fsspec, or an error that says what to install."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from relight.checkpoints import CheckpointError, inspect
from tests.relight.checkpoints.builders import write_run


class FakeFileSystem:
    """A file system with fsspec's three methods that are used, on a local directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.broken = False

    def find(self, path: str, detail: bool) -> dict[str, dict[str, Any]]:
        assert detail
        if self.broken:
            raise RuntimeError("no credentials")
        return {
            f"bucket/{p.relative_to(self.root)}": {
                "size": p.stat().st_size,
                "LastModified": "2026-01-02T03:04:05+00:00",
            }
            for p in (self.root / path.removeprefix("bucket").strip("/")).rglob("*")
            if p.is_file()
        }

    def isdir(self, path: str) -> bool:
        return (self.root / path.removeprefix("bucket").strip("/")).is_dir()

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        return (self.root / path.removeprefix("bucket/")).read_bytes()[start:end]


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeFileSystem:
    """Makes `fake://bucket/...` an address."""
    system = FakeFileSystem(tmp_path)
    core = ModuleType("fsspec.core")
    core.url_to_fs = lambda url: (system, url.removeprefix("fake://"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fsspec", ModuleType("fsspec"))
    monkeypatch.setitem(sys.modules, "fsspec.core", core)
    return system


@pytest.mark.parametrize("variant", ["hf-trainer", "torchtitan", "megatron", "orbax"])
def test_a_bucket_is_judged_like_a_directory(variant: str, bucket: FakeFileSystem) -> None:
    names = write_run(bucket.root / "run", variant)
    report = inspect("fake://bucket/run")
    assert report.newest_usable == names[-1]
    assert str(report.checkpoints[0].modified_at).startswith("2026-01-02 03:04:05")
    victim = max((bucket.root / "run" / names[-1]).rglob("*"), key=lambda p: p.is_file() and p.stat().st_size)
    victim.write_bytes(b"")
    assert inspect("fake://bucket/run").newest_usable == names[-2]


def test_errors_of_the_file_system_are_told(bucket: FakeFileSystem) -> None:
    with pytest.raises(CheckpointError, match="there is no such directory"):
        inspect("fake://bucket/nowhere")
    bucket.broken = True
    with pytest.raises(CheckpointError, match="no credentials"):
        inspect("fake://bucket/run")


def test_without_fsspec_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(CheckpointError, match="install `fsspec`"):
        inspect("s3://bucket/run")
