"""How a cost grows with the number of jobs: a power law, and a line, by least squares. Pure."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

FLAT, LINEAR = 0.15, 1.15
"""Exponents up to which growth is called none, and linear."""


@dataclass(frozen=True)
class Fit:
    """`cost = base + slope * jobs`, and `cost ~ jobs ** exponent`."""

    exponent: float | None
    """None: not enough positive points for it."""
    base: float
    slope: float
    r2: float
    """Of the line: the share of the variance that it explains."""

    @property
    def words(self) -> str:
        """How it grows."""
        if self.exponent is None:
            return "unknown"
        if self.exponent <= FLAT:
            return "does not grow"
        if self.exponent < 1 - (LINEAR - 1):
            return "grows slower than the jobs"
        return "linear" if self.exponent <= LINEAR else "grows faster than the jobs"

    def as_dict(self) -> dict[str, Any]:
        """For a result file."""
        return {**asdict(self), "words": self.words}


def fit(jobs: Sequence[float], cost: Sequence[float]) -> Fit:
    """Fits both; the power law in logarithms, so that small numbers of jobs count as much as large ones.

    Raises:
        ValueError: fewer than two different numbers of jobs.
    """
    if len(set(jobs)) < 2 or len(jobs) != len(cost):
        raise ValueError("growth needs a cost at two different numbers of jobs, at least")
    slope, base = _line(jobs, cost)
    mean = sum(cost) / len(cost)
    spread = sum((c - mean) ** 2 for c in cost)
    off = sum((c - base - slope * n) ** 2 for n, c in zip(jobs, cost, strict=True))
    positive = [(math.log(n), math.log(c)) for n, c in zip(jobs, cost, strict=True) if n > 0 and c > 0]
    exponent = None
    if len({n for n, _ in positive}) >= 2:
        exponent, _ = _line(*zip(*positive, strict=True))
    return Fit(exponent, base, slope, 1 - off / spread if spread else 1.0)


def _line(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    """Slope and base."""
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
    return slope, y - slope * x


def quantile(values: Sequence[float], q: float) -> float:
    """The value at rank ceil(q n): of few values no quantile is made up between two of them.

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("no value was measured")
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]
