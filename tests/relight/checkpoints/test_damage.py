"""Random damage to a whole checkpoint: never an exception, and never usable when a needed byte is gone.

What is needed is judged at each level: names (a listing), sizes (the same), headers, and every byte (deep).
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relight.checkpoints import inspect
from relight.checkpoints.gate import inspect_store
from relight.checkpoints.layouts import LAYOUTS
from relight.checkpoints.report import Report
from relight.checkpoints.stores import ListingStore
from relight.contracts.policy import CheckpointLayout
from tests.relight.checkpoints.builders import (
    LAYOUT_OF,
    WRITERS,
    age,
    files_of,
    torch_zip,
    write_files,
)
from tests.relight.checkpoints.test_ocdbt import database


def orbax_ocdbt(root: Path, step: int) -> str:
    """Orbax with its arrays in an OCDBT database."""
    name = f"{step}"
    write_files(root / name / "default", database())
    write_files(root, {f"{name}/default/_METADATA": b'{"tree_metadata": {}}'})
    write_files(root, {f"{name}/_CHECKPOINT_METADATA": b'{"commit_timestamp_nsecs": 1}'})
    return name


def described(root: Path, step: int) -> str:
    """A layout that no framework has."""
    name = f"runs/save_{step}"
    write_files(root, {f"{name}/part{i}.pt": torch_zip() for i in range(2)})
    write_files(root, {f"{name}/DONE": b"ok"})
    return name


DESCRIPTION = CheckpointLayout(glob="runs/save_*", marker="DONE", needs=("part0.pt", "part1.pt"))
VARIANTS: dict[str, Callable[[Path, int], str]] = {
    **WRITERS,
    "orbax-ocdbt": orbax_ocdbt,
    "described": described,
}

NEEDED = {
    "marker": ("model.pt", "optim.pt"),
    "megatron": ("model_optim_rng.pt",),
    "megatron-dist": (".distcp", ".metadata", "common.pt"),
    "deepspeed": ("_states.pt",),
    "gpt-neox": ("_states.pt",),
    "hf-trainer": (".safetensors", "optimizer.pt", "scheduler.pt", ".pth", ".json"),
    "accelerate": (".safetensors", ".bin", ".pkl"),
    "torchtitan": (".distcp", ".metadata"),
    "dcp": (".distcp", ".metadata"),
    "olmo": (".distcp", ".metadata", ".pt"),
    "lightning": (".ckpt",),
    "nemo": (".ckpt",),
    "nemo-2": (".distcp", ".metadata"),
    "composer": (".pt",),
    "composer-sharded": (".distcp", ".metadata"),
    "fairseq": (".pt",),
    "torch-save": (".pt",),
    "orbax": (".zarray", "_METADATA", "_CHECKPOINT_METADATA"),
    "orbax-ocdbt": ("manifest.ocdbt", "d/root", "d/nodes", "d/values", "_METADATA", "_CHECKPOINT_METADATA"),
    "levanter": ("metadata.json", ".zarray"),
    "described": (".pt",),
}
"""Ends of the names of files whose every byte is needed, and whose end the format lets one find."""

PAYLOAD = bytes(i * 37 % 251 for i in range(64))
"""How each stored tensor of an archive begins; an archive has a checksum of it."""
CHECKSUMMED = [variant for variant in VARIANTS if not variant.startswith(("orbax", "levanter"))]

FOOTED = {".pt", ".ckpt", ".pth", ".pkl", ".bin", ".distcp"}
"""Archives, which end with a record of `FOOTER` bytes; in other files only a checksum could tell zeros."""
FOOTER = 22


def look(root: Path, variant: str, *, deep: bool = False) -> Report:
    """What the gate says of the files."""
    return inspect(root, layout=DESCRIPTION if variant == "described" else None, deep=deep)


def look_at_listing(root: Path, variant: str) -> Report:
    """What it says of their names and sizes alone."""
    files = [
        {"path": str(p.relative_to(root)), "size": p.stat().st_size, "mtime": p.stat().st_mtime}
        for p in root.rglob("*")
        if p.is_file() and not p.is_symlink()
    ]
    listing = ListingStore.parse(json.dumps({"root": "/x", "files": files}))
    return inspect_store(listing, layout=DESCRIPTION if variant == "described" else None)


def newest_of(root: Path, variant: str) -> str:
    """The name of the checkpoint of step 1100."""
    return next(c.name for c in look(root, variant).checkpoints if c.step == 1100 and "last" not in c.name)


def needed_files(root: Path, variant: str, name: str) -> list[Path]:
    return [p for p in files_of(root, name) if str(p).endswith(NEEDED[variant])]


def test_every_layout_is_damaged_here() -> None:
    known = {layout.name for layout in LAYOUTS}
    assert {LAYOUT_OF.get(variant, variant) for variant in WRITERS} == known
    assert NEEDED.keys() == VARIANTS.keys()


@pytest.fixture(scope="module")
def runs() -> Iterator[Path]:
    """One whole run of each variant, to be copied."""
    with tempfile.TemporaryDirectory() as scratch:
        for variant, write in VARIANTS.items():
            for step in (1000, 1100):
                write(Path(scratch) / variant, step)
            age(Path(scratch) / variant)
        yield Path(scratch)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_that_was_cut_is_never_usable(variant: str, data: st.DataObject, runs: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "run"
        shutil.copytree(runs / variant, root, symlinks=True)
        name = newest_of(root, variant)
        victim = data.draw(st.sampled_from(needed_files(root, variant, name)), label="file")
        size = victim.stat().st_size
        zeros = victim.suffix in FOOTED and data.draw(st.booleans(), label="filled up with zeros")
        keep = data.draw(st.integers(0, size - (FOOTER if zeros else 1)), label="bytes kept")
        with victim.open("r+b") as file:
            file.truncate(keep)
            if zeros:
                file.truncate(size)
        age(root)
        report = look(root, variant, deep=data.draw(st.booleans(), label="deep"))
        assert report.newest_usable != name, (victim, keep, report.summary)


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_a_needed_file_it_is_usable_at_no_level(variant: str, runs: Path, tmp_path: Path) -> None:
    root = tmp_path / "run"
    shutil.copytree(runs / variant, root, symlinks=True)
    name = newest_of(root, variant)
    for victim in needed_files(root, variant, name):
        for emptied in (False, True):
            content = victim.read_bytes()
            victim.unlink()
            if emptied:
                victim.touch()
            age(root)
            reports = look_at_listing(root, variant), look(root, variant), look(root, variant, deep=True)
            for level, report in zip(("listing", "headers", "deep"), reports, strict=True):
                if level == "listing" and not emptied and _only_contents_tell(variant, victim):
                    continue
                assert report.newest_usable != name, (victim, emptied, level, report.summary)
            victim.write_bytes(content)


def _only_contents_tell(variant: str, victim: Path) -> bool:
    """The names of a database's data files are random: only its contents tell which there must be."""
    return variant == "orbax-ocdbt" and victim.parent.name == "d"


