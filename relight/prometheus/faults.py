"""What exporters say went wrong with GPUs. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from relight.contracts import Cause, Role, Symptom
from relight.diagnosis.metrics import FAR_BELOW, HARDWARE_SLOWDOWN
from relight.prometheus.reading import Reading

QUERIES = ("ecc", "remap_failed", "nvlink", "xid", "gone", "present", "held")
CLOCKS = ("clock",)
"""Asked for only when a GPU is held down: its answer is one number for every GPU there is."""
LEAST_PEERS = 4
"""GPUs of the same job that a throttled one is compared with, at least."""


@dataclass(frozen=True)
class Fault:
    """One GPU, and what is wrong with it."""

    name: str
    """The query that showed it."""
    node: str
    gpu: str
    cause: Cause
    symptom: Symptom
    role: Role
    hold_out: bool
    says: str
    query: str = ""


@dataclass(frozen=True)
class _Kind:
    cause: Cause
    symptom: Symptom
    role: Role
    hold_out: bool
    says: str


_KINDS = {
    "ecc": _Kind(Cause.GPU_MEMORY_ECC, Symptom.CRASH, Role.ROOT, True, "{n} more uncorrected memory errors"),
    "remap_failed": _Kind(
        Cause.GPU_MEMORY_ECC, Symptom.CRASH, Role.ROOT, True, "broken memory could not be mapped out"
    ),
    "nvlink": _Kind(Cause.NVLINK, Symptom.DEGRADED, Role.CONTEXT, False, "{n} more NVLink errors"),
}


def faults(reading: Reading, nodes: Sequence[str]) -> list[Fault]:
    """What is wrong with the GPUs of these nodes. What was not answered is unknown, not healthy.

    A GPU whose series vanished is gone only where its node's other GPUs still report: otherwise it is the
    exporter, or the network, that is silent.
    """
    found = []
    for name, kind in _KINDS.items():
        for (node, gpu), number in sorted(reading.of(name, nodes).items()):
            says = kind.says.format(n=max(1, round(number)))
            found.append(_fault(reading, name, node, gpu, kind, says))
    reporting = {node for node, _ in reading.of("present", nodes)}
    gone = _Kind(Cause.GPU_FALLEN_OFF_BUS, Symptom.CRASH, Role.ROOT, True, "")
    for node, gpu in sorted(reading.of("gone", nodes)):
        if node in reporting:
            says = "it is reported no more, while other GPUs of its node are"
            found.append(_fault(reading, "gone", node, gpu, gone, says))
    return found


def throttled(reading: Reading, nodes: Sequence[str]) -> list[Fault]:
    """GPUs that their hardware holds down, far below the other GPUs of the same job at the same time."""
    held, clocks = reading.of("held", nodes), reading.of("clock", nodes)
    found = []
    for (node, gpu), reasons in sorted(held.items()):
        others = [clock for at, clock in clocks.items() if at != (node, gpu)]
        clock = clocks.get((node, gpu))
        if clock is None or len(others) < LEAST_PEERS or not int(reasons) & HARDWARE_SLOWDOWN:
            continue
        usual = median(others)
        if clock < FAR_BELOW * usual:
            kind = _Kind(Cause.GPU_HARDWARE, Symptom.SLOW, Role.CONTEXT, False, "")
            says = (
                f"held down to {clock:.0f} MHz, while {len(others)} other GPUs of the job run at {usual:.0f}"
            )
            found.append(_fault(reading, "held", node, gpu, kind, says))
    return found


def speaks_for(fault: Fault, suspected: Cause) -> bool:
    """The fault confirms a suspicion of this cause against its node.

    A GPU that is broken confirms any suspicion of its node's hardware. What healthy hardware shows too, now
    and then, confirms only its own kind: a few NVLink replays make no memory error.
    """
    return fault.role is Role.ROOT or fault.cause is suspected


def xids(reading: Reading, nodes: Sequence[str]) -> list[tuple[str, str, int]]:
    """Node, GPU and code of the Xids that came within the time that was asked about."""
    return [(node, gpu, int(code)) for (node, gpu), code in sorted(reading.of("xid", nodes).items())]


def _fault(reading: Reading, name: str, node: str, gpu: str, kind: _Kind, says: str) -> Fault:
    return Fault(
        name=name,
        node=node,
        gpu=gpu,
        cause=kind.cause,
        symptom=kind.symptom,
        role=kind.role,
        hold_out=kind.hold_out,
        says=f"GPU {gpu} of {node}: {says}",
        query=reading.texts.get(name, ""),
    )
