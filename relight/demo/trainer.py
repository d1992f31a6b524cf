"""A small but real data-parallel training, to try relight on: run one process for each rank.

It needs nothing but Python 3.9 and imports nothing of relight, since it runs on compute nodes:

    srun python trainer.py --dir /shared/run1

Every rank computes the gradient of a toy linear regression on its own batch; rank 0 averages the gradients
over TCP and sends the mean back, so a rank that dies or stops takes the others along, as in a real training.
Rank 0 writes the step lines (Megatron's format) and the checkpoints, and a new attempt goes on from the
newest complete checkpoint.

Where the environment variable `RESUME_FROM` is set, it names the checkpoint to go on from instead.

Rank, size and node come from `SLURM_PROCID`, `SLURM_NTASKS` and `SLURMD_NODENAME`, or else from `RANK` and
`WORLD_SIZE`.

Faults on purpose come from `--fault KIND@STEP[:RANK][xTIMES]` or from the file `DIR/fault.json`
(`{"kind": ..., "step": ..., "rank": ..., "times": ...}`), which is read before each step and may be written
while the training runs. A fault fires when its rank (the last one unless told otherwise) reaches its step or
the first step after it, once in an attempt, and in `times` attempts (1 unless told otherwise), so that a
restart succeeds. Kinds:

    exception            the rank's data is damaged: a traceback of user code
    cuda, oom            the tracebacks of an uncorrectable ECC error, and of a GPU that is out of memory
    disk-full            the traceback of a file system without space
    nan                  the loss becomes NaN, and stays so
    hang                 the rank stops, and the others wait for it
    pause:SECONDS        the same, but it goes on after that time
    sigkill, segfault    the process is gone, without a word of its own
    exit:CODE            the process exits
    ignore-checkpoints   the attempt starts from step 0, if there is a checkpoint of that step or a later one
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import faulthandler
import json
import math
import os
import pickle
import random
import re
import resource
import secrets
import shutil
import signal
import socket
import struct
import sys
import time
import traceback
import zipfile
from pathlib import Path
from typing import NamedTuple, NoReturn

FEATURES = 8
BATCH = 16
LEARNING_RATE = 0.02
KEEP = 5
"""So many of the newest checkpoints are kept."""
RENDEZVOUS_SECONDS = 120.0
"""How long the ranks wait for each other at the start."""

ECC_ERROR = (
    "CUDA error: uncorrectable ECC error encountered\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
    "might be incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
GPU_OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which "
    "1.12 GiB is free. Including non-PyTorch memory, this process has 77.98 GiB memory in use."
)


class OutOfMemoryError(RuntimeError):
    """What PyTorch raises when a GPU has no memory left."""

    __module__ = "torch"


# ---- who am I --------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """This process among the others."""

    rank: int
    size: int
    node: str
    attempt: str
    """Names this execution of the job: all its ranks share it, and no earlier execution did."""


def find_place(env: dict[str, str]) -> Place:
    """Reads rank, size, node and attempt from what `srun` (or `torchrun`) sets."""
    return Place(
        rank=int(env.get("SLURM_PROCID") or env.get("RANK") or 0),
        size=int(env.get("SLURM_NTASKS") or env.get("WORLD_SIZE") or 1),
        node=env.get("SLURMD_NODENAME") or socket.gethostname(),
        attempt=f"{env.get('SLURM_JOB_ID') or 'alone'}.{env.get('SLURM_RESTART_COUNT') or 0}",
    )


def say(text: str) -> None:
    """Writes whole lines in one call, so that the lines of several ranks do not mix."""
    os.write(1, (text + "\n").encode())


def write_atomically(path: Path, text: str) -> None:
    """Writes a file so that readers see all of it or nothing."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text)
    scratch.replace(path)


# ---- faults on purpose -----------------------------------------------------------------------------------


class Fault(NamedTuple):
    """One fault to inject."""

    kind: str
    argument: str
    step: int
    rank: int | None
    times: int
    key: str
    """Names it in the record of what has fired already."""

    @property
    def needs_argument(self) -> bool:
        """Its kind means nothing without one."""
        return self.kind in ("pause", "exit")


KINDS = (
    "exception", "cuda", "oom", "disk-full", "nan", "hang", "pause", "sigkill", "segfault", "exit",
    "ignore-checkpoints",
)  # fmt: skip


