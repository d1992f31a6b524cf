"""Which runs are still to be made, and in which order."""

import random
from collections.abc import Iterable, Sequence

from bench.faults.record import Run

Due = tuple[str, int]
"""The name of a scenario, and the number of the run."""


def due(names: Sequence[str], runs: range, seed: int, made: Iterable[Run]) -> list[Due]:
    """What is left to run, round by round, each round in an order of its own that `seed` decides.

    Args:
        names: of the scenarios.
        runs: their numbers, of each scenario.
        seed: the same one gives the same order.
        made: what was run before. A run that failed by the suite's own fault is made again.
    """
    done = {(run.scenario, run.number) for run in made if not run.problem}
    left = []
    for number in runs:
        order = list(names)
        random.Random(f"{seed} {number}").shuffle(order)
        left += [(name, number) for name in order if (name, number) not in done]
    return left
