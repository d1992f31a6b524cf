"""Recovery times as they were measured, from the results of `bench.faults` or `bench.recovery`. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bench.ettr.published import Fault

PHASES = ("detected", "acted", "running", "productive")


class Unusable(Exception):
    """A result cannot be used for this. The message says what it lacks."""


@dataclass(frozen=True)
class Recovery:
    """One measured recovery: seconds of each phase, from the end of the one before (the first: from the fault)."""

    fault: Fault
    resumed: bool
    detected: float = 0.0
    acted: float = 0.0
    running: float = 0.0
    productive: float = 0.0

    @property
    def without_detection(self) -> float:
        """From detection to the first new progress; the demo's trainer loads its checkpoint at once."""
        return self.acted + self.running + self.productive


def recoveries(result: Mapping[str, Any]) -> tuple[Recovery, ...]:
    """The recoveries of a result file (`bench.results`) of `recovery` or `faults`.

    Raises:
        Unusable: it is of another benchmark, or has no run of a crash, a hang and a lost node each.
    """
    read = {"recovery": _of_recovery, "faults": _of_faults}.get(str(result.get("bench")))
    if read is None:
        raise Unusable(f"results of bench.{result.get('bench')} do not tell how long recoveries take")
    found = tuple(read(result["runs"]))
    for fault in (Fault.CRASH, Fault.HANG, Fault.NODE_LOSS):
        if not any(one.fault is fault and one.resumed for one in found):
            raise Unusable(f"no run of the result recovers from: {fault.value}")
    return found


def _of_recovery(runs: Iterable[Mapping[str, Any]]) -> Iterable[Recovery]:
    for run in runs:
        resumed = run["outcome"] == "resumed"
        times = {phase: float(run[phase]) for phase in PHASES} if resumed else {}
        yield Recovery(Fault(run["scenario"]), resumed, **times)


def _of_faults(runs: Iterable[Mapping[str, Any]]) -> Iterable[Recovery]:
    yield from ()
