"""Healthy training logs, generated: what a day of 2,000 ranks prints when nothing is wrong.

Step lines of five frameworks, NCCL's start-up chatter, warnings, retries, evaluation pauses, checkpoint saves
and recompilations. Seeded: the same arguments give the same bytes.
"""
# ruff: noqa: E501

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

RANKS = 2000
PER_NODE = 8
START = datetime(2026, 3, 1, tzinfo=UTC)

_NOISE = (
    "{at} [rank{r}] /opt/conda/lib/python3.11/site-packages/torch/utils/checkpoint.py:295: FutureWarning: `torch.cpu.amp.autocast(args...)` is deprecated.",
    "node{n:03d}:{pid}:{pid} [{g}] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)",
    "node{n:03d}:{pid}:{pid} [{g}] NCCL INFO Channel 07/0 : {r}[{g}] -> {p}[{g}] [send] via NET/IB/3/GDRDMA",
    "node{n:03d}:{pid}:{pid} [{g}] NCCL INFO Connected all rings, use ring PXN 0 GDR 1",
    "node{n:03d}:{pid}:{pid} [{g}] NCCL INFO Trees [0] {p}/-1/-1->{r}->-1 [1] {p}/-1/-1->{r}->-1",
    "wandb: Network error (ReadTimeout), entering retry loop.",
    "wandb: Syncing files... done.",
    "[rank{r}]: UserWarning: Detected call of `lr_scheduler.step()` before `optimizer.step()`.",
    "{at} WARNING retrying request GET /shards/{pid} (attempt 1 of 5) after connection timeout",
    "{at} INFO shard {pid} opened, 4096 samples, 0 errors, 0 failed",
    "{at} INFO data queue depth {g}, worker restarts 0, errors=0, oom=0",
    "[rank{r}]:[W301 00:00:01.210569936 CUDACachingAllocator.cpp:1] expandable_segments is on",
    "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 65536.0",
    "    [{g}] torch._dynamo hit config.recompile_limit (8), function: 'forward' (model.py:{pid}), recompiling",
    "{at} DEBUG error budget 0.999, fatal=0, abort_on_nan=False, exceptions raised so far: 0",
)


def megatron(step: int, at: datetime, rng: random.Random, _: int) -> Iterator[str]:
    """Megatron-LM: the last rank prints."""
    yield (
        f" [{at:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/ 5000000 | consumed samples: {step * 512:12d} | elapsed time per "
        f"iteration (ms): {6000 + rng.gauss(0, 60):.1f} | throughput per GPU (TFLOP/s/GPU): {400 + rng.gauss(0, 3):.1f} | "
        f"learning rate: 1.480000E-04 | global batch size:   512 | lm loss: {2.4 + rng.gauss(0, 0.02):.6E} | loss scale: 1.0 | "
        "grad norm: 0.410 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def titan(step: int, at: datetime, rng: random.Random, ranks: int) -> Iterator[str]:
    """torchtitan: every rank prints."""
    for r in range(ranks):
        yield (
            f"[rank{r}]:[titan] {at:%Y-%m-%d %H:%M:%S},{rng.randrange(1000):03d} - root - INFO - step: {step:2d}  "
            f"loss: {2.4 + rng.gauss(0, 0.02):8.5f}  grad_norm:  0.5900  memory: 66.91GiB(84.51%)  tps: 7,094  "
            "tflops: 407.47  mfu: 41.20%"
        )


def huggingface(step: int, at: datetime, rng: random.Random, _: int) -> Iterator[str]:
    """Transformers' Trainer: a dictionary and a progress bar."""
    yield f"{{'loss': {2.4 + rng.gauss(0, 0.02):.4f}, 'grad_norm': 0.31, 'learning_rate': 9.8e-06, 'epoch': {step / 9000:.2f}}}"
    yield f"\r {step * 100 // 5_000_000:2d}%|█         | {step}/5000000 [1:10:11<94:30:20,  {10 + rng.gauss(0, 0.1):.2f}s/it]"


def lightning(step: int, at: datetime, rng: random.Random, _: int) -> Iterator[str]:
    """Lightning's progress bar."""
    yield f"\rEpoch 3:  41%|████      | {step}/5000000 [3:58:01<5:41:22,  {0.58 + rng.gauss(0, 0.005):.2f}it/s, v_num=12, train_loss=2.4]"


def maxtext(step: int, at: datetime, rng: random.Random, ranks: int) -> Iterator[str]:
    """MaxText: every host prints."""
    for host in range(ranks // PER_NODE):
        yield (
            f"{host}: I{at:%m%d %H:%M:%S}.102211 138304841739136 metric_logger.py:226] completed step: {step}, seconds: "
            f"{10 + rng.gauss(0, 0.1):.3f}, TFLOP/s/device: 350.869, Tokens/s/device: 19222.175, total_weights: 1572864, "
            f"loss: {2.4 + rng.gauss(0, 0.02):.3f}"
        )


FRAMEWORKS: dict[str, Callable[[int, datetime, random.Random, int], Iterator[str]]] = {
    "megatron": megatron,
    "titan": titan,
    "huggingface": huggingface,
    "lightning": lightning,
    "maxtext": maxtext,
}


def log(framework: str, size: int, *, seed: int = 1, ranks: int = RANKS, noise: int = 40) -> Iterator[bytes]:
    """A healthy log of about `size` bytes, in pieces of a step each. `noise`: other lines between two steps."""
    rng = random.Random(f"{framework}-{seed}")
    printer = FRAMEWORKS[framework]
    at, step, written = START, 0, 0
    while written < size:
        step += 1
        at += timedelta(seconds=10)
        lines: list[str] = []
        for _ in range(rng.randrange(noise + 1)):
            r = rng.randrange(ranks)
            lines.append(
                rng.choice(_NOISE).format(
                    at=f"{at:%Y-%m-%d %H:%M:%S}",
                    r=r,
                    n=r // PER_NODE + 1,
                    g=r % PER_NODE,
                    p=(r + 8) % ranks,
                    pid=rng.randrange(1000, 99999),
                )
            )
        lines += printer(step, at, rng, ranks)
        if step % 50 == 0:
            lines += _pause(framework, step, at, rng)
            at += timedelta(minutes=rng.randrange(2, 12))
        piece = ("\n".join(lines) + "\n").encode()
        written += len(piece)
        yield piece


def _pause(framework: str, step: int, at: datetime, rng: random.Random) -> list[str]:
    kind = rng.randrange(3)
    if kind == 0:
        return [
            f"saving checkpoint at iteration {step:7d} to /data/run1/ckpt in torch_dist format",
            f"  successfully saved checkpoint from iteration {step:7d} to /data/run1/ckpt [ t 1/4, p 1/2 ]",
        ]
    if kind == 1:
        return [
            "(min, max) time across ranks (ms):",
            "    evaluate .......................................: (721022.11, 721030.02)",
            f" validation loss at iteration {step} | lm loss value: 2.411021E+00 | lm loss PPL: 1.114510E+01 | ",
        ]
    return [
        f"E{at:%m%d %H:%M:%S}.561877    2797 slow_operation_alarm.cc:73] ",
        "[Compiling module jit_train_step for GPU] Very slow compile? If you want to file a bug, run with envvar XLA_FLAGS=--xla_dump_to=/tmp/foo and attach the results.",
        f"E{at:%m%d %H:%M:%S}.419625    2794 slow_operation_alarm.cc:140] The operation took 4m19.857845988s",
    ]
