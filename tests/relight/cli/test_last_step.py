"""The last step in words."""

from datetime import UTC, datetime, timedelta

import pytest

from relight.cli.last_step import TOLD, step_cell, step_line
from relight.contracts import Progress
from relight.durations import format_duration
from sensor.watch import PROGRESS_AT_LEAST_EVERY, PROGRESS_EVERY

NOW = datetime(2026, 12, 2, 3, tzinfo=UTC)


def seen(seconds_ago: float, interval: float | None = None) -> Progress:
    pace = timedelta(seconds=interval) if interval else None
    return Progress(step=1234, at=NOW - timedelta(seconds=seconds_ago), interval=pace)


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (None, "-"),
        (seen(-2), "1234"),  # the sensor's clock is a little ahead of ours
        (seen(0), "1234"),
        (seen(5), "1234"),
        (seen(12), "1234 (12.0s ago)"),
        (seen(272), "1234 (4m32s ago)"),
    ],
)
def test_in_a_list_the_age_is_shown_when_it_is_more_than_a_moment(
    progress: Progress | None, shown: str
) -> None:
    assert step_cell(progress, NOW) == shown


@pytest.mark.parametrize(
    ("progress", "watching", "shown"),
    [
        (None, True, "no step seen yet"),
        (seen(-2), True, "step 1234, 0.00s ago"),
        (seen(2, 0.5), True, "step 1234, 2.00s ago, one step in 0.50s"),
        (seen(12, 0.5), True, f"step 1234, 12.0s ago, one step in 0.50s ({TOLD})"),
        (seen(12, 0.5), False, "step 1234, 12.0s ago, one step in 0.50s"),
    ],
)
def test_the_age_of_a_step_is_explained_while_nothing_is_suspected(
    progress: Progress | None, watching: bool, shown: str
) -> None:
    assert step_line(progress, NOW, watching=watching) == shown


def test_how_often_steps_are_told_is_said_as_it_is() -> None:
    assert f"every {format_duration(PROGRESS_EVERY)} to {format_duration(PROGRESS_AT_LEAST_EVERY)}" in TOLD
