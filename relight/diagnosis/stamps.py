"""Times that lines carry. A stamp without a year takes the year of the last full one, or of `today`."""

import re
from datetime import UTC, datetime, tzinfo

_MONTHS = {
    m: i + 1
    for i, m in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
    )
}
HEAD = 160
"""Characters at the beginning of a line in which a stamp is looked for."""

_FULL = re.compile(
    r"(?<!\d)(?P<y>20\d\d)[-/](?P<m>\d\d)[-/](?P<d>\d\d)[T _]"
    r"(?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?:[.,](?P<f>\d{1,9}))?(?P<z>Z|[+-]\d\d:?\d\d)?"
)
_GLOG = re.compile(
    r"\b[IWEF](?P<m>\d\d?)(?P<d>\d\d) (?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)(?:\.(?P<f>\d{1,9}))?"
)
_SYSLOG = re.compile(
    r"\b(?P<mon>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ?(?P<d>\d{1,2}) "
    r"(?P<H>\d\d):(?P<M>\d\d)(?::(?P<S>\d\d))?(?: (?P<y>20\d\d))?"
)


class Stamps:
    """Reads the stamps of one file."""

    def __init__(self, zone: tzinfo = UTC, year: int | None = None) -> None:
        """The zone of stamps without one, and the year of stamps without one before the first full stamp."""
        self._zone = zone
        self._year = year

    def read(self, text: str) -> datetime | None:
        """The time that this line carries; None when it has none or the year is not known."""
        head = text[:HEAD]
        m = _FULL.search(head)
        try:
            if m is not None:
                self._year = int(m["y"])
                return self._make(m, int(m["m"]), _offset(m["z"]))
            m = _GLOG.search(head)
            if m is not None:
                return self._make(m, int(m["m"]), None)
            m = _SYSLOG.search(head)
            if m is not None:
                if m["y"]:
                    self._year = int(m["y"])
                return self._make(m, _MONTHS[m["mon"]], None)
        except ValueError:  # a date such as 0231: digits that only look like a stamp
            return None
        return None

    def _make(self, m: re.Match[str], month: int, zone: tzinfo | None) -> datetime | None:
        if self._year is None:
            return None
        fraction = m.groupdict().get("f") or ""
        return datetime(
            self._year,
            month,
            int(m["d"]),
            int(m["H"]),
            int(m["M"]),
            int(m["S"] or 0),
            int((fraction + "000000")[:6]),
            tzinfo=zone or self._zone,
        ).astimezone(UTC)


def _offset(text: str | None) -> tzinfo | None:
    if not text:
        return None
    if text == "Z":
        return UTC
    return datetime.strptime(text.replace(":", ""), "%z").tzinfo