def make_fault(kind: str, step: int, rank: int | None, times: int, key: str) -> Fault:
    """Checks a fault's kind and argument.

    Raises:
        ValueError: there is no such kind, or its number is missing or is none.
    """
    name, _, argument = kind.partition(":")
    if name not in KINDS:
        raise ValueError(f"unknown fault {name!r}; there are: {', '.join(KINDS)}")
    fault = Fault(name, argument, step, rank, times, key)
    if fault.needs_argument:
        float(argument)
    return fault


def parse_fault(text: str) -> Fault:
    """Reads `KIND@STEP[:RANK][xTIMES]`.

    Raises:
        ValueError: it is not of that form.
    """
    found = re.fullmatch(r"([a-z-]+(?::[0-9.]+)?)@(\d+)(?::(\d+))?(?:x(\d+))?", text)
    if not found:
        raise ValueError(f"{text!r} is not KIND@STEP[:RANK][xTIMES]")
    kind, step, rank, times = found.groups()
    return make_fault(kind, int(step), int(rank) if rank else None, int(times or 1), f"option-{text}")


class Faults:
    """Decides which fault fires now on this rank."""

    def __init__(self, directory: Path, place: Place, ordered: list[Fault]) -> None:
        self._control = directory / "fault.json"
        self._fired = directory / "faults-fired"
        self._place = place
        self._ordered = ordered
        self._done: set[str] = set()
        self._fired.mkdir(exist_ok=True)

    def due(self, step: int, only: str = "") -> Fault | None:
        """Takes the first fault that is due at this step; it will not fire again in this attempt.

        Args:
            step: the step that is about to be computed.
            only: consider this kind alone; else all but `ignore-checkpoints`.
        """
        for fault in (*self._ordered, *self._read_control()):
            wanted = fault.kind == only if only else fault.kind != "ignore-checkpoints"
            rank = self._place.size - 1 if fault.rank is None else fault.rank
            mine = only or rank == self._place.rank
            if wanted and mine and step >= fault.step and fault.key not in self._done:
                self._done.add(fault.key)
                if self._claim(fault):
                    return fault
        return None

    def _read_control(self) -> list[Fault]:
        try:
            text = self._control.read_text()
            written = self._control.stat().st_mtime_ns
        except FileNotFoundError:
            return []
        if not text.strip():  # just being written
            return []
        order = json.loads(text)
        rank = order.get("rank")
        return [
            make_fault(
                str(order["kind"]),
                int(order.get("step", 0)),
                None if rank is None else int(rank),
                int(order.get("times", 1)),
                f"file-{written}",
            )
        ]

    def _claim(self, fault: Fault) -> bool:
        """Counts a firing, over all attempts; false when there were enough."""
        for number in range(fault.times):
            with contextlib.suppress(FileExistsError):
                (self._fired / f"{fault.key}.{number}").touch(exist_ok=False)
                return True
        return False


