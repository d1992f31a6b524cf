"""Checkpoints that the real libraries wrote are usable, and damage to them is seen."""

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import lightning
import numpy as np
import orbax.checkpoint as ocp
import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from lightning.pytorch.callbacks import ModelCheckpoint
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from relight.checkpoints import State, inspect
from relight.checkpoints.formats import ocdbt
from tests.relight.checkpoints.builders import age, link

STEPS = (500, 999, 1000)


def state(step: int) -> dict[str, Any]:
    """Something to save."""
    return {"model": {"w": torch.randn(64, 64), "b": torch.zeros(64)}, "step": step, "lr": [0.1]}


def write_dcp(root: Path) -> None:
    for step in STEPS:
        dcp.save(state(step), checkpoint_id=root / f"step-{step}", no_dist=True)


def write_torch_save(root: Path) -> None:
    for step in STEPS:
        torch.save(state(step), root / f"ckpt_{step}.pt")


def write_legacy_torch_save(root: Path) -> None:
    for step in STEPS:
        torch.save(state(step), root / f"ckpt_{step}.pt", _use_new_zipfile_serialization=False)


def write_safetensors(root: Path) -> None:
    for step in STEPS:
        directory = root / f"step_{step}"
        directory.mkdir()
        safetensors.torch.save_file(state(step)["model"], directory / "model.safetensors")
        (directory / "COMPLETE").touch()


def write_trainer(root: Path) -> None:
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=64, n_positions=16))
    data = [{"input_ids": torch.arange(8) + i, "labels": torch.arange(8) + i} for i in range(40)]
    options = TrainingArguments(
        str(root), max_steps=12, save_steps=4, report_to=[], per_device_train_batch_size=2, use_cpu=True
    )
    Trainer(model, options, train_dataset=data).train()


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(32, 32)

    def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch).sum()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def write_lightning(root: Path) -> None:
    saver = ModelCheckpoint(root, every_n_train_steps=5, save_top_k=-1, save_last=True)
    data = torch.utils.data.DataLoader(torch.randn(48, 32), batch_size=4)  # type: ignore[arg-type]
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_progress_bar=False, callbacks=[saver]
    )
    trainer.fit(Module(), data)


def write_accelerate(root: Path) -> None:
    options = ProjectConfiguration(project_dir=str(root), automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=options)
    model = torch.nn.Linear(32, 32)
    accelerator.prepare(model, torch.optim.Adam(model.parameters()))
    for _ in range(3):
        accelerator.save_state()


def write_orbax(root: Path) -> None:
    manager = ocp.CheckpointManager(root.absolute())
    for step in STEPS:
        tree = {"w": np.random.default_rng(step).normal(size=(64, 64)), "b": np.zeros(10), "step": step}
        manager.save(step, args=ocp.args.StandardSave(tree))
    manager.wait_until_finished()
    manager.close()


def write_orbax_zarr(root: Path) -> None:
    saver = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False))
    for step in STEPS:
        saver.save(root.absolute() / f"{step}", {"w": np.random.default_rng(step).normal(size=(64, 64))})


Written = tuple[Callable[[Path], None], str, str, int]
WRITERS: dict[str, Written] = {
    "dcp": (write_dcp, "torchtitan", "step-1000", 1000),
    "torch-save": (write_torch_save, "torch-save", "ckpt_1000.pt", 1000),
    "safetensors": (write_safetensors, "marker", "step_1000", 1000),
    "trainer": (write_trainer, "hf-trainer", "checkpoint-12", 12),
    "lightning": (write_lightning, "lightning", "epoch=0-step=10.ckpt", 10),
    "accelerate": (write_accelerate, "accelerate", "checkpoints/checkpoint_2", 2),
    "orbax": (write_orbax, "orbax", "1000", 1000),
    "orbax-zarr": (write_orbax_zarr, "orbax", "1000", 1000),
    "legacy-torch-save": (write_legacy_torch_save, "torch-save", "ckpt_1000.pt", 1000),
}

