"""Configuration files of the test cluster."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Shape:
    """What the cluster is like. Times in seconds."""

    nodes: int = 4
    gpus_per_node: int = 0
    cpus_per_node: int = 16
    memory_mb: int = 64000
    accounting: bool = False
    slurmd_timeout: int = 300
    """A node that answered nothing for so long is DOWN (Slurm's default)."""
    message_timeout: int = 10
    kill_wait: int = 2
    min_job_age: int = 300
    """slurmctld forgets an ended job after this (Slurm's default)."""
    cred_expire: int = 5
    """A requeued job may start one second after this; Slurm's default is 120."""
    scheduling: str = "batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1"
    gather: str = "none"
    """`linux`: slurmstepd samples the memory of tasks."""
    extra_conf: str = ""
    """Further lines of slurm.conf."""

    @property
    def node_names(self) -> tuple[str, ...]:
        """node01, node02, ..."""
        width = max(2, len(str(self.nodes)))
        return tuple(f"node{i:0{width}}" for i in range(1, self.nodes + 1))

    @property
    def node_range(self) -> str:
        """All nodes in Slurm's notation: node[01-04]."""
        first, last = self.node_names[0], self.node_names[-1]
        return first if first == last else f"node[{first[4:]}-{last[4:]}]"


@dataclass(frozen=True)
class Ports:
    """Neighbouring TCP ports on 127.0.0.1, from `base`."""

    base: int

    @property
    def controller(self) -> int:
        """The port of slurmctld."""
        return self.base

    @property
    def database(self) -> int:
        """The port of slurmdbd."""
        return self.base + 1

    def nodes(self, count: int) -> str:
        """The ports of the slurmds, in Slurm's notation."""
        first = self.base + 2
        return str(first) if count == 1 else f"[{first}-{first + count - 1}]"


def slurm_conf(shape: Shape, root: Path, ports: Ports, name: str, host: str, user: str) -> str:
    """slurm.conf(5) of a cluster whose nodes are all processes on this machine."""
    lines = [
        f"ClusterName={name}",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={ports.controller}",
        f"SlurmUser={user}",
        f"SlurmdUser={user}",
        "AuthType=auth/munge",
        f"AuthInfo=socket={root}/munge/socket,cred_expire={shape.cred_expire}",
        "CredType=cred/munge",
        f"StateSaveLocation={root}/state",
        f"SlurmdSpoolDir={root}/spool/%n",
        f"SlurmctldPidFile={root}/run/slurmctld.pid",
        f"SlurmdPidFile={root}/run/slurmd.%n.pid",
        f"SlurmctldLogFile={root}/log/slurmctld.log",
        f"SlurmdLogFile={root}/log/slurmd.%n.log",
        "DebugFlags=Protocol",  # slurmctld logs each request that it receives: see SlurmCluster.mutations
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        f"JobAcctGatherType=jobacct_gather/{shape.gather}",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core_Memory",
        "DefMemPerCPU=1000",
        "MpiDefault=none",
        "SlurmdParameters=config_overrides",  # the nodes claim more cores than this machine has
        "ReturnToService=1",
        "JobRequeue=1",
        f"SlurmdTimeout={shape.slurmd_timeout}",
        f"KillWait={shape.kill_wait}",
        f"MinJobAge={shape.min_job_age}",
        f"MessageTimeout={shape.message_timeout}",
        f"TCPTimeout={min(2, shape.message_timeout)}",
        "SchedulerType=sched/backfill",
        f"SchedulerParameters={shape.scheduling}",
    ]
    gres = ""
    if shape.gpus_per_node:
        gres = f"Gres=gpu:{shape.gpus_per_node} "
        lines.append("GresTypes=gpu")
        if shape.accounting:  # without slurmdbd this line is fatal to slurmctld
            lines.append("AccountingStorageTRES=gres/gpu")
    if shape.accounting:
        lines += [
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageHost=127.0.0.1",
            f"AccountingStoragePort={ports.database}",
            "AccountingStoreFlags=job_comment",
            f"AccountingStoragePass={root}/munge/socket",  # the munge socket of the slurmdbd connection
        ]
    if shape.extra_conf:
        lines.append(shape.extra_conf.rstrip())
    lines.append(
        f"NodeName={shape.node_range} NodeHostname=localhost NodeAddr=127.0.0.1 "
        f"Port={ports.nodes(shape.nodes)} "
        f"CPUs={shape.cpus_per_node} RealMemory={shape.memory_mb} {gres}State=UNKNOWN"
    )
    lines.append("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


def slurmdbd_conf(root: Path, ports: Ports, host: str, user: str) -> str:
    """slurmdbd.conf(5)."""
    lines = [
        "AuthType=auth/munge",
        f"AuthInfo=socket={root}/munge/socket",
        f"DbdHost={host}",
        "DbdAddr=127.0.0.1",
        f"DbdPort={ports.database}",
        f"SlurmUser={user}",
        f"LogFile={root}/log/slurmdbd.log",
        f"PidFile={root}/run/slurmdbd.pid",
        "StorageType=accounting_storage/mysql",
        "StorageHost=localhost",
        f"StorageUser={user}",
        "StorageLoc=slurm_acct",
    ]
    return "\n".join(lines) + "\n"


def gres_conf(shape: Shape, root: Path) -> str:
    """gres.conf(5): GPUs are links to /dev/null (no character device, no CUDA_VISIBLE_DEVICES)."""
    last = shape.gpus_per_node - 1
    files = f"nvidia[0-{last}]" if last else "nvidia0"
    return f"NodeName={shape.node_range} Name=gpu File={root}/dev/{files}\n"
