"""What one GPU says of its health at one moment. None is what it does not say: unknown, never healthy."""

from dataclasses import dataclass

import pynvml

from sensor.node.nvml import Gpu, GpuLost, ResetRequired, Session

MAX_LINKS = 36
_SLOWED = (
    pynvml.nvmlClocksEventReasonHwSlowdown
    | pynvml.nvmlClocksEventReasonSwThermalSlowdown
    | pynvml.nvmlClocksEventReasonHwThermalSlowdown
    | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
)


@dataclass(frozen=True)
class GpuReading:
    """One look at one GPU."""

    pci: str
    index: int = -1
    uuid: str = ""
    lost: bool = False
    """The driver has lost it."""
    reset_required: bool = False
    ecc_uncorrected: int | None = None
    """Since the driver was loaded."""
    ecc_corrected: int | None = None
    ecc_uncorrected_ever: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retired_pending: bool | None = None
    """GPUs before Ampere: a memory page is to be retired at the next reset."""
    links: tuple[bool | None, ...] = ()
    """Which NVLinks are up, by number."""
    link_recoveries: int | None = None
    pcie_width: int | None = None
    pcie_width_most: int | None = None
    pcie_replays: int | None = None
    clocks_held: int | None = None
    """Bits of the reasons for which heat, power or the board hold the clocks down; 0: none of them does."""
    temperature: int | None = None
    """Degrees Celsius."""
    power: float | None = None
    """Watts."""
    recovery_action: int | None = None
    """What the driver says that this GPU needs (`NVML_GPU_RECOVERY_ACTION_...`)."""


def read_gpu(session: Session, gpu: Gpu, links: int | None) -> GpuReading:
    """Asks a GPU for everything.

    Args:
        session: the session that the GPU belongs to.
        gpu: which one.
        links: how many NVLinks it has; None: to be found out.

    Raises:
        SessionOver: nothing can be asked any more.
    """
    try:
        return _read(session, gpu, links)
    except GpuLost:
        return GpuReading(gpu.pci, gpu.index, gpu.uuid, lost=True)
    except ResetRequired:
        return GpuReading(gpu.pci, gpu.index, gpu.uuid, reset_required=True)


def _read(session: Session, gpu: Gpu, links: int | None) -> GpuReading:
    def ask(name: str, *args: int) -> int | None:
        value = session.ask(name, *args, gpu=gpu)
        return None if value is None else int(value)

    uncorrected, corrected = (
        pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
        pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
    )
    rows = session.ask("nvmlDeviceGetRemappedRows", gpu=gpu)
    retired = ask("nvmlDeviceGetRetiredPagesPendingStatus") if rows is None else None
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons")
    if reasons is None:  # drivers before 535 know them by the older name only
        reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons")
    milliwatts = ask("nvmlDeviceGetPowerUsage")
    return GpuReading(
        gpu.pci,
        gpu.index,
        gpu.uuid,
        ecc_uncorrected=ask("nvmlDeviceGetTotalEccErrors", uncorrected, pynvml.NVML_VOLATILE_ECC),
        ecc_corrected=ask("nvmlDeviceGetTotalEccErrors", corrected, pynvml.NVML_VOLATILE_ECC),
        ecc_uncorrected_ever=ask("nvmlDeviceGetTotalEccErrors", uncorrected, pynvml.NVML_AGGREGATE_ECC),
        remap_pending=None if rows is None else bool(rows[2]),
        remap_failed=None if rows is None else bool(rows[3]),
        retired_pending=None if retired is None else bool(retired),
        links=_links(session, gpu, links),
        link_recoveries=session.field(gpu, pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL),
        pcie_width=ask("nvmlDeviceGetCurrPcieLinkWidth"),
        pcie_width_most=ask("nvmlDeviceGetMaxPcieLinkWidth"),
        pcie_replays=ask("nvmlDeviceGetPcieReplayCounter"),
        clocks_held=None if reasons is None else reasons & _SLOWED,
        temperature=ask("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
        power=None if milliwatts is None else milliwatts / 1000,
        recovery_action=session.field(gpu, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION),
    )


def _links(session: Session, gpu: Gpu, known: int | None) -> tuple[bool | None, ...]:
    states: list[bool | None] = []
    for link in range(MAX_LINKS if known is None else known):
        state = session.ask("nvmlDeviceGetNvLinkState", link, gpu=gpu)
        if state is None and known is None:
            break  # beyond the last one
        states.append(None if state is None else bool(state))
    return tuple(states)