library = pytest.mark.parametrize("library", WRITERS)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives a fresh copy of what a library wrote; each library writes once."""
    written: dict[str, Path] = {}

    def copy(name: str) -> Path:
        if name not in written:
            written[name] = tmp_path_factory.mktemp(name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                WRITERS[name][0](written[name])
            age(written[name])
        target = tmp_path_factory.mktemp("copy") / "run"
        shutil.copytree(written[name], target, symlinks=True)
        return target

    return copy


@library
@pytest.mark.parametrize("deep", [False, True])
def test_what_the_library_wrote_is_usable(library: str, deep: bool, runs: Callable[[str], Path]) -> None:
    root = runs(library)
    _, layout, name, step = WRITERS[library]
    report = inspect(root, deep=deep)
    assert (report.layout, report.newest_usable, report.step) == (layout, name, step), report.summary
    assert {c.state for c in report.checkpoints} == {State.USABLE}


def needed_files(root: Path, name: str) -> list[Path]:
    """The files of a checkpoint that hold weights or state or an index."""
    path = root / name
    if path.is_file():
        return [path]
    passed_over = {"README.md", "config.json", "generation_config.json", "COMPLETE"}
    found = [p for p in sorted(path.rglob("*")) if p.is_file() and p.name not in passed_over]
    # Databases of single processes are merged into the outer one, which refers only to their values.
    return [p for p in found if "ocdbt.process_0" not in p.parts or p.stat().st_size > 10_000]


@library
@pytest.mark.parametrize("damage", ["cut in half", "cut by a byte", "empty", "flipped header", "gone"])
def test_damage_to_any_needed_file_is_seen(library: str, damage: str, runs: Callable[[str], Path]) -> None:
    root = runs(library)
    name = WRITERS[library][2]
    for victim in needed_files(root, name):
        content = victim.read_bytes()
        if _cannot_be_seen(library, victim, damage):
            continue
        match damage:
            case "cut in half":
                victim.write_bytes(content[: len(content) // 2])
            case "cut by a byte":
                victim.write_bytes(content[:-1])
            case "empty":
                victim.write_bytes(b"")
            case "flipped header":
                victim.write_bytes(bytes(b ^ 0xFF for b in content[:8]) + content[8:])
            case "gone":
                victim.unlink()
        age(root)
        report = inspect(root)
        assert report.newest_usable != name, f"{damage}: {victim.relative_to(root)}"
        victim.write_bytes(content)


def _cannot_be_seen(library: str, victim: Path, damage: str) -> bool:
    """What no format of the library tells without reading and decoding every byte."""
    if damage == "cut by a byte" and victim.read_bytes().endswith(b"\n"):
        return True  # a text without its last line end is still whole
    if damage == "cut by a byte" and "ocdbt.process_0" in victim.parts:
        return True  # values, and behind them nodes that the merged database no longer needs
    if victim.name == "commit_success.txt":
        return damage != "gone"  # a marker: what counts is that it is there
    if library == "orbax" and "d" in victim.parts and not ocdbt.has_zstd():
        return True
    if library == "orbax" and victim.parent.name == "d":
        return damage == "flipped header" and victim.stat().st_size > 10_000  # the bytes of a value
    if library == "orbax-zarr" and not victim.name.startswith((".", "_")):
        return damage not in {"empty", "gone"}  # a compressed chunk
    return False


def test_a_save_that_has_only_begun(runs: Callable[[str], Path]) -> None:
    root = runs("dcp")
    (root / "step-1000" / ".metadata").unlink()
    (root / "step-1000" / "__0_0.distcp").touch()
    report = inspect(root)
    assert report.step == 999
    assert report.checkpoints[0].state is State.IN_PROGRESS


def test_a_dangling_last(runs: Callable[[str], Path]) -> None:
    root = runs("lightning")
    (root / "last.ckpt").unlink()
    link(root, "last.ckpt", "epoch=9-step=900.ckpt")
    report = inspect(root)
    assert (report.step, report.pointer_disagrees) == (10, True)


def test_the_step_is_read_from_real_contents(runs: Callable[[str], Path]) -> None:
    root = runs("lightning")
    for path in root.glob("epoch*"):
        path.unlink()
    assert (inspect(root).newest_usable, inspect(root).step) == ("last.ckpt", 10)


def test_archives_without_checksums_pass_deep(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        write_torch_save(tmp_path)
    finally:
        torch.serialization.set_crc32_options(True)
    age(tmp_path)
    assert inspect(tmp_path, deep=True).step == 1000


def test_a_flipped_bit_in_a_tensor_is_found_by_deep(runs: Callable[[str], Path]) -> None:
    root = runs("dcp")
    shard = root / "step-1000" / "__0_0.distcp"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    age(root)
    assert inspect(root).step == 1000
    assert inspect(root, deep=True).step == 999


@library
def test_through_fsspec(library: str, runs: Callable[[str], Path]) -> None:
    import fsspec

    root = runs(library)
    memory = fsspec.filesystem("memory")
    memory.put(f"{root}/", f"/{root.parent.name}/", recursive=True)
    report = inspect(f"memory://{root.parent.name}")
    assert (report.newest_usable, report.step) == WRITERS[library][2:]
