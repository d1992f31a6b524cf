"""Python tracebacks: many lines, perhaps interleaved with other ranks' lines, become one failure."""

import re
from dataclasses import dataclass, field

BEGIN = "Traceback (most recent call last)"
MAX_LINES = 400
"""Lines of one traceback that are followed."""
MAX_FOREIGN = 20
"""Lines without a prefix that fit no traceback, before it is given up."""
MAX_OPEN = 256
"""Speakers whose tracebacks are followed at the same time."""

_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,9})(?:, in (?P<function>.{1,120}))?'
)
_EXCEPTION = re.compile(
    r"^(?P<type>[A-Za-z_]\w{0,100}(?:\.[A-Za-z_<]\w{0,100}>?){0,12})(?:: ?(?P<message>.*))?$"
)
_LIKELY = re.compile(
    r"(?:^|\.)(?:\w*(?:Error|Exception|Interrupt|Exit|Warning|Failure|Timeout|Abort|Signal|Fault|Iteration"
    r"|NotFound|Killed|Cancelled|Group)|[A-Z]\w+)$"
)
_LIBRARY = re.compile(
    r"site-packages/|dist-packages/|/lib/python\d|/lib64/python\d|<frozen |<string>|<stdin>"
    r"|/torch/(?:nn|utils|distributed|autograd|_)"
)
_ODD = re.compile(r"0x[0-9a-fA-F]+|\d+(?:[.,]\d+)*")


@dataclass(frozen=True)
class Failure:
    """A finished traceback."""

    line: int
    """Of the exception, 0-based."""
    offset: int
    raw: str
    """The exception's line, as printed."""
    text: str
    """The exception's line, without its prefixes."""
    key: str


@dataclass
class _Open:
    expires: int
    began: int = 1
    """Tracebacks that began and have not ended: without prefixes, those of several ranks look like one's."""
    lines: int = 0
    foreign: int = 0
    frame: str = ""
    user_frame: str = ""


@dataclass
class Tracebacks:
    """Follows the open tracebacks of one file."""

    _open: dict[str, _Open] = field(default_factory=dict)
    _passed: int = 0

    @property
    def any_open(self) -> bool:
        """A line-by-line look is needed until the open ones are done."""
        return bool(self._open)

    def begin(self, label: str) -> None:
        """A speaker began a traceback, perhaps in the middle of another rank's that has the same prefix."""
        before = self._open.pop(label, None)
        if len(self._open) < MAX_OPEN:
            began = min(before.began + 1, MAX_OPEN) if before is not None else 1
            self._open[label] = _Open(self._passed + 4 * MAX_LINES, began)

    def tick(self) -> None:
        """A line of anybody passed: a traceback that does not go on is not followed for ever."""
        self._passed += 1
        while self._open:
            label = next(iter(self._open))  # the oldest: they expire in the order they began
            if self._open[label].expires > self._passed:
                return
            del self._open[label]

    def line(self, label: str, text: str, number: int, offset: int, raw: str) -> Failure | None:
        """One more line of a speaker; a failure when it ends the speaker's traceback."""
        state = self._open.get(label)
        if state is None:
            return None
        state.lines += 1
        if state.lines > MAX_LINES:
            del self._open[label]
            return None
        if (frame := _FRAME.match(text)) is not None:
            state.frame = f"{frame['file']}:{frame['line']}"
            if not _LIBRARY.search(frame["file"]):
                state.user_frame = state.frame
            return None
        if not text.strip() or text[0] in " \t|+" or BEGIN in text:
            return None  # a source line, carets, an exception group
        m = _EXCEPTION.match(text.rstrip())
        if m is None or (m["message"] is None and not _LIKELY.search(m["type"])) or not _type_like(m["type"]):
            state.foreign += 1
            if state.foreign > MAX_FOREIGN:
                del self._open[label]
            return None
        state.began -= 1
        if state.began == 0:
            del self._open[label]
        return Failure(number, offset, raw, text, key(text, state.user_frame or state.frame))


def key(exception: str, frame: str) -> str:
    """What a replay of the same failure would show again: type, message without numbers, place."""
    kind, _, message = exception.strip().partition(": ")
    shape = _ODD.sub("#", message)[:120]
    place = "/".join(frame.split("/")[-2:])
    return f"{kind}|{shape}|{place}"


def _type_like(name: str) -> bool:
    return bool(_LIKELY.search(name))
