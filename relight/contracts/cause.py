"""Why training fails."""

from enum import StrEnum


class Cause(StrEnum):
    """Why it happened."""

    GPU_HARDWARE = "gpu_hardware"
    """A GPU, its driver or its firmware failed."""
    GPU_MEMORY_ECC = "gpu_memory_ecc"
    """An uncorrectable error in a GPU's memory, or a row that could not be mapped out."""
    GPU_FALLEN_OFF_BUS = "gpu_fallen_off_bus"
    """The host no longer reaches a GPU (Xid 79)."""
    NVLINK = "nvlink"
    """A link between GPUs, or an NVSwitch."""
    NETWORK_FABRIC = "network_fabric"
    """InfiniBand, RoCE or Ethernet between nodes."""
    NODE_FAILURE = "node_failure"
    """The scheduler lost the node, or it went down."""
    HOST_OOM = "host_oom"
    """The node's memory, or the job's share of it, was used up."""
    GPU_OOM = "gpu_oom"
    """A GPU's memory was used up by the program."""
    STORAGE = "storage"
    """A file system is full, over quota, read-only, stale or does not answer."""
    CHECKPOINT_CORRUPT = "checkpoint_corrupt"
    """A checkpoint cannot be loaded."""
    USER_CODE = "user_code"
    """An exception of the training program."""
    NUMERICAL = "numerical"
    """The loss is no number, jumped and stays there, or steps are skipped for ever."""
    SOFTWARE_ENV = "software_env"
    """Something that the program needs is missing or of the wrong version: a library, a driver, a package."""
    PREEMPTION = "preemption"
    """The scheduler took the nodes for another job."""
    TIME_LIMIT = "time_limit"
    """The job reached its time limit."""
    USER_CANCEL = "user_cancel"
    """Somebody cancelled the job."""
    SCHEDULER = "scheduler"
    """The scheduler could not launch the job or one of its steps."""
    DATA_LOADER = "data_loader"
    """Reading or preparing the training data."""
    UNKNOWN = "unknown"
    """Nothing says why."""
    HEALTHY = "healthy"
    """Nothing failed."""


GPU_HARDWARE_CAUSES = frozenset(
    {Cause.GPU_HARDWARE, Cause.GPU_MEMORY_ECC, Cause.GPU_FALLEN_OFF_BUS, Cause.NVLINK}
)
"""A GPU or its link is broken: the next job on that node would meet it too."""
