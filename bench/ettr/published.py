"""Failure rates, failure mixes and reaction times as others published them; each number with its source.

Sources, by the names used below:

- Kokolis: Kokolis et al., *Revisiting Reliability in Large-Scale Machine Learning Research Clusters*, HPCA
2025,
  arXiv 2410.21680. Eleven months of two clusters with 16,000 and 8,000 A100.
- Llama 3: *The Llama 3 Herd of Models*, arXiv 2407.21783, table 5. 54 days on up to 16,384 H100: 419
unexpected
  interruptions.
- Unicron: He et al., *Unicron: Economizing Self-Healing LLM Training at Scale*, arXiv 2401.00134.
- L4: Jiang et al., *L4: Diagnosing Large-scale LLM Training Failures via Automated Log Analysis*, arXiv
2503.20263.
- Slurm: slurm.conf(5). PyTorch: documentation of `torch.distributed.init_process_group`.
"""

from enum import StrEnum

MINUTE = 60.0
DAY = 86_400.0
GPUS_PER_NODE = 8


class Fault(StrEnum):
    """How a fault shows to whoever has to notice it."""

    CRASH = "crash"
    """A rank ends with an error, and the job fails."""
    HANG = "hang"
    """No rank ends and no step comes."""
    NODE_LOSS = "node-loss"
    """A node is gone."""
    SILENT = "silent"
    """Training goes on, wrongly."""


RATES = {"RSC-1": 6.50, "RSC-2": 2.34, "Llama 3": 419 / 54 / 2048 * 1000}
"""Failures per 1,000 node-days of large jobs: two of Kokolis, and Llama 3 (its 419 interruptions over 54 days
and 2,048 nodes). Kokolis' failures of small jobs are three times as frequent; the two must not be mixed."""

LLAMA_3 = (
    ("faulty GPU", 148, Fault.CRASH, True),
    ("GPU HBM3 memory", 72, Fault.CRASH, True),
    ("software bug", 54, Fault.CRASH, False),
    ("network switch or cable", 35, Fault.HANG, True),
    ("host maintenance", 32, Fault.NODE_LOSS, False),
    ("GPU SRAM memory", 19, Fault.CRASH, True),
    ("GPU system processor", 17, Fault.CRASH, True),
    ("NIC", 7, Fault.HANG, True),
    ("NCCL watchdog timeout", 7, Fault.HANG, False),
    ("silent data corruption", 6, Fault.SILENT, True),
    ("GPU thermal interface and sensor", 6, Fault.CRASH, True),
    ("SSD", 3, Fault.HANG, True),
    ("power supply", 3, Fault.NODE_LOSS, True),
    ("server chassis", 2, Fault.NODE_LOSS, True),
    ("IO expansion board", 2, Fault.NODE_LOSS, True),
    ("dependency", 2, Fault.CRASH, False),
    ("CPU", 2, Fault.NODE_LOSS, True),
    ("system memory", 2, Fault.NODE_LOSS, True),
)
"""Llama 3, table 5: cause and interruptions. How it shows, and whether hardware is broken, is this
benchmark's reading: network, storage and NCCL time-outs hang (12 %, near ByteRobust's 9.9 % of hangs, arXiv
2509.16293), what takes the host away is a lost node, the rest crashes."""

TRANSIENT = 0.73
"""The share of hardware faults after which a restart on the same nodes is enough (Unicron)."""
NAMED = 0.899
"""The share of failures whose logs and metrics tell the cause, and so the node (L4)."""
PERSON = 68 * MINUTE
"""From a failure to training again when people restart a run (Unicron)."""
NCCL_WATCHDOG = 10 * MINUTE
"""Until a collective that hangs is given up (PyTorch, default `timeout` of the NCCL backend)."""
SLURMD_TIMEOUT = 300.0
"""Until Slurm gives up a node that does not answer, and requeues its jobs (Slurm, default
`SlurmdTimeout`)."""
REQUEUE_DELAY = 121.0
"""Until a requeued job may start again: the life of a job's credential (seen on 22.05 and 25.11), which
relight's release lifts."""
