"""The effective training time ratio: the published closed formula, and a Monte Carlo simulation of a run.

ETTR (Kokolis, arXiv 2410.21680): the time in which training made progress that lasted, as a share of all
time.
"""

from dataclasses import dataclass

import numpy as np

from bench.ettr.strategies import Setting, Strategy, strike

SPARE = 6.0
"""Standard deviations of the number of faults for which faults are drawn."""


def closed_formula(failures: float, down: float, every: float, takes: float = 0.0) -> float:
    """Kokolis' estimate: `(1 - N r_f (u0 + dt/2)) / (1 + w/dt)`.

    To first order in the failures; where they leave little time for training it is too low, or negative.

    Args:
        failures: of the whole run, per second (N r_f).
        down: seconds from a failure to training again (u0).
        every: seconds of training from one checkpoint to the next (dt).
        takes: seconds for which a checkpoint stops training (w).
    """
    return (1 - failures * (down + every / 2)) / (1 + takes / every)


@dataclass(frozen=True)
class Ettr:
    """ETTR over so many simulated runs."""

    mean: float
    low: float
    """The 5th percentile."""
    high: float
    """The 95th."""
    failures: float
    """A run, on average."""
    mean_down: float
    """Seconds, from a fault to training again."""


def simulate(
    failures: float, strategy: Strategy, setting: Setting, *, length: float, runs: int, seed: int
) -> Ettr:
    """Simulates runs of this length.

    Faults come by a Poisson process while the run trains or starts; none comes while it is down, waits for
    somebody to notice, or hangs. After each fault training goes on from the last checkpoint that was
    complete.

    Args:
        failures: of the whole run, per second.
        strategy: how long the run is down.
        setting: what is the same for all strategies.
        length: of a run, seconds.
        runs: how many.
        seed: of the random numbers.
    """
    rng = np.random.default_rng(seed)
    most = failures * length
    count = int(most + SPARE * np.sqrt(most) + SPARE)
    trained = rng.exponential(1 / failures, size=(runs, count))
    struck = strike(runs * count, rng)
    down = strategy(struck, rng).reshape(runs, count)

    cycle = setting.checkpoint_every + setting.checkpoint_takes
    kept = np.floor(trained / cycle) * setting.checkpoint_every
    ends = np.cumsum(trained + down, axis=1)
    begins = ends - trained - down
    if not (ends[:, -1] >= length).all():
        raise AssertionError("too few faults were drawn for the length of the run")
    # What was trained when the time was over counts as it is: nothing struck it.
    last = np.clip(length - begins, 0, trained)
    until_over = last - np.floor(last / cycle) * setting.checkpoint_takes
    whole = begins + trained <= length
    productive = np.where(whole, kept, np.where(begins < length, until_over, 0.0)).sum(axis=1)
    ratios = productive / length
    happened = whole.sum(axis=1)
    return Ettr(
        mean=float(ratios.mean()),
        low=float(np.quantile(ratios, 0.05)),
        high=float(np.quantile(ratios, 0.95)),
        failures=float(happened.mean()),
        mean_down=float(down[whole].mean()) if whole.any() else 0.0,
    )
