"""How long something took, over many recoveries. Pure."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from math import ceil

from relight.contracts import Model
from relight.report.records import NOTHING


class Spread(Model):
    """How long something took, in all the recoveries in which it is known; percentiles by nearest rank."""

    name: str
    count: int
    p50: timedelta
    p95: timedelta
    longest: timedelta
    mean: timedelta


def nearest_rank(values: Sequence[timedelta], share: float) -> timedelta:
    """The smallest value that at least this share of the values does not exceed: always one of them.

    Args:
        values: sorted, and not empty.
        share: above 0, at most 1.
    """
    return values[ceil(share * len(values)) - 1]


def spread(name: str, values: Iterable[timedelta]) -> Spread | None:
    """The values in a few numbers; None: there are none."""
    found = sorted(values)
    if not found:
        return None
    return Spread(
        name=name,
        count=len(found),
        p50=nearest_rank(found, 0.5),
        p95=nearest_rank(found, 0.95),
        longest=found[-1],
        mean=sum(found, NOTHING) / len(found),
    )
