"""The stage: a Slurm cluster, Temporal, relight's processes, and training jobs that ask to be watched."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.integration.lab import ROOT, Lab, Training
from tests.slurm.cluster import SlurmCluster

TRAINING = Path(__file__).with_name("training.py")
STARTS_FILE = "first-steps"
"""Where `training.py` notes when each attempt was through its first step."""
NODES = 8
NODES_OF_A_JOB = 2
STEP_SECONDS = 0.25
HANG_FLOOR = 4.0
START_FLOOR = 40.0
"""Seconds: nothing is printed while PyTorch is loaded, which takes up to half a minute on a busy machine."""
SLURMD_TIMEOUT = 5

TOP = 'mode = "act"\n'
MORE = f"""
[policies.faults]
hang_floor = "{HANG_FLOOR:.0f}s"
start_floor = "{START_FLOOR:.0f}s"
steer = "move_aside"

[guard_limits]
recoveries_per_hour = 1000
recoveries_per_user = 100
drains_per_hour = 500
drain_share = 1.0
breaker_nodes = 400
incident_jobs = 0
"""
DIFFERS = {
    "mode": "act (shipped: observe)",
    "hang_floor": f"{HANG_FLOOR:.0f} s (shipped: 60 s)",
    "start_floor": f"{START_FLOOR:.0f} s (shipped: 30 min)",
    "steer": "move_aside (shipped: leave, which asks a person)",
    "guard_limits": "raised, and no incidents: the suite makes more faults in an hour than a cluster has",
    "Slurm": f"SlurmdTimeout={SLURMD_TIMEOUT} (Slurm: 300), KillWait=2 (30), cred_expire=5 (120)",
}
"""What is not as shipped, or not as usual."""

# PYTHONSAFEPATH: beside the script, which would come first on its path, `profile` is not the library's.
JOB = """#!/bin/bash
#SBATCH --job-name=train --open-mode=append --requeue
export PYTHONPATH={root} PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
export MASTER_PORT=$((12000 + ({ports} + SLURM_JOB_ID * 20 + ${{SLURM_RESTART_COUNT:-0}}) % 7000))
srun --kill-on-bad-exit=1 --unbuffered bash -c '
if [ -e {bad}.$SLURM_JOB_ID.$SLURMD_NODENAME ]; then (sleep 2; kill -9 $$) & fi
exec {python} -m torch.distributed.run --nnodes $SLURM_NNODES --nproc-per-node 1 --node-rank $SLURM_NODEID \\
    --master-addr 127.0.0.1 --master-port $MASTER_PORT {training} --dir {dir} --step-time {step_time}'
"""


@dataclass(frozen=True)
class Stage:
    """Where the faults happen."""

    lab: Lab
    python: str
    """The interpreter that has PyTorch."""
    switches: Path
    """A directory: files in it make prologs fail, and nodes bad."""
    small: Path
    """A file system of 24 MB."""

    def submit(self, name: str, *, tmpfs: bool = False, hold: bool = False) -> Training:
        """Submits a job that asks to be watched; it waits for nothing.

        Args:
            name: of its directory; unique.
            tmpfs: its checkpoints are on the small file system.
            hold: it is held, until `scontrol release`.
        """
        directory = self.lab.root / name
        directory.mkdir()
        checkpoints = self.small / name if tmpfs else directory / "checkpoints"
        checkpoints.mkdir()
        if tmpfs:
            (directory / "checkpoints").symlink_to(checkpoints)
        script = JOB.format(
            root=ROOT, bad=self.switches / "bad", python=self.python, training=TRAINING, dir=directory,
            step_time=STEP_SECONDS, ports=os.getpid() % 50 * 140,
        )  # fmt: skip
        comment = {"relight": {"checkpoints": str(checkpoints), "policy": "faults"}}
        job = self.lab.slurm.sbatch(
            script, "-N", str(NODES_OF_A_JOB), "--ntasks-per-node=1", "--cpus-per-task=16", "--mem=1500M",
            "-o", str(directory / "train.log"), "--comment", json.dumps(comment, separators=(",", ":")),
            *(["--hold"] if hold else []),
        )  # fmt: skip
        return Training(self.lab, job, directory)

    def tidy(self, training: Training, nodes: tuple[str, ...]) -> None:
        """Ends the job, and makes these nodes as good as new."""
        slurm = self.lab.slurm
        slurm.run("scancel", training.job_id, check=False)
        for node in nodes:
            self.switch_off(node)
            slurm.thaw_node(node)
            slurm.restore_node(node)
            if "DRAIN" in slurm.node_state(node) or "DOWN" in slurm.node_state(node):
                slurm.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
        slurm.wait_job(training.job_id, {"CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", ""})
        shutil.rmtree((training.dir / "checkpoints").resolve(), ignore_errors=True)

    def switch(self, kind: str, node: str) -> Path:
        """The file that makes this node's prolog fail (`prolog`), or the node bad for a job (`bad.JOB`)."""
        return self.switches / f"{kind}.{node}"

    def switch_off(self, node: str) -> None:
        """The node is well again; a bad one was bad for one job alone."""
        self.switch("prolog", node).unlink(missing_ok=True)


@contextlib.contextmanager
def _small_file_system(at: Path) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", at], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


@contextlib.contextmanager
def open_stage(scratch: Path, python: str) -> Iterator[Stage]:
    """Starts everything, and ends it again.

    Args:
        scratch: an empty directory.
        python: the interpreter that has PyTorch.
    """
    switches, small = scratch / "switches", scratch / "small"
    switches.mkdir()
    small.mkdir()
    prolog = scratch / "prolog.sh"
    prolog.write_text(f'#!/bin/sh\ntest ! -e "{switches}/prolog.$SLURMD_NODENAME"\n')
    prolog.chmod(0o755)
    conf = (
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        f"Prolog={prolog}",
        "JobAcctGatherFrequency=1",
        "JobAcctGatherParams=OverMemoryKill",
        "PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP",
    )
    with (
        _small_file_system(small),  # before the nodes, which have mount namespaces of their own
        SlurmCluster(
            nodes=NODES, slurmd_timeout=SLURMD_TIMEOUT, message_timeout=2, gather="linux",
            extra_conf="\n".join(conf),
        ) as slurm,
        Lab(scratch, slurm, name="faults", top=TOP, more=MORE) as lab,
    ):  # fmt: skip
        yield Stage(lab, python, switches, small)
