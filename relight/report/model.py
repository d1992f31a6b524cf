"""What training efficiency to expect, and how often to save checkpoints: published formulas, nothing else.

The effective training time ratio (ETTR) is the part of a run's time in which it gained steps that it kept:

    E[ETTR] = (1 - N r (u + c / 2)) / (1 + w / c)

A. Kokolis, M. Kuchnik, J. Hoffman et al., "Revisiting Reliability in Large-Scale Machine Learning Research
Clusters", HPCA 2025, arXiv:2410.21680v2: N nodes, r faults per node and day, u the time to start again, c the
time from one checkpoint to the next, w how long training stands still while one is written. The authors found
it within 5 % of their simulation, for up to 8,000 GPUs, c of about an hour and u of 5 to 20 minutes.
"""

from datetime import timedelta
from math import sqrt

DAY = timedelta(days=1)
NOTHING = timedelta(0)


def expected_ettr(faults_per_day: float, restart: timedelta, interval: timedelta, write: timedelta) -> float:
    """What is expected of a run: a fraction, never below 0.

    Args:
        faults_per_day: of the whole run (N r); not negative.
        restart: from a fault until the new attempt trains (u).
        interval: from one checkpoint to the next (c); 0: nothing is ever trained twice.
        write: how long training stands still for one checkpoint (w).
    """
    lost = lost_share(faults_per_day, restart, interval)
    overhead = write / interval if interval else 0.0
    return max(0.0, (1 - lost) / (1 + overhead))


def lost_share(faults_per_day: float, restart: timedelta, interval: timedelta) -> float:
    """N r (u + c / 2): the formula takes faults for rare, so it says little where this is not small."""
    return faults_per_day * ((restart + interval / 2) / DAY)


def young(write: timedelta, between_faults: timedelta) -> timedelta:
    """The time between checkpoints that wastes least: sqrt(2 w M), also the one that Kokolis et al. give.

    J. W. Young, "A first order approximation to the optimum checkpoint interval", Communications of the ACM
    17 (1974), 530-531.
    """
    return timedelta(seconds=sqrt(2 * write.total_seconds() * between_faults.total_seconds()))


def daly(write: timedelta, between_faults: timedelta) -> timedelta:
    """The same to a higher order, for faults that are not rare against writing; writing itself not counted.

    J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
    Generation Computer Systems 22 (2006), 303-312.
    """
    if write >= 2 * between_faults:
        return between_faults
    if not write:
        return NOTHING
    ratio = write / (2 * between_faults)
    return young(write, between_faults) * (1 + sqrt(ratio) / 3 + ratio / 9) - write