def end_by(number: signal.Signals) -> NoReturn:
    """Ends this process by a signal, leaving no core file behind."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), number)
    raise AssertionError("survived its own signal")


# ---- the ranks talk to each other ------------------------------------------------------------------------

_VECTOR = struct.Struct(f"!q{FEATURES + 1}d")
"""A step number, a weight or gradient vector, and a loss."""
_HELLO = struct.Struct("!16si")


class Message(NamedTuple):
    """What ranks send each other."""

    step: int
    vector: list[float]
    loss: float

    def pack(self) -> bytes:
        """As bytes of a fixed length."""
        return _VECTOR.pack(self.step, *self.vector, self.loss)


def receive(connection: socket.socket, size: int) -> bytes:
    """Reads exactly `size` bytes.

    Raises:
        ConnectionResetError: the peer is gone.
    """
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
        data += part
    return bytes(data)


def receive_message(connection: socket.socket) -> Message:
    """Reads one message."""
    step, *numbers = _VECTOR.unpack(receive(connection, _VECTOR.size))
    return Message(step, numbers[:-1], numbers[-1])


def this_host() -> str:
    """Identifies the host, to know when a peer is on the same one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Group:
    """All ranks of this attempt, connected through rank 0."""

    def __init__(self, place: Place, directory: Path) -> None:
        self._place = place
        self._address_file = directory / "rendezvous" / f"{place.attempt}.json"
        self._address_file.parent.mkdir(exist_ok=True)
        self._peers: list[socket.socket] = []
        if place.rank == 0:
            self._serve()
        else:
            self._peers = [self._join()]

    def broadcast(self, message: Message | None) -> Message:
        """Gives every rank the message of rank 0; the others pass None."""
        if message is None:
            return receive_message(self._peers[0])
        for peer in self._peers:
            peer.sendall(message.pack())
        return message

    def all_reduce(self, mine: Message) -> Message:
        """Averages vectors and losses over all ranks.

        Raises:
            ConnectionResetError, BrokenPipeError: a rank is gone.
            RuntimeError: a rank is at another step.
        """
        if self._place.rank != 0:
            self._peers[0].sendall(mine.pack())
            return receive_message(self._peers[0])
        messages = [mine, *map(receive_message, self._peers)]
        if {m.step for m in messages} != {mine.step}:
            raise RuntimeError(f"ranks are at different steps: {[m.step for m in messages]}")
        vector = [sum(values) / len(messages) for values in zip(*(m.vector for m in messages))]  # noqa: B905
        return self.broadcast(Message(mine.step, vector, sum(m.loss for m in messages) / len(messages)))

    def _serve(self) -> None:
        token = secrets.token_bytes(16)
        with socket.create_server(("", 0), backlog=self._place.size) as server:
            server.settimeout(RENDEZVOUS_SECONDS)
            port = server.getsockname()[1]
            address = {
                "host": socket.gethostname(), "port": port, "boot_id": this_host(), "token": token.hex(),
            }  # fmt: skip
            write_atomically(self._address_file, json.dumps(address))
            joined: dict[int, socket.socket] = {}
            while len(joined) < self._place.size - 1:
                try:
                    connection, _ = server.accept()
                except socket.timeout as e:  # noqa: UP041 - another type before Python 3.10
                    missing = sorted(set(range(1, self._place.size)) - set(joined))
                    raise TimeoutError(
                        f"rendezvous: ranks {missing} did not join within {RENDEZVOUS_SECONDS:.0f} s"
                    ) from e
                connection.settimeout(5)
                try:
                    got, rank = _HELLO.unpack(receive(connection, _HELLO.size))
                except OSError:
                    got, rank = b"", -1
                if got != token:  # a stranger, or a rank that read an older address
                    connection.close()
                    continue
                connection.sendall(token)
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                joined[rank] = connection
        self._peers = [joined[rank] for rank in sorted(joined)]

    def _join(self) -> socket.socket:
        """Connects to rank 0; tries again as long as the address is not there yet, or a stale one."""
        deadline = time.monotonic() + RENDEZVOUS_SECONDS
        while True:
            try:
                address = json.loads(self._address_file.read_text())
                host = "127.0.0.1" if address["boot_id"] == this_host() else address["host"]
                token = bytes.fromhex(address["token"])
                connection = socket.create_connection((host, address["port"]), timeout=5)
                connection.sendall(_HELLO.pack(token, self._place.rank))
                if receive(connection, len(token)) == token:
                    connection.settimeout(None)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    return connection
                connection.close()
            except OSError as e:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"rendezvous: rank 0 not found within {RENDEZVOUS_SECONDS:.0f} s"
                    ) from e
            time.sleep(0.05)


# ---- checkpoints -----------------------------------------------------------------------------------------


class MarkerLayout:
    """`step_00000120/model.json`, with an empty file `COMPLETE` written last."""

    pattern = re.compile(r"step_(\d{8})")

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, step: int) -> Path:
        """The directory of this step's checkpoint."""
        return self.directory / f"step_{step:08d}"

    def complete(self) -> list[int]:
        """The steps that can be resumed from, oldest first."""
        found = (self.pattern.fullmatch(p.name) for p in self.directory.iterdir())
        return sorted(int(m[1]) for m in found if m and (self.path(int(m[1])) / "COMPLETE").exists())

    def write(self, directory: Path, step: int, weights: list[float]) -> None:
        """Fills the directory of a new checkpoint."""
        (directory / "model.json").write_text(json.dumps({"step": step, "weights": weights}))
        (directory / "COMPLETE").touch()

    def publish(self, step: int) -> None:
        """Nothing more to do: the marker is inside."""

    def read(self, step: int) -> list[float]:
        """The weights of a checkpoint."""
        weights: list[float] = json.loads((self.path(step) / "model.json").read_text())["weights"]
        return weights


