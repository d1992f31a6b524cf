"""The faults that `relight simulate` injects, and what relight should make of each. Pure."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from relight.contracts import Cause, Diagnosis, Policy, Symptom


class SimulatedFault(StrEnum):
    """What goes wrong on purpose; all of it only in a small job of relight's own."""

    EXCEPTION = "exception"
    SEGFAULT = "segfault"
    SIGKILL = "sigkill"
    CUDA = "cuda"
    OOM = "oom"
    DISK_FULL = "disk-full"
    NAN = "nan"
    HANG = "hang"
    PAUSE = "pause"


SAYS = {
    SimulatedFault.EXCEPTION: "a traceback of user code",
    SimulatedFault.SEGFAULT: "a rank dies by a segmentation fault",
    SimulatedFault.SIGKILL: "a rank is killed, without a word of its own",
    SimulatedFault.CUDA: "the traceback of an uncorrectable ECC error of a GPU",
    SimulatedFault.OOM: "the traceback of a GPU that is out of memory",
    SimulatedFault.DISK_FULL: "the traceback of a full file system",
    SimulatedFault.NAN: "the loss becomes NaN",
    SimulatedFault.HANG: "a rank stops, and the others wait for it",
    SimulatedFault.PAUSE: "the same, but it goes on soon: nothing should be noticed",
}
"""What each does, for people."""


@dataclass(frozen=True)
class Expected:
    """What relight should say of a fault."""

    symptom: Symptom
    """NONE: it should say nothing."""
    causes: frozenset[Cause] = frozenset()
    """One of these; empty: any, since nothing in the job's log tells why."""
    names_node: bool = False
    """It should suspect the node on which it happened."""


EXPECTED = {
    SimulatedFault.EXCEPTION: Expected(Symptom.CRASH, frozenset({Cause.USER_CODE})),
    SimulatedFault.SEGFAULT: Expected(Symptom.CRASH),
    SimulatedFault.SIGKILL: Expected(Symptom.CRASH),
    SimulatedFault.CUDA: Expected(Symptom.CRASH, frozenset({Cause.GPU_MEMORY_ECC}), names_node=True),
    SimulatedFault.OOM: Expected(Symptom.CRASH, frozenset({Cause.GPU_OOM})),
    SimulatedFault.DISK_FULL: Expected(Symptom.CRASH, frozenset({Cause.STORAGE})),
    SimulatedFault.NAN: Expected(Symptom.DEGRADED, frozenset({Cause.NUMERICAL})),
    SimulatedFault.HANG: Expected(Symptom.HANG),
    SimulatedFault.PAUSE: Expected(Symptom.NONE),
}

LONGEST_PAUSE = timedelta(seconds=20)


def kind_of(fault: SimulatedFault, policy: Policy) -> str:
    """The fault as the training program takes it. A pause is shorter than what the policy calls a hang."""
    if fault is not SimulatedFault.PAUSE:
        return fault.value
    return f"pause:{min(LONGEST_PAUSE, policy.hang_floor / 2).total_seconds():g}"


def judge(fault: SimulatedFault, diagnosis: Diagnosis | None, node: str) -> str:
    """What is wrong with a diagnosis; empty: it is right.

    Args:
        fault: what was injected.
        diagnosis: what relight says; None: it says nothing.
        node: where it was injected.
    """
    wanted = EXPECTED[fault]
    if diagnosis is None:
        return "" if wanted.symptom is Symptom.NONE else "missed: relight noticed nothing"
    if wanted.symptom is Symptom.NONE:
        return f"a false alarm: {diagnosis.symptom.value}, though training only paused"
    if diagnosis.symptom is not wanted.symptom:
        return f"the symptom is {wanted.symptom.value}, and not {diagnosis.symptom.value}"
    if wanted.causes and diagnosis.cause not in wanted.causes:
        known = " or ".join(sorted(cause.value for cause in wanted.causes))
        return f"the cause is {known}, and not {diagnosis.cause.value}"
    if wanted.names_node and node not in diagnosis.nodes:
        return f"it does not suspect {node}, where it happened"
    if strange := [name for name in diagnosis.nodes if name != node]:
        return f"it suspects {', '.join(strange)}, but it happened on {node}"
    return ""
