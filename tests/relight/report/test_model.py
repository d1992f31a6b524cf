"""The formulas give what their authors publish."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.report.model import daly, expected_ettr, lost_share, young

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
NOTHING = timedelta(0)
TIMES = st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=2))


@pytest.mark.parametrize(
    ("nodes", "rate", "restart", "interval", "published"),
    [  # section III of arXiv:2410.21680: 16,000 GPUs with the fault rate of RSC-1, 8 GPUs a node
        (2000, 6.5e-3, 5 * MINUTE, 60 * MINUTE, 0.7),
        (2000, 6.5e-3, 5 * MINUTE, 5 * MINUTE, 0.93),
    ],
)
def test_the_expected_ettr_is_the_published_one(
    nodes: int, rate: float, restart: timedelta, interval: timedelta, published: float
) -> None:
    assert expected_ettr(nodes * rate, restart, interval, NOTHING) == pytest.approx(published, abs=0.02)


def test_writing_checkpoints_costs() -> None:
    assert expected_ettr(0, HOUR, HOUR, 6 * MINUTE) == pytest.approx(1 / 1.1)
    assert expected_ettr(1, 3 * HOUR, 6 * HOUR, 36 * MINUTE) == pytest.approx((1 - 6 / 24) / 1.1)
    assert expected_ettr(100, HOUR, HOUR, NOTHING) == 0, "never below nothing"
    assert lost_share(1, 3 * HOUR, 6 * HOUR) == pytest.approx(0.25)
    assert expected_ettr(1, HOUR, NOTHING, MINUTE) == pytest.approx(1 - 1 / 24), "nothing is trained twice"


@given(st.floats(0, 50), TIMES, TIMES, st.timedeltas(NOTHING, HOUR), TIMES)
def test_more_loss_is_never_better(
    faults: float, restart: timedelta, interval: timedelta, write: timedelta, more: timedelta
) -> None:
    before = expected_ettr(faults, restart, interval, write)
    assert 0 <= before <= 1
    assert expected_ettr(faults, restart + more, interval, write) <= before
    assert expected_ettr(faults + 1, restart, interval, write) <= before
    assert expected_ettr(faults, restart, interval, write + more) <= before


@given(TIMES, TIMES, st.floats(0.05, 20))
def test_no_interval_wastes_less_than_youngs(write: timedelta, between: timedelta, factor: float) -> None:
    def waste(interval: timedelta) -> float:
        return write / interval + interval / (2 * between)

    best = young(write, between)
    assert waste(best) <= waste(max(best * factor, timedelta(milliseconds=1))) + 1e-9


@pytest.mark.parametrize(
    ("write", "between", "expected"),
    [  # by hand: sqrt(2 w M) (1 + sqrt(w / 2M) / 3 + w / 18M) - w, in seconds
        (timedelta(seconds=30), timedelta(days=1), 2256.9),
        (timedelta(minutes=10), timedelta(hours=8), 5485.6),
        (timedelta(hours=4), timedelta(hours=2), 7200.0),  # from 2M on: M
        (NOTHING, timedelta(days=1), 0.0),
    ],
)
def test_dalys_interval(write: timedelta, between: timedelta, expected: float) -> None:
    assert daly(write, between).total_seconds() == pytest.approx(expected, abs=0.1)
