"""Random damage to a whole checkpoint: never an exception, and never usable when a needed byte is gone."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relight.checkpoints import inspect
from tests.relight.checkpoints.builders import WRITERS, age, files_of, write_run

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
    "levanter": ("metadata.json", ".zarray"),
}
"""Ends of the names of files whose every byte is needed, and whose end the format lets one find."""


FOOTED = {".pt", ".ckpt", ".pth", ".pkl", ".bin", ".distcp"}
"""Archives, which end with a record of `FOOTER` bytes; in other files only a checksum could tell zeros."""
FOOTER = 22


@pytest.fixture(scope="module")
def runs() -> Iterator[Path]:
    """One whole run of each variant, to be copied."""
    with tempfile.TemporaryDirectory() as scratch:
        for variant in WRITERS:
            write_run(Path(scratch) / variant, variant, steps=(1000, 1100))
        yield Path(scratch)


@pytest.mark.parametrize("variant", WRITERS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_that_was_cut_is_never_usable(variant: str, data: st.DataObject, runs: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "run"
        shutil.copytree(runs / variant, root, symlinks=True)
        name = next(c.name for c in inspect(root).checkpoints if c.step == 1100 and "last" not in c.name)
        needed = [p for p in files_of(root, name) if p.name.endswith(NEEDED[variant])]
        victim = data.draw(st.sampled_from(needed), label="file")
        size = victim.stat().st_size
        zeros = victim.suffix in FOOTED and data.draw(st.booleans(), label="filled up with zeros")
        keep = data.draw(st.integers(0, size - (FOOTER if zeros else 1)), label="bytes kept")
        with victim.open("r+b") as file:
            file.truncate(keep)
            if zeros:
                file.truncate(size)
        age(root)
        report = inspect(root)
        assert report.newest_usable != name, (victim, keep, report.summary)


@pytest.mark.parametrize("variant", WRITERS)
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
        report = inspect(root, deep=data.draw(st.booleans(), label="deep"))
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
