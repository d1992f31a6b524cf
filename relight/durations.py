"""Durations as people write them: `250ms`, `30s`, `5m`, `1h30m`, `2d`."""

import math
import re
from datetime import timedelta

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
LONGEST = timedelta(days=36_500)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_duration(value: object) -> object:
    """Reads `250ms`, `30s`, `5m`, `1h30m`, `2d` or a number of seconds; passes anything else on to pydantic.

    Raises:
        ValueError: a negative duration, one beyond all bounds, or text that is none.
    """
    try:
        value = _read(value)
    except OverflowError as error:
        raise ValueError("longer than anybody can wait; the longest is 36500d") from error
    if isinstance(value, timedelta) and not timedelta(0) <= value <= LONGEST:
        raise ValueError(
            "a duration cannot be negative" if value < timedelta(0) else "too long: the longest is 36500d"
        )
    return value


def _read(value: object) -> object:
    if isinstance(value, str):
        text = value.strip().replace(" ", "")
        if _DURATION.fullmatch(text):
            parts = _DURATION_PART.findall(text)
            value = timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
        elif re.fullmatch(r"\d+(\.\d+)?", text):
            value = timedelta(seconds=float(text))
        elif not text.startswith("P"):  # pydantic reads ISO 8601 itself
            raise ValueError("not a duration; write for example 30s, 5m or 1h30m")
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("not a duration; write for example 30s, 5m or 1h30m")
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = timedelta(seconds=value)
    return value


def format_duration(value: timedelta) -> str:
    """The shortest text that `parse_duration` reads as this duration, to the millisecond."""
    milliseconds = round(value.total_seconds() * 1000)
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