class MegatronLayout(MarkerLayout):
    """`iter_0000120/mp_rank_00/model_optim_rng.pt`, and `latest_checkpointed_iteration.txt` beside it."""

    pattern = re.compile(r"iter_(\d{7})")

    def path(self, step: int) -> Path:
        """The directory of this step's checkpoint."""
        return self.directory / f"iter_{step:07d}"

    def complete(self) -> list[int]:
        """The step that the pointer file names: Megatron loads that one and no other."""
        try:
            return [int((self.directory / "latest_checkpointed_iteration.txt").read_text())]
        except FileNotFoundError:
            return []

    def write(self, directory: Path, step: int, weights: list[float]) -> None:
        """Fills the directory of a new checkpoint, with a zip archive as `torch.save` writes it."""
        (directory / "mp_rank_00").mkdir()
        with zipfile.ZipFile(directory / "mp_rank_00" / "model_optim_rng.pt", "w") as archive:
            state = {"iteration": step, "model": weights}
            archive.writestr("model_optim_rng/data.pkl", pickle.dumps(state, protocol=2))
            archive.writestr("model_optim_rng/version", "3\n")

    def publish(self, step: int) -> None:
        """Points to the new checkpoint."""
        write_atomically(self.directory / "latest_checkpointed_iteration.txt", str(step))

    def read(self, step: int) -> list[float]:
        """The weights of a checkpoint."""
        with zipfile.ZipFile(self.path(step) / "mp_rank_00" / "model_optim_rng.pt") as archive:
            weights: list[float] = pickle.loads(archive.read("model_optim_rng/data.pkl"))["model"]
        return weights


LAYOUTS = {"marker": MarkerLayout, "megatron": MegatronLayout}


def save(layout: MarkerLayout, step: int, weights: list[float]) -> None:
    """Writes a checkpoint, complete or not at all, and removes the oldest beyond `KEEP`."""
    if not all(map(math.isfinite, weights)):
        say(f"skipping the checkpoint at step {step}: the weights are not finite")
        return
    final = layout.path(step)
    say(f"saving checkpoint at step {step} to {final}")
    scratch = layout.directory / f".{final.name}.tmp"
    for leftover in (scratch, final):  # of an attempt that died while it saved, or that is now repeated
        shutil.rmtree(leftover, ignore_errors=True)
    scratch.mkdir(parents=True)
    layout.write(scratch, step, weights)
    scratch.rename(final)
    layout.publish(step)
    say(f"saved checkpoint {final} at step {step}")
    there = sorted(p for p in layout.directory.iterdir() if layout.pattern.fullmatch(p.name))
    for old in there[:-KEEP]:
        shutil.rmtree(old)


def load(layout: MarkerLayout, faults: Faults) -> Message:
    """The checkpoint that the environment names, else the newest complete one, or the start."""
    layout.directory.mkdir(exist_ok=True)
    steps = layout.complete()
    if named := os.environ.get("RESUME_FROM"):
        found = layout.pattern.fullmatch(Path(named).name)
        if found is None:
            raise SystemExit(f"RESUME_FROM={named} names no checkpoint of this layout")
        steps = [int(found[1])]
    if steps and faults.due(steps[-1], only="ignore-checkpoints"):
        say("WARNING: checkpoints are ignored (injected fault), starting from step 0")
        steps = []
    if not steps:
        say("no checkpoint found, starting from step 0")
        return Message(0, [0.0] * FEATURES, 0.0)
    weights = layout.read(steps[-1])
    say(f"loaded checkpoint {layout.path(steps[-1])} at step {steps[-1]}")
    return Message(steps[-1], weights, 0.0)


# ---- the model -------------------------------------------------------------------------------------------

TRUTH = [0.5 * (i + 1) for i in range(FEATURES)]
"""The weights to be learned."""

Sample = tuple[list[float], float]


def draw_batch(seed: int, step: int, rank: int) -> list[Sample]:
    """The samples of this rank at this step: always the same, as after a restart they must be."""
    source = random.Random(f"{seed}:{step}:{rank}")
    batch = []
    for _ in range(BATCH):
        features = [source.gauss(0, 1) for _ in range(FEATURES)]
        batch.append((features, predict(TRUTH, features) + source.gauss(0, 0.1)))
    return batch


