"""How long a run is down after a fault, by who looks after it.

All strategies share what nobody can save: the start of the job itself (`Setting.startup`: processes,
communicators, compilation, loading the checkpoint), and a person for silent corruption.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.ettr import published
from bench.ettr.measured import Recovery
from bench.ettr.published import Fault

Seconds = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """What all strategies share; seconds."""

    startup: float = 5 * published.MINUTE
    """From a running job to its first new step. An assumption, of the order that Kokolis considers."""
    checkpoint_every: float = 30 * published.MINUTE
    checkpoint_takes: float = 0.0
    """How long a checkpoint stops training: with asynchronous saving, hardly at all."""
    hang_floor: float = 60.0
    """relight's shipped floor for a hang; measurements are taken with a lower one."""
    measured_hang_floor: float = 4.0
    """The floor that hangs were measured with."""


@dataclass(frozen=True)
class Struck:
    """Faults of a simulation, one an entry."""

    kind: NDArray[np.int64]
    """Index into `KINDS`."""
    persists: NDArray[np.bool_]
    """A restart on the same nodes fails again."""

    def __len__(self) -> int:
        return len(self.kind)

    def of(self, fault: Fault) -> NDArray[np.bool_]:
        """Which of them are of this kind."""
        return np.equal(self.kind, KINDS.index(fault))


KINDS = tuple(Fault)
Strategy = Callable[[Struck, np.random.Generator], Seconds]


def strike(count: int, rng: np.random.Generator) -> Struck:
    """Draws faults from the published mix."""
    weights = np.array([n for _, n, _, _ in published.LLAMA_3], dtype=float)
    causes = rng.choice(len(weights), size=count, p=weights / weights.sum())
    kinds = np.array([KINDS.index(fault) for _, _, fault, _ in published.LLAMA_3])
    hardware = np.array([broken for _, _, _, broken in published.LLAMA_3])
    persists = hardware[causes] & (rng.random(count) >= published.TRANSIENT)
    return Struck(kinds[causes], persists)


def person(setting: Setting) -> Strategy:
    """A watchdog of ten minutes ends a hang; a person restarts the run, on good nodes."""

    def down(struck: Struck, rng: np.random.Generator) -> Seconds:
        took = np.full(len(struck), published.PERSON)
        took[struck.of(Fault.HANG)] += published.NCCL_WATCHDOG
        return took

    return down


def requeue(setting: Setting) -> Strategy:
    """Slurm requeues what fails, and excludes no node: a fault that persists fails again, and takes a person.

    A lost node is noticed by Slurm and not given again. The job must be set up for it (`--requeue`, and
    RequeueExit or a script that requeues itself): by default Slurm requeues after a lost node only.
    """

    def down(struck: Struck, rng: np.random.Generator) -> Seconds:
        took = np.full(len(struck), published.REQUEUE_DELAY + setting.startup)
        took[struck.of(Fault.HANG)] += published.NCCL_WATCHDOG
        took[struck.of(Fault.NODE_LOSS)] += published.SLURMD_TIMEOUT
        again = struck.persists & ~struck.of(Fault.NODE_LOSS)
        took[again] += published.PERSON
        took[struck.of(Fault.SILENT)] = published.PERSON
        return took

    return down


def relight(setting: Setting, measured: Sequence[Recovery]) -> Strategy:
    """relight, with recoveries drawn from the measured ones.

    A recovery that did not resume when it was measured takes a person here. A hang is noticed after the
    shipped floor; a lost node only once Slurm has given it up (in the measurements Slurm did so within
    seconds). Whether the node of a fault that persists is known is drawn from a published share; where it is
    not, the restart fails again and takes a person.
    """
    by_kind = {fault: [one for one in measured if one.fault is fault] for fault in KINDS}

    def down(struck: Struck, rng: np.random.Generator) -> Seconds:
        took = np.full(len(struck), published.PERSON)
        for fault, runs in by_kind.items():
            which = np.flatnonzero(struck.of(fault))
            if not runs or fault is Fault.SILENT or not len(which):
                continue
            times = np.array([_took(one, setting) for one in runs])
            took[which] = times[rng.integers(len(times), size=len(which))]
        unknown = struck.persists & ~struck.of(Fault.NODE_LOSS) & (rng.random(len(struck)) >= published.NAMED)
        took[unknown & ~struck.of(Fault.SILENT)] += published.PERSON
        return took

    return down


def _took(one: Recovery, setting: Setting) -> float:
    """From the fault to the first new step."""
    if not one.resumed:
        return published.PERSON
    noticed = one.detected
    if one.fault is Fault.HANG:
        noticed += setting.hang_floor - setting.measured_hang_floor
    if one.fault is Fault.NODE_LOSS:
        noticed += published.SLURMD_TIMEOUT
    return noticed + one.until_running + setting.startup
