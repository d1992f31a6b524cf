"""Times and durations as people read them."""

from datetime import timedelta

import pytest

from relight.cli.output import complain, console, duration, say


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0.00s"),
        (0.424, "0.42s"),
        (12.34, "12.3s"),
        (99.94, "99.9s"),
        (99.96, "1m40s"),
        (245, "4m05s"),
        (7800, "2h10m"),
        (3 * 86400 + 4 * 3600, "3d04h"),
        (-1.5, "-1.50s"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(None if seconds is None else timedelta(seconds=seconds)) == text


def test_names_of_emoji_stay_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    complain("there is no workflow recover:x:7:0:star:")
    say("recover:fire:7:0")
    console().print("recover:rocket:7:0")
    told = capsys.readouterr()
    assert told.err == "error: there is no workflow recover:x:7:0:star:\n"
    assert told.out == "recover:fire:7:0\nrecover:rocket:7:0\n"
