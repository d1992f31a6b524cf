"""The base of every contract, and the one way in which untrusted text enters them."""

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

MAX_TEXT = 500
"""The most characters of one quoted log line that travel in a contract."""

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def clean_text(text: str, limit: int = MAX_TEXT) -> str:
    """Makes text that somebody else wrote safe to store and show: one line, no control characters, bounded.

    ANSI escapes, control and direction-changing characters are removed and lone surrogates replaced; tabs
    stay. Longer text is cut in the middle, since log lines say what matters at both ends.
    """
    text = text[: limit * 20]  # bounded work, also on a line of a megabyte
    text = _CONTROL.sub(" ", _ESCAPE.sub("", text)).strip()
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= limit:
        return text
    half = (limit - 3) // 2
    return f"{text[: limit - 3 - half]}...{text[-half:]}"


def _utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time needs a time zone")
    return value.astimezone(UTC)


UtcDatetime = Annotated[datetime, AfterValidator(_utc)]
"""A point in time, always UTC; a time without a zone is refused."""

CleanText = Annotated[str, AfterValidator(clean_text)]
"""Text from outside: cleaned and bounded by `clean_text`."""


class Model(BaseModel):
    """Frozen; unknown fields are ignored."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", ser_json_timedelta="iso8601", ser_json_inf_nan="strings"
    )
