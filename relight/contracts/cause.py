"""Why training fails."""

from enum import StrEnum


class Cause(StrEnum):
    """Why it happened."""

    GPU_HARDWARE = "gpu_hardware"
    GPU_MEMORY_ECC = "gpu_memory_ecc"
    GPU_FALLEN_OFF_BUS = "gpu_fallen_off_bus"
    NVLINK = "nvlink"
    NETWORK_FABRIC = "network_fabric"
    NODE_FAILURE = "node_failure"
    HOST_OOM = "host_oom"
    GPU_OOM = "gpu_oom"
    STORAGE = "storage"
    CHECKPOINT_CORRUPT = "checkpoint_corrupt"
    USER_CODE = "user_code"
    NUMERICAL = "numerical"
    SOFTWARE_ENV = "software_env"
    PREEMPTION = "preemption"
    TIME_LIMIT = "time_limit"
    USER_CANCEL = "user_cancel"
    SCHEDULER = "scheduler"
    DATA_LOADER = "data_loader"
    UNKNOWN = "unknown"
    HEALTHY = "healthy"


GPU_HARDWARE_CAUSES = frozenset(
    {Cause.GPU_HARDWARE, Cause.GPU_MEMORY_ECC, Cause.GPU_FALLEN_OFF_BUS, Cause.NVLINK}
)
"""A GPU or its link is broken: the next job on that node would meet it too."""
