"""How much of the watched time was lost, piece by piece of the window. Pure.

Runs are weighted by their nodes: these are known of every run, its GPUs only of those that had a fault.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import ceil

from relight.contracts import Model, UtcDatetime
from relight.report.records import Chain

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
BY_THE_HOUR, BY_THE_DAY = 2 * DAY, 62 * DAY
"""Windows of up to this length are cut into hours, and into days; longer ones into weeks."""

Span = tuple[datetime, datetime]


class Bucket(Model):
    """A piece of the window."""

    begin: UtcDatetime
    end: UtcDatetime
    watched: float
    """Node hours of watched runs."""
    lost: float
    """Of those: node hours in which no step was gained."""
    ettr: float | None = None
    """None: nothing was watched."""


def union(spans: Iterable[Span]) -> Iterator[Span]:
    """The same time with nothing counted twice, in order."""
    begin: datetime | None = None
    end: datetime | None = None
    for first, last in sorted(spans):
        if begin is None or end is None or first > end:
            if begin is not None and end is not None:
                yield begin, end
            begin, end = first, last
        else:
            end = max(end, last)
    if begin is not None and end is not None:
        yield begin, end


def edges(since: datetime, until: datetime) -> list[datetime]:
    """Where the pieces of a window meet, its ends included: whole hours, days or weeks (UTC)."""
    window = until - since
    step = HOUR if window <= BY_THE_HOUR else DAY if window <= BY_THE_DAY else 7 * DAY
    epoch = datetime(1970, 1, 5, tzinfo=UTC)  # a Monday
    first = epoch + ((since - epoch) // step + 1) * step
    inner = [first + n * step for n in range(max(0, ceil((until - first) / step)))]
    return [since, *inner, until]


def buckets_of(chains: Iterable[Chain], since: datetime, until: datetime) -> list[Bucket]:
    """The window in pieces, with what was watched and lost in each. Chains of unknown length are left out."""
    at = edges(since, until)
    watched, lost = [0.0] * (len(at) - 1), [0.0] * (len(at) - 1)
    for chain in chains:
        span = span_of(chain, since, until)
        if span is None:
            continue
        for index, hours in _pieces(span, at):
            watched[index] += hours * chain.nodes
        clipped = (_clip((loss.occurred, loss.until), span) for loss in chain.losses if loss.fault)
        for gap in union(one for one in clipped if one is not None):
            for index, hours in _pieces(gap, at):
                lost[index] += hours * chain.nodes
    return [
        Bucket(begin=begin, end=end, watched=watched[n], lost=lost[n], ettr=kept(watched[n], lost[n]))
        for n, (begin, end) in enumerate(pairwise(at))
    ]


def _pieces(span: Span, at: Sequence[datetime]) -> Iterator[tuple[int, float]]:
    """The hours of a span in each bucket that it meets."""
    begin, end = span
    for index in range(max(0, bisect_right(at, begin) - 1), len(at) - 1):
        if at[index] >= end:
            return
        yield index, (min(end, at[index + 1]) - max(begin, at[index])) / HOUR


def span_of(chain: Chain, since: datetime, until: datetime) -> Span | None:
    """When it was watched, within the window; None: not known, or it never had a node."""
    if chain.began is None or chain.until is None or not chain.nodes:
        return None
    return _clip((chain.began, chain.until), (since, until))


def _clip(span: Span, within: Span) -> Span | None:
    begin, end = max(span[0], within[0]), min(span[1], within[1])
    return (begin, end) if begin < end else None


def kept(watched: float, lost: float) -> float | None:
    """The part of the watched time that was not lost; None: nothing was watched."""
    return 1 - lost / watched if watched else None
