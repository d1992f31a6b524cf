"""Kinds of incidents, each in a few lines of the logs that show it: what it is, and what to do about it."""
# ruff: noqa: E501

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from relight.contracts import Symptom
from tests.relight.diagnosis.making import look


@dataclass(frozen=True)
class Kind:
    name: str
    cause: str
    action: str
    job: str
    blame: str = ""
    kernel: dict[str, str] = field(default_factory=dict)
    slurm: str = ""
    silent: timedelta | None = None


HEADER = "SLURM_JOB_NODELIST=gpu[01-04] GPUS_PER_NODE=4\n"
STEP = "[rank0]:[titan] 2026-02-21 13:{m:02d}:40,000 - root - INFO - step: {step}  loss:  2.70000  grad_norm:  0.5900  memory: 66.91GiB(84.51%)  tps: 7,094\n"
RUN = HEADER + "".join(STEP.format(m=m, step=900 + m) for m in range(6, 12))
REMOTE = "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
WATCHDOG = "[rank{r}]:[E519 20:08:00.123456789 ProcessGroupNCCL.cpp:629] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4101, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for 600011 milliseconds before timing out.\n"
COMPLETION = "gpu0{a}:1:2 [0] transport/net_ib.cc:2023 NCCL WARN NET/IB : Got completion from peer 10.9.0.{b}<44206> with status=12 opcode=129 len=65536 vendor err 129 (Recv)\n"
BOOTSTRAP = "".join(f"gpu0{n}:1:1 [0] NCCL INFO Bootstrap : Using ib0:10.9.0.{n}<0>\n" for n in (1, 2, 3, 4))

