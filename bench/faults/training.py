"""A real data-parallel training for the fault suite: PyTorch on CPUs, gloo, DDP, DCP checkpoints.

    torchrun ... training.py --dir /shared/run1

Started by `torchrun`, one rank a node. Rank 0 prints Megatron's step lines; every `--save-every` steps all
ranks write a distributed checkpoint `step_00000010/`, and then rank 0 lets the file `latest` name it. A new
attempt loads what `latest` names, and nothing else: a damaged file or a damaged checkpoint is an error, as in
most people's scripts.

`DIR/fault.json` (`{"kind": ..., "step": ..., "rank": ..., "always": ...}`) orders a fault: once, or in every
attempt. What it raises is what the libraries raise; only CUDA's errors are raised here by themselves, with
PyTorch's words, since there is no GPU.

Each attempt adds a line to `DIR/first-steps`: when it was through its first step, in seconds since 1970.
"""

import argparse
import ctypes
import json
import math
import os
import shutil
import signal
import time
import zlib
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from relight.demo.trainer import ECC_ERROR, end_by, say, write_atomically

KEEP = 4
"""So many of the newest checkpoints are kept."""
WIDTH = 64
ILLEGAL_ACCESS = ECC_ERROR.replace(
    "uncorrectable ECC error encountered", "an illegal memory access was encountered"
)


class Orders:
    """The fault that is ordered for this rank."""

    def __init__(self, directory: Path, rank: int) -> None:
        self._file, self._fired, self._rank = directory / "fault.json", directory / "faults-fired", rank
        self._fired.mkdir(exist_ok=True)

    def due(self, step: int) -> str:
        """The kind of fault that happens now, for the first and only time; empty: none."""
        try:
            text = self._file.read_text()
            written = self._file.stat().st_mtime_ns
        except FileNotFoundError:
            return ""
        order = json.loads(text)
        if order["rank"] != self._rank or step < order["step"]:
            return ""
        attempt = os.environ.get("SLURM_RESTART_COUNT", "0") if order.get("always") else "once"
        try:
            (self._fired / f"{written}.{attempt}").touch(exist_ok=False)
        except FileExistsError:
            return ""
        return str(order["kind"])


def batch(step: int, rank: int) -> torch.Tensor:
    """The samples of this rank at this step: always the same, as after a restart they must be."""
    return torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(step * 1000 + rank))


def happen(kind: str, samples: torch.Tensor) -> torch.Tensor:
    """Makes the fault happen; returns the samples, damaged if that is the fault."""
    match kind:
        case "exception":
            zlib.decompress(zlib.compress(samples.numpy().tobytes())[:-9])  # a record that was cut off
        case "shape":
            return samples[:, : WIDTH - 1]
        case "nan":
            return samples * math.nan
        case "cuda":
            raise RuntimeError(ECC_ERROR)
        case "illegal-access":
            raise RuntimeError(ILLEGAL_ACCESS)
        case "segfault":
            ctypes.string_at(0)
        case "sigkill":
            end_by(signal.SIGKILL)
        case "eat":
            hoard = []
            while True:
                hoard.append(b"\1" * 100_000_000)
        case "hang":
            while True:
                time.sleep(3600)
    return samples


def save(directory: Path, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> None:
    """Writes a distributed checkpoint, and then the pointer to it."""
    path = directory / f"step_{step:08d}"
    if rank == 0:
        say(f"saving checkpoint at step {step} to {path}")
    dcp.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint_id=path)
    if rank:
        return
    write_atomically(directory / "latest", path.name)
    say(f"saved checkpoint {path} at step {step}")
    for old in sorted(directory.glob("step_*"))[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)


def load(directory: Path, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> int:
    """Loads the checkpoint that `latest` names, and returns its step; 0 where there is no such file.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        dcp.api.CheckpointException: it cannot be read.
    """
    pointer = directory / "latest"
    if not pointer.exists():
        if rank == 0:
            say("no checkpoint found, starting from step 0")
        return 0
    path = directory / pointer.read_text(errors="replace").strip()
    if not path.is_dir():
        raise FileNotFoundError(f"{pointer} names the checkpoint {path}, which does not exist")
    model_state = model.state_dict()
    # AdamW makes its state in the first step: one with no gradient, so that there is something to load into.
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    state = {"model": model_state, "optimizer": optimizer.state_dict()}
    dcp.load(state, checkpoint_id=path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = int(path.name.removeprefix("step_"))
    if rank == 0:
        say(f"loaded checkpoint {path} at step {step}")
    return step


def train(options: argparse.Namespace) -> None:
    """Trains until `options.steps`."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    rank, directory = dist.get_rank(), options.dir / "checkpoints"
    directory.mkdir(exist_ok=True)
    orders = Orders(options.dir, rank)
    say(f"[rank{rank}]: starting on {os.environ.get('SLURMD_NODENAME', 'this machine')}, pid {os.getpid()}")
    model = nn.Sequential(nn.Linear(WIDTH, 256), nn.GELU(), nn.Linear(256, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step, slow = load(directory, model, optimizer, rank), False
    parallel, is_first = DistributedDataParallel(model), rank == 0
    while step < options.steps:
        step += 1
        began = time.monotonic()
        kind = orders.due(step)
        slow = slow or kind == "slow"
        samples = happen(kind, batch(step, rank))
        time.sleep(options.step_time * (8 if slow else 1))
        loss = nn.functional.mse_loss(parallel(samples)[:, 0], samples.mean(dim=1))
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole, op=dist.ReduceOp.SUM)
        mean = whole.item() / dist.get_world_size()
        if is_first:  # the log's times have whole seconds only
            with (options.dir / "first-steps").open("a") as first_steps:
                first_steps.write(f"{time.time()}\n")
            is_first = False
        if rank == 0:
            say(
                f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] iteration {step:8d}/{options.steps:7d} | "
                f"elapsed time per iteration (ms): {(time.monotonic() - began) * 1000:.1f} | "
                f"learning rate: 1.000000E-03 | lm loss: {mean:.6E} | grad norm: {norm.item():.3f} |"
            )
        if step % options.save_every == 0 and math.isfinite(mean):
            save(directory, step, model, optimizer, rank)
    dist.destroy_process_group()


def main() -> None:
    """Runs one rank."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dir", type=Path, required=True, help="shared directory of this run")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--step-time", type=float, default=0.25, help="least seconds of a step")
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