@pytest.mark.parametrize("variant", CHECKSUMMED)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_changed_byte_of_a_tensor_is_found_by_deep(variant: str, data: st.DataObject, runs: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "run"
        shutil.copytree(runs / variant, root, symlinks=True)
        name = newest_of(root, variant)
        payloads = [
            (path, at) for path in files_of(root, name) for at in occurrences(path.read_bytes(), PAYLOAD)
        ]
        victim, start = data.draw(st.sampled_from(payloads), label="tensor")
        content = bytearray(victim.read_bytes())
        content[start + data.draw(st.integers(0, len(PAYLOAD) - 1))] ^= data.draw(st.integers(1, 255))
        victim.write_bytes(content)
        age(root)
        report = look(root, variant, deep=True)
        assert report.newest_usable != name, (victim, start, report.summary)


def occurrences(content: bytes, what: bytes) -> Iterator[int]:
    at = content.find(what)
    while at >= 0:
        yield at
        at = content.find(what, at + 1)


@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_is_told_and_never_raised(variant: str, data: st.DataObject, runs: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "run"
        shutil.copytree(runs / variant, root, symlinks=True)
        for _ in range(data.draw(st.integers(1, 4))):
            paths = sorted(p for p in root.rglob("*") if p.exists() and not p.is_symlink())
            if not paths:
                break
            damage(data.draw(st.sampled_from(paths), label="path"), data)
        report = look(root, variant, deep=data.draw(st.booleans(), label="deep"))
        assert look_at_listing(root, variant).model_dump_json()
        assert report.model_dump_json()
        if report.newest_usable is not None:
            assert report.newest_usable in {c.name for c in report.checkpoints}


def damage(path: Path, data: st.DataObject) -> None:
    """Damages a file or directory in one of many ways."""
    if path.is_dir():
        kind = data.draw(st.sampled_from(["remove", "rename", "replace"]))
        target = path.with_name(path.name + data.draw(st.sampled_from([".tmp", "-tmp", "0", "x"])))
        if kind == "rename" and not target.exists():
            path.rename(target)
            return
        shutil.rmtree(path)
        if kind == "replace":
            path.write_bytes(b"a file now")
        return
    content = bytearray(path.read_bytes())
    kind = data.draw(st.sampled_from(["remove", "noise", "flip", "zeros", "grow", "directory", "link"]))
    at = data.draw(st.integers(0, max(0, len(content) - 1)))
    match kind:
        case "noise":
            path.write_bytes(data.draw(st.binary(max_size=64)))
        case "flip" if content:
            content[at] ^= data.draw(st.integers(1, 255))
            path.write_bytes(content)
        case "zeros":
            path.write_bytes(bytes(content[:at]) + bytes(len(content) - at))
        case "grow":
            path.write_bytes(bytes(content) + b"more")
        case _:
            path.unlink()
            if kind == "directory":
                path.mkdir()
            elif kind == "link":
                path.symlink_to(data.draw(st.sampled_from([".", "..", "nowhere", "/dev/zero", "/"])))
