"""No hour is counted twice, and none is lost, wherever the pieces of the window meet."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.contracts import Outcome
from relight.report.records import Chain, chains, loss_of
from relight.report.timeline import Span, buckets_of, edges, union
from tests.relight.report.making import SINCE, UNTIL, job, recovery, watch

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TIMES = st.datetimes(
    SINCE.replace(tzinfo=None) - 20 * DAY, UNTIL.replace(tzinfo=None), timezones=st.just(UTC)
)
SPANS = st.tuples(TIMES, TIMES).map(lambda pair: (min(pair), max(pair)))


def at(hour: float) -> datetime:
    return SINCE + hour * HOUR


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([], []),
        ([(at(1), at(2))], [(at(1), at(2))]),
        ([(at(3), at(4)), (at(1), at(2))], [(at(1), at(2)), (at(3), at(4))]),
        ([(at(1), at(3)), (at(2), at(4))], [(at(1), at(4))]),
        ([(at(1), at(9)), (at(2), at(3))], [(at(1), at(9))]),
        ([(at(1), at(2)), (at(2), at(3))], [(at(1), at(3))]),
    ],
)
def test_overlaps_count_once(spans: list[Span], expected: list[Span]) -> None:
    assert list(union(spans)) == expected


@pytest.mark.parametrize(
    ("window", "pieces", "inner"),
    [
        (timedelta(hours=3), 3, HOUR),
        (timedelta(days=30), 30, DAY),
        (timedelta(days=90), 14, 7 * DAY),  # from a Wednesday to a Tuesday
    ],
)
def test_where_a_window_is_cut(window: timedelta, pieces: int, inner: timedelta) -> None:
    found = edges(UNTIL - window, UNTIL)
    assert len(found) - 1 == pieces
    assert {b - a for a, b in pairwise(found[1:-1])} == {inner}
    odd = edges(UNTIL - window + timedelta(minutes=7), UNTIL + timedelta(minutes=9))
    assert odd[1].minute == 0, "pieces begin at whole hours, also of a window that does not"
    assert odd == sorted(set(odd))


@given(SPANS, st.lists(SPANS, max_size=6), st.integers(1, 100))
def test_the_pieces_add_up(watched: Span, lost: list[Span], nodes: int) -> None:
    mine = job(1, nodes)
    gaps = [loss_of(recovery(mine, begin), UNTIL).model_copy(update={"until": end}) for begin, end in lost]
    found = chains([watch(mine, watched[0], watched[1])], gaps, UNTIL)
    buckets = buckets_of(found, SINCE, UNTIL)
    inside = max(min(watched[1], UNTIL) - max(watched[0], SINCE), timedelta(0))
    assert sum(b.watched for b in buckets) == pytest.approx(nodes * (inside / HOUR), abs=1e-6)
    for bucket in buckets:
        assert -1e-9 <= bucket.lost <= bucket.watched + 1e-9
        assert bucket.watched <= nodes * ((bucket.end - bucket.begin) / HOUR) + 1e-9


def test_a_known_day() -> None:
    """Two runs, 4 nodes all day and 12 for its second half; one is down for two hours, the other for one."""
    day = UNTIL - DAY
    small, large = job(1, 4), job(2, 12)
    watches = [watch(small, day - DAY), watch(large, day + 12 * HOUR)]
    audits = [
        recovery(small, day + HOUR, detect=7200, decide=0, queue=0, load=0, replay=0),
        recovery(small, day + 2 * HOUR, detect=600, decide=0, queue=0, load=0, replay=0),  # within the other
        recovery(small, day + 9 * HOUR, outcome=Outcome.REFUTED),
        recovery(large, day + 20 * HOUR, detect=3600, decide=0, queue=0, load=0, replay=0),
    ]
    found = chains(watches, [loss_of(audit, UNTIL) for audit in audits], UNTIL)
    last = buckets_of(found, SINCE, UNTIL)[-1]
    assert last.watched == 4 * 24 + 12 * 12
    assert last.lost == pytest.approx(4 * 2 + 12 * 1)
    assert last.ettr == pytest.approx(1 - 20 / 240)


def test_what_is_not_known_is_left_out() -> None:
    nowhere = job(1, 0)
    known = [Chain.model_validate(c.model_dump()) for c in chains([watch(nowhere)], [], UNTIL)]
    forgotten = chains([], [loss_of(recovery(job(2), UNTIL - DAY), UNTIL)], UNTIL)
    buckets = buckets_of([*known, *forgotten], SINCE, UNTIL)
    assert all(bucket.ettr is None and not bucket.watched for bucket in buckets)