def predict(weights: list[float], features: list[float]) -> float:
    """The model's answer for one sample."""
    if len(features) != len(weights):
        raise ValueError(f"shape mismatch: a sample has {len(features)} features, the model {len(weights)}")
    return sum(w * x for w, x in zip(weights, features))  # noqa: B905 - strict= needs Python 3.10


def gradient(weights: list[float], batch: list[Sample]) -> tuple[list[float], float]:
    """Gradient and value of the mean squared error over a batch."""
    slope, loss = [0.0] * FEATURES, 0.0
    for features, target in batch:
        error = predict(weights, features) - target
        loss += error * error / len(batch)
        slope = [g + 2 * error * x / len(batch) for g, x in zip(slope, features)]  # noqa: B905
    return slope, loss


def inject(fault: Fault, batch: list[Sample], directory: Path) -> list[Sample]:
    """Makes the fault happen; returns the batch, damaged if that is the fault."""
    if fault.kind == "exception":
        return [(batch[0][0][:-1], batch[0][1]), *batch[1:]]
    if fault.kind == "nan":
        return [(batch[0][0], math.nan), *batch[1:]]
    if fault.kind == "cuda":
        raise RuntimeError(ECC_ERROR)
    if fault.kind == "oom":
        raise OutOfMemoryError(GPU_OUT_OF_MEMORY)
    if fault.kind == "disk-full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory / "checkpoints" / "model.json"))
    if fault.kind == "pause":
        time.sleep(float(fault.argument))
    while fault.kind == "hang":
        time.sleep(3600)
    if fault.kind == "sigkill":
        end_by(signal.SIGKILL)
    if fault.kind == "segfault":
        end_by(signal.SIGSEGV)
    if fault.kind == "exit":
        raise SystemExit(int(fault.argument))
    return batch


def train(place: Place, options: argparse.Namespace) -> None:
    """Trains until `options.steps`."""
    directory: Path = options.dir
    directory.mkdir(parents=True, exist_ok=True)
    faults = Faults(directory, place, options.fault)
    layout = LAYOUTS[options.layout](directory / "checkpoints")
    say(f"[rank{place.rank}]: starting on {place.node}, {place.size} ranks, pid {os.getpid()}")
    group = Group(place, directory)
    start = group.broadcast(load(layout, faults) if place.rank == 0 else None)
    step, weights = start.step, start.vector
    while step < options.steps:
        step += 1
        began = time.monotonic()
        batch = draw_batch(options.seed, step, place.rank)
        fault = faults.due(step)
        if fault:
            batch = inject(fault, batch, directory)
        slope, loss = gradient(weights, batch)
        time.sleep(max(0.0, began + options.step_time - time.monotonic()))
        mean = group.all_reduce(Message(step, slope, loss))
        weights = [w - LEARNING_RATE * g for w, g in zip(weights, mean.vector)]  # noqa: B905
        if place.rank == 0:
            say(
                f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] iteration {step:8d}/{options.steps:7d} | "
                f"elapsed time per iteration (ms): {(time.monotonic() - began) * 1000:.1f} | "
                f"learning rate: {LEARNING_RATE:.6E} | global batch size: {BATCH * place.size:5d} | "
                f"lm loss: {mean.loss:.6E} |"
            )
            if step % options.save_every == 0 or step == options.steps:
                save(layout, step, weights)
    if place.rank == 0:
        say(f"training finished at step {step}")


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--dir", type=Path, required=True, help="shared directory of this run")
    parser.add_argument("--steps", type=int, default=100000, help="train up to this step")
    parser.add_argument("--step-time", type=float, default=0.1, help="least seconds for one step")
    parser.add_argument("--save-every", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--layout", choices=sorted(LAYOUTS), default="marker", help="layout of checkpoints")
    parser.add_argument("--seed", type=int, default=1, help="of the training data")
    parser.add_argument(
        "--fault", type=parse_fault, action="append", default=[], metavar="KIND@STEP[:RANK][xTIMES]",
        help="see above; the last rank unless told otherwise",
    )  # fmt: skip
    return parser.parse_args(arguments)


def main() -> int:
    """Runs one rank; a failure is told as PyTorch tells it, each line with the rank before it."""
    faulthandler.enable()
    options = read_options()
    place = find_place(dict(os.environ))
    try:
        train(place, options)
    except Exception:
        text = traceback.format_exc().rstrip("\n")
        lines = (f"[rank{place.rank}]: {line}\n" for line in text.split("\n"))
        os.write(2, "".join(lines).encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
