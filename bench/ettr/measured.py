"""Recovery times as they were measured, from the results of `bench.faults` or `bench.recovery`. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.ettr.published import Fault

CRASHES = ("exception", "cuda", "segfault", "sigkill", "host-oom", "xid-48", "xid-94", "xid-13", "bad-node")
SCENARIOS = {
    "crash": Fault.CRASH,
    **dict.fromkeys(CRASHES, Fault.CRASH),
    "hang": Fault.HANG,
    "node-loss": Fault.NODE_LOSS,
    "node-frozen": Fault.NODE_LOSS,
}
"""What the scenarios of `bench.recovery` and `bench.faults` are here; others are no fault of a run in this
sense."""


class Unusable(Exception):
    """A result cannot be used for this. The message says what it lacks."""


@dataclass(frozen=True)
class Recovery:
    """One measured recovery, in seconds."""

    fault: Fault
    resumed: bool
    detected: float = 0.0
    """From the fault."""
    until_running: float = 0.0
    """From detection until the job runs again, on a cluster with free nodes. What follows is its own
    start."""


def recoveries(result: Mapping[str, Any]) -> tuple[Recovery, ...]:
    """The recoveries of a result file of `recovery` or `faults`.

    Raises:
        Unusable: it is of another benchmark, or has no run of a crash, a hang and a lost node each.
    """
    bench = str(result.get("bench"))
    if bench not in {"recovery", "faults"}:
        raise Unusable(f"results of bench.{bench} do not tell how long recoveries take")
    read = _of_faults if bench == "faults" else _of_recovery
    usable = (run for run in result["runs"] if run["scenario"] in SCENARIOS and not run.get("problem"))
    found = tuple(read(run) for run in usable)
    for fault in (Fault.CRASH, Fault.HANG, Fault.NODE_LOSS):
        if not any(one.fault is fault and one.resumed for one in found):
            raise Unusable(f"no run of the result recovers from: {fault.value}")
    return found


def _of_recovery(run: Mapping[str, Any]) -> Recovery:
    fault = SCENARIOS[run["scenario"]]
    if run["outcome"] != "resumed":
        return Recovery(fault, resumed=False)
    return Recovery(fault, True, float(run["detected"]), float(run["acted"]) + float(run["running"]))


def _of_faults(run: Mapping[str, Any]) -> Recovery:
    """The suite tells `added`, relight's part from the fault until the job runs, and `slurm`, Slurm's."""
    fault, seconds = SCENARIOS[run["scenario"]], run["seconds"]
    if not run["verdict"].get("ended_well") or seconds["detected"] is None or seconds["added"] is None:
        return Recovery(fault, resumed=False)
    detected = float(seconds["detected"])
    until_running = float(seconds["added"]) + float(seconds["slurm"] or 0.0) - detected
    return Recovery(fault, True, detected, until_running)