KINDS = [
    Kind(
        "xid63 alone, steps go on",
        "healthy",
        "none",
        RUN,
        kernel={
            "gpu02": "[100.1] NVRM: Xid (PCI:0000:3b:00): 63, pid=1, name=x, Row Remapper: New row marked\n"
        },
    ),
    Kind(
        "xid74 uptime, steps go on",
        "healthy",
        "none",
        RUN,
        kernel={
            "gpu02": "[100.1] NVRM: Xid (PCI:0000:3b:00): 74, pid=1, name=x, NVLink: fatal error detected on link 6\n"
        },
    ),
    Kind(
        "xid64, steps go on",
        "gpu_memory_ecc",
        "restart_exclude_node",
        RUN,
        blame="gpu02",
        kernel={"gpu02": "[100.1] NVRM: Xid (PCI:0000:3b:00): 64, pid=1, name=x, failure\n"},
    ),
    Kind(
        "xid43 + python exception",
        "user_code",
        "restart",
        RUN
        + (
            "[rank5]: Traceback (most recent call last):\n"
            '[rank5]:   File "/a/t.py", line 3, in f\n'
            "[rank5]: ValueError: bad\n"
        ),
        kernel={"gpu02": "[100.1] NVRM: Xid (PCI:0000:3b:00): 43, pid=1, name=x, Ch 8\n"},
    ),
    Kind(
        "only remote errors",
        "network_fabric",
        "restart",
        RUN + "".join(f"[rank{r}]: {REMOTE}" for r in range(16)),
    ),
    Kind(
        "both directions",
        "network_fabric",
        "restart",
        HEADER
        + BOOTSTRAP
        + "".join(COMPLETION.format(a=a, b=b) for a, b in ((1, 2), (2, 1), (3, 1), (1, 3))),
    ),
    Kind(
        "srun node failure",
        "node_failure",
        "restart_exclude_node",
        RUN
        + (
            "srun: error: Node failure on gpu03\n"
            "slurmstepd: error: *** STEP 1.0 ON gpu01 CANCELLED AT 2026-02-21T13:20:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n"
        ),
        blame="gpu03",
    ),
    Kind(
        "step cancelled after a task failed",
        "unknown",
        "restart",
        RUN
        + (
            "srun: error: gpu02: task 5: Exited with exit code 1\n"
            "slurmstepd: error: *** STEP 1.0 ON gpu01 CANCELLED AT 2026-02-21T13:20:00 ***\n"
        ),
    ),
    Kind(
        "job cancelled",
        "user_cancel",
        "stop",
        RUN
        + (
            "slurmstepd: error: *** JOB 1 ON gpu01 CANCELLED AT 2026-02-21T13:20:00 ***\n"
            "[rank3]: Traceback (most recent call last):\n"
            "[rank3]: torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 15\n"
        ),
    ),
    Kind(
        "NaN in dictionaries",
        "numerical",
        "restart_previous_checkpoint",
        HEADER
        + "".join(
            f"{{'loss': {0.0 if i > 2 else 2.1}, 'grad_norm': {'nan' if i > 2 else 0.3}, 'learning_rate': 9e-06, 'epoch': 0.{i}}}\n"
            for i in range(9)
        ),
    ),
    Kind(
        "NaN in progress bars",
        "numerical",
        "restart_previous_checkpoint",
        HEADER
        + "".join(
            f"\r 20%|##   | {400 + i}/2000 [1:10:11<4:30:20,  10.21s/it, loss={'nan' if i > 2 else 2.3}]"
            for i in range(9)
        )
        + "\n",
    ),
    Kind(
        "elastic restart then goes on",
        "healthy",
        "none",
        RUN
        + (
            "[rank2]: Traceback (most recent call last):\n"
            "[rank2]: RuntimeError: boom\n"
            "E0312 14:20:33.214000 4410 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 3 (pid: 713) of binary: /opt/conda/bin/python\n"
        )
        + "".join(STEP.format(m=m, step=900 + m) for m in range(12, 16)),
    ),
    Kind(
        "missing module on one node",
        "software_env",
        "restart_exclude_node",
        HEADER
        + (
            "[rank4]: ModuleNotFoundError: No module named 'apex'\n"
            "[rank5]: ModuleNotFoundError: No module named 'apex'\n"
            "[rank6]: ModuleNotFoundError: No module named 'apex'\n"
            "[rank7]: ModuleNotFoundError: No module named 'apex'\n"
            "[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 12/16 clients joined.\n"
        ),
        blame="gpu02",
    ),
    Kind(
        "missing module everywhere",
        "software_env",
        "stop",
        HEADER + "".join(f"[rank{r}]: ModuleNotFoundError: No module named 'apex'\n" for r in range(16)),
    ),
    Kind(
        "silent node in watchdog",
        "unknown",
        "restart_exclude_node",
        RUN + "".join(WATCHDOG.format(r=r) for r in range(16) if r // 4 != 2),
        blame="gpu03",
    ),
    Kind(
        "same node twice",
        "unknown",
        "restart_exclude_node",
        (
            "Restart 1 of job 7 on gpu[01-04]\n"
            "srun: error: gpu03: task 9: Killed\n"
            "srun: error: gpu01: tasks 0-3: Exited with exit code 1\n"
            "Restart 2 of job 7 on gpu[01-04]\n"
            "srun: error: gpu03: task 11: Killed\n"
        ),
        blame="gpu03",
    ),
    Kind(
        "cuda oom same step twice",
        "gpu_oom",
        "stop",
        (
            "attempt 1: step 300 loss 2.1\n"
            "attempt 1: [rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.00 GiB.\n"
            "attempt 2: step 300 loss 2.1\n"
            "attempt 2: [rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.00 GiB.\n"
        ),
    ),
    Kind(
        "disk full + nccl",
        "storage",
        "stop",
        RUN
        + (
            "[rank3]: OSError: [Errno 28] No space left on device: '/x/shard.pt'\n"
            "[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        ),
    ),
    Kind("quota", "storage", "stop", RUN + "OSError: [Errno 122] Disk quota exceeded\n"),
    Kind(
        "sacct table timeout",
        "time_limit",
        "restart",
        RUN,
        slurm=("JobID    State      ExitCode\n120      TIMEOUT    0:0\n"),
    ),
    Kind(
        "sacct table oom",
        "host_oom",
        "restart",
        RUN,
        slurm=("JobID    State      ExitCode\n120.0    OUT_OF_ME+    0:125\n"),
    ),
    Kind(
        "port flap recovered",
        "healthy",
        "none",
        RUN,
        kernel={
            "gpu02": (
                "Feb 21 13:07:40 gpu02 kernel: mlx5_core 0000:5e:00.0 ib0: Link down\n"
                "Feb 21 13:07:44 gpu02 kernel: mlx5_core 0000:5e:00.0 ib0: Link up\n"
            )
        },
    ),
    Kind("hang no info", "unknown", "restart", RUN, silent=timedelta(minutes=30)),
    Kind("blind hang", "unknown", "restart", HEADER + "hello\n", silent=timedelta(minutes=30)),
    Kind(
        "finished then timelimit",
        "healthy",
        "none",
        RUN
        + (
            "Training completed\n"
            "slurmstepd: error: *** STEP 1.0 ON gpu01 CANCELLED AT 2026-02-21T13:20:00 DUE TO TIME LIMIT ***\n"
        ),
    ),
    Kind(
        "fp16 floor",
        "numerical",
        "restart_previous_checkpoint",
        RUN
        + "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n",
    ),
    Kind(
        "keyboard",
        "user_cancel",
        "stop",
        RUN + ('Traceback (most recent call last):\n  File "/a/t.py", line 3, in f\nKeyboardInterrupt\n'),
    ),
    Kind("exit 143", "unknown", "restart", RUN + "srun: error: gpu02: task 5: Exited with exit code 143\n"),
    Kind(
        "killed only",
        "unknown",
        "restart",
        RUN + ("srun: error: gpu02: task 5: Killed\nsrun: Terminating StepId=1.0\n"),
    ),
    Kind(
        "a mount that is gone",
        "storage",
        "restart",
        HEADER + "[rank7]: OSError: [Errno 107] Transport endpoint is not connected: '/mnt/s3/data'\n",
    ),
    Kind(
        "a switch and its GPUs",
        "nvlink",
        "restart_exclude_node",
        RUN + "[rank4]: RuntimeError: CUDA error: unspecified launch failure\n",
        blame="gpu02",
        kernel={
            "gpu02": (
                "[9.1] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up\n"
                "[9.2] NVRM: Xid (PCI:0000:3b:00): 74, pid=1, name=x\n"
                "[9.2] NVRM: Xid (PCI:0000:4b:00): 74, pid=1, name=x\n"
            )
        },
    ),
    Kind(
        "the same exception on all nodes",
        "user_code",
        "restart",
        RUN
        + "".join(
            f"[rank{r}]: RuntimeError: CUDA error: an illegal instruction was encountered\n"
            for r in range(16)
        ),
        kernel={f"gpu0{n}": "[9.2] NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=x\n" for n in range(1, 5)},
    ),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
def test_kinds_of_incidents(kind: Kind) -> None:
    report = look(
        kind.job,
        kernel=kind.kernel,
        slurm=kind.slurm,
        still_running=kind.silent is not None,
        silent_for=kind.silent,
    )
    found = (report.cause.value, report.action.value, ",".join(report.blame_nodes))
    assert found == (kind.cause, kind.action, kind.blame), report.explanation
    if kind.silent is not None:
        assert report.symptom is Symptom.HANG


@pytest.mark.parametrize(("minutes", "symptom"), [(29, Symptom.NONE), (30, Symptom.HANG)])
def test_before_the_first_step_the_same_silence_is_asked_for_as_live(minutes: int, symptom: Symptom) -> None:
    report = look(HEADER + "hello\n", still_running=True, silent_for=timedelta(minutes=minutes))
    assert report.symptom is symptom
