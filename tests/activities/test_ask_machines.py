from datetime import UTC, datetime, timedelta

import pytest

from activities.ask_machines import NORMAL, SHORTEST_NORMAL, normal_time

NOW = datetime(2026, 12, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("silence", "ran", "normal"),
    [
        (60, None, NORMAL),
        (60, 86_400, NORMAL),
        (60, 660, timedelta(minutes=10)),
        (3600, 3660, timedelta(minutes=1)),
        (60, 60, SHORTEST_NORMAL),
        (60, 30, SHORTEST_NORMAL),
    ],
)
def test_what_is_normal_is_told_by_this_attempt(silence: int, ran: int | None, normal: timedelta) -> None:
    started = None if ran is None else NOW - timedelta(seconds=ran)
    assert normal_time(timedelta(seconds=silence), started, NOW) == normal
