"""Writes checkpoints in the formats of the real libraries, without these libraries, and damages them."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

OLD = 3600
"""Seconds: files of checkpoints that nobody is writing to are made to look this old."""


def age(root: Path, seconds: float = OLD) -> None:
    """Makes all files under a directory look old."""
    then = root.stat().st_mtime - seconds
    for path in root.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (then, then))


# ---- files -----------------------------------------------------------------------------------------------


def torch_zip(content: Any = None, size: int = 2000) -> bytes:
    """An archive as `torch.save` writes it: a pickle, raw storages, a version."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content, protocol=2))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", bytes(i * 37 % 251 for i in range(size)))
        archive.writestr("archive/version", "3\n")
    return out.getvalue()


def safetensors(size: int = 4000) -> bytes:
    """A safetensors file with two tensors of together `size` bytes."""
    half = size // 8 * 4
    header = json.dumps(
        {
            "__metadata__": {"format": "pt"},
            "a": {"dtype": "F32", "shape": [half // 4], "data_offsets": [0, half]},
            "b": {"dtype": "U8", "shape": [size - half], "data_offsets": [half, size]},
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + bytes(i % 251 for i in range(size))


@dataclass
class Metadata:
    """Stands for `torch.distributed.checkpoint.metadata.Metadata`."""

    state_dict_metadata: dict[str, Any] = field(default_factory=dict)
    planner_data: Any = None
    storage_data: Any = None
    storage_meta: Any = None


@dataclass(frozen=True)
class MetadataIndex:
    """Stands for `torch.distributed.checkpoint.metadata.MetadataIndex`."""

    fqn: str
    offset: tuple[int, ...] | None = None
    index: int | None = None


@dataclass
class _StorageInfo:
    relative_path: str
    offset: int
    length: int


def write_dcp(directory: Path, shards: int = 3, items: int = 2, size: int = 2000) -> None:
    """A distributed checkpoint: `shards` files with `items` archives each, and `.metadata`."""
    directory.mkdir(parents=True, exist_ok=True)
    archive = torch_zip(size=size)
    data: dict[MetadataIndex, _StorageInfo] = {}
    for rank in range(shards):
        name = f"__{rank}_0.distcp"
        (directory / name).write_bytes(archive * items)
        for item in range(items):
            index = MetadataIndex(f"model.layers.{item}.weight", (rank * 4, 0), rank)
            data[index] = _StorageInfo(name, item * len(archive), len(archive))
    (directory / ".metadata").write_bytes(pickle.dumps(Metadata(storage_data=data), protocol=4))


def write_sparse_dcp(directory: Path, shards: int, size: int = 64 << 20) -> None:
    """Like `write_dcp`, but each shard is one archive of `size` bytes, most of it a hole."""
    directory.mkdir(parents=True, exist_ok=True)
    name = b"archive/data/0"
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, size, size, len(name), 0) + name
    central = struct.pack(
        "<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, size, size, len(name), 0, 0, 0, 0, 0, 0
    )
    central += name
    position = len(local) + size
    tail = central + struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 1, 1, len(central), position, 0)
    data: dict[MetadataIndex, _StorageInfo] = {}
    for rank in range(shards):
        path = f"__{rank}_0.distcp"
        with (directory / path).open("wb") as file:
            file.write(local)
            file.seek(position)
            file.write(tail)
        for tensor in ("model.w", "optim.exp_avg"):
            index = MetadataIndex(f"{tensor}.{rank}", (rank * 4, 0), rank)
            data[index] = _StorageInfo(path, 0, position + len(tail))
    (directory / ".metadata").write_bytes(pickle.dumps(Metadata(storage_data=data), protocol=4))


# ---- layouts ---------------------------------------------------------------------------------------------


def write_files(root: Path, files: Mapping[str, bytes]) -> None:
    """Writes files by their path under a root."""
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)


def marker(root: Path, step: int) -> str:
    """A directory with a marker."""
    name = f"step_{step:08d}"
    write_files(root, {f"{name}/model.pt": torch_zip(), f"{name}/optim.pt": torch_zip(size=4000)})
    write_files(root, {f"{name}/COMPLETE": b""})
    return name


def megatron(root: Path, step: int) -> str:
    """Megatron's format `torch` on 2 x 2 ranks."""
    name = f"iter_{step:07d}"
    for rank in ("00_000", "00_001", "01_000", "01_001"):
        write_files(root, {f"{name}/mp_rank_{rank}/model_optim_rng.pt": torch_zip()})
    write_files(root, {"latest_checkpointed_iteration.txt": str(step).encode()})
    return name


def megatron_dist(root: Path, step: int) -> str:
    """Megatron's format `torch_dist`."""
    name = f"iter_{step:07d}"
    write_dcp(root / name)
    write_files(root, {f"{name}/common.pt": torch_zip({"iteration": step})})
    write_files(root, {f"{name}/metadata.json": b'{"sharded_backend": "torch_dist"}'})
    write_files(root, {"latest_checkpointed_iteration.txt": str(step).encode()})
    return name


def deepspeed(root: Path, step: int) -> str:
    """DeepSpeed, ZeRO stage 1 on 2 x 2 ranks."""
    name = f"global_step{step}"
    for mp in range(2):
        write_files(root, {f"{name}/mp_rank_{mp:02d}_model_states.pt": torch_zip()})
        for dp in range(2):
            path = f"{name}/bf16_zero_pp_rank_{dp}_mp_rank_{mp:02d}_optim_states.pt"
            write_files(root, {path: torch_zip(size=4000)})
    write_files(root, {"latest": name.encode()})
    return name


def gpt_neox(root: Path, step: int) -> str:
    """GPT-NeoX: pipeline layers with gaps in their numbers."""
    name = f"global_step{step}"
    for layer in (0, 2, 3, 5):
        for mp in range(2):
            write_files(root, {f"{name}/layer_{layer:02d}-model_{mp:02d}-model_states.pt": torch_zip()})
    write_files(root, {f"{name}/mp_rank_{mp:02d}_model_states.pt": torch_zip() for mp in range(2)})
    write_files(root, {f"{name}/configs/config.yml": b"{}", "latest": name.encode()})
    return name


def hf_trainer(root: Path, step: int) -> str:
    """The Trainer with sharded weights and two ranks."""
    name = f"checkpoint-{step}"
    shards = [f"model-{i:05d}-of-00002.safetensors" for i in (1, 2)]
    write_files(root, {f"{name}/{shard}": safetensors() for shard in shards})
    index = json.dumps({"metadata": {}, "weight_map": dict(zip("ab", shards, strict=True))}).encode()
    write_files(root, {f"{name}/model.safetensors.index.json": index})
    write_files(
        root, {f"{name}/optimizer.pt": torch_zip(size=8000), f"{name}/scheduler.pt": torch_zip(size=9)}
    )
    write_files(root, {f"{name}/rng_state_{rank}.pth": torch_zip(size=500) for rank in range(2)})
    write_files(root, {f"{name}/trainer_state.json": json.dumps({"global_step": step}).encode()})
    return name


def accelerate(root: Path, step: int) -> str:
    """Accelerate on two ranks."""
    name = f"checkpoint_{step}"
    write_files(root, {f"{name}/model.safetensors": safetensors(), f"{name}/optimizer.bin": torch_zip()})
    write_files(root, {f"{name}/random_states_{rank}.pkl": torch_zip(size=99) for rank in range(2)})
    return name


def torchtitan(root: Path, step: int) -> str:
    """Distributed checkpoints, as torchtitan names them."""
    write_dcp(root / f"step-{step}")
    return f"step-{step}"


def dcp(root: Path, step: int) -> str:
    """A distributed checkpoint under a name of its own."""
    write_dcp(root / f"my_save_{step}")
    return f"my_save_{step}"


def olmo(root: Path, step: int) -> str:
    """OLMo, sharded."""
    name = f"step{step}"
    write_dcp(root / name / "model")
    write_dcp(root / name / "optim")
    write_files(root, {f"{name}/train/rank{rank}.pt": torch_zip(size=99) for rank in range(2)})
    write_files(root, {f"{name}/config.yaml": b"x: 1\n"})
    link(root, "latest", name)
    return name


def lightning(root: Path, step: int) -> str:
    """Lightning."""
    name = f"epoch={step // 1000}-step={step}.ckpt"
    write_files(root, {name: torch_zip({"epoch": 1, "global_step": step, "state_dict": {}})})
    return name


def nemo(root: Path, step: int) -> str:
    """NeMo 1 on two model-parallel ranks."""
    name = f"megatron_gpt--val_loss=2.10-step={step}-consumed_samples={step * 8}.ckpt"
    write_files(root, {f"mp_rank_{rank:02d}/{name}": torch_zip() for rank in range(2)})
    return name


def nemo2(root: Path, step: int) -> str:
    """NeMo 2: a directory with a distributed checkpoint."""
    name = f"llm--val_loss=2.10-step={step}-consumed_samples={step * 8}.0"
    write_dcp(root / name / "weights")
    write_files(root, {f"{name}/context/model.yaml": b"x: 1\n"})
    return name


def composer(root: Path, step: int) -> str:
    """Composer, one file."""
    name = f"ep0-ba{step}-rank0.pt"
    write_files(root, {name: torch_zip({"state": {}})})
    link(root, "latest-rank0.pt", name)
    return name


def composer_sharded(root: Path, step: int) -> str:
    """Composer, a distributed checkpoint."""
    write_dcp(root / f"ep0-ba{step}")
    return f"ep0-ba{step}"


def fairseq(root: Path, step: int) -> str:
    """fairseq: the copy `checkpoint_last.pt` beside."""
    name = f"checkpoint_1_{step}.pt"
    content = torch_zip({"optimizer_history": [{"num_updates": step}], "model": {}})
    write_files(root, {name: content, "checkpoint_last.pt": content})
    return name


def torch_save(root: Path, step: int) -> str:
    """A file that a script of one's own wrote."""
    write_files(root, {f"ckpt_{step}.pt": torch_zip({"model": {}, "step": step})})
    return f"ckpt_{step}.pt"


def orbax(root: Path, step: int) -> str:
    """Orbax with plain zarr arrays, each chunk stored."""
    name = f"{step}"
    write_files(root, {f"{name}/default/w/.zarray": json.dumps({"shape": [4, 4], "chunks": [2, 4]}).encode()})
    write_files(root, {f"{name}/default/w/{i}.0": bytes(range(200)) for i in range(2)})
    tree = {"tree_metadata": {}, "store_array_data_equal_to_fill_value": True}
    write_files(root, {f"{name}/default/_METADATA": json.dumps(tree).encode()})
    write_files(root, {f"{name}/_CHECKPOINT_METADATA": b'{"commit_timestamp_nsecs": 1}'})
    return name


def levanter(root: Path, step: int) -> str:
    """Levanter with plain zarr arrays."""
    name = f"step-{step}"
    write_files(root, {f"{name}/model/w/.zarray": json.dumps({"shape": [4], "chunks": [4]}).encode()})
    write_files(root, {f"{name}/model/w/0": bytes(range(200))})
    write_files(root, {f"{name}/metadata.json": json.dumps({"step": step, "timestamp": "2026"}).encode()})
    return name


def link(root: Path, name: str, target: str) -> None:
    """A symbolic link, in place of an older one."""
    root.mkdir(parents=True, exist_ok=True)
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to(target)


WRITERS = {
    "marker": marker,
    "megatron": megatron,
    "megatron-dist": megatron_dist,
    "deepspeed": deepspeed,
    "gpt-neox": gpt_neox,
    "hf-trainer": hf_trainer,
    "accelerate": accelerate,
    "torchtitan": torchtitan,
    "dcp": dcp,
    "olmo": olmo,
    "lightning": lightning,
    "nemo": nemo,
    "nemo-2": nemo2,
    "composer": composer,
    "composer-sharded": composer_sharded,
    "fairseq": fairseq,
    "torch-save": torch_save,
    "orbax": orbax,
    "levanter": levanter,
}
"""Every layout and its variants: writes one checkpoint of a step, and gives its name."""

LAYOUT_OF = {"megatron-dist": "megatron", "nemo-2": "nemo", "composer-sharded": "composer"}
"""Variant to the name of its layout, where they differ."""


def write_run(root: Path, variant: str, steps: Iterable[int] = (900, 1000, 1100)) -> list[str]:
    """A run's checkpoints, all whole and old; gives their names."""
    names = [WRITERS[variant](root, step) for step in steps]
    age(root)
    return names


def files_of(root: Path, name: str) -> list[Path]:
    """The files of one checkpoint, in a stable order."""
    if (root / name).is_dir():
        return sorted(p for p in (root / name).rglob("*") if p.is_file())
    return sorted(p for p in root.rglob(f"*{name}") if p.is_file() and not p.is_symlink())
