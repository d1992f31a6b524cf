"""A sustained slowdown, from the time that steps take. Robust: medians, and never from one window."""

from datetime import datetime, timedelta
from statistics import median

from pydantic import BaseModel, Field

from relight.contracts import UtcDatetime
from relight.diagnosis.findings import StepLine

KEPT = 128
"""Windows remembered."""
SLOW = 1.5
"""A window is slow when it takes this many times the usual."""
LEAST_BASE = 2
LEAST_SLOW = 3
MOST_NEEDED = 10
"""With a long history, this many slow windows in a row are asked for; with a short one, fewer."""
WARM_UP = 1
"""Steps up to this one say nothing: they compile, or only dispatch."""
SPAN = 10.0
"""Seconds of training that a window covers at least, live: a few slow steps are nothing."""
MOSTLY = 0.5
"""The share of the increase that waiting for data must explain to be the cause."""


class Window(BaseModel):
    """The time of one step, or the mean of several that were reported together."""

    step: int
    seconds: float
    data: float | None = None
    file: str = ""
    line: int = 0
    offset: int = 0
    at: UtcDatetime | None = None
    steps: int = 1
    """Over which `seconds` and `data` are means."""


class Slowdown(BaseModel):
    """Training has become slower and stayed so."""

    since: Window
    before: float
    """Median seconds a step before it."""
    after: float
    waits_for_data: bool


class Pace(BaseModel):
    """The recent step times of an attempt."""

    windows: list[Window] = Field(default_factory=list)
    step: int | None = None
    at: UtcDatetime | None = None
    paused: bool = False
    patient: bool = False

    def observe(self, line: StepLine, at: datetime | None, *, patient: bool = False) -> None:
        """A step line.

        Args:
            line: what it says.
            at: its time on the job's own clock, or None.
            patient: the log is read live: short windows are joined, and more of them are asked for.
        """
        self.patient = patient
        if self.step is not None and line.step == self.step:
            if self.windows and line.data_seconds is not None and self.windows[-1].step == line.step:
                self.windows[-1].data = line.data_seconds
            return
        seconds = line.step_seconds
        if seconds is None and self.step is not None and self.at is not None and at is not None:
            elapsed, steps = (at - self.at) / timedelta(seconds=1), line.step - self.step
            if elapsed > 0 and steps > 0:
                seconds = elapsed / steps
        went_back = self.step is not None and line.step < self.step
        if went_back:
            self.windows = []
        if seconds is not None and line.step > WARM_UP and not self.paused and not went_back:
            window = Window(
                step=line.step,
                seconds=seconds,
                data=line.data_seconds,
                file=line.file,
                line=line.line,
                offset=line.offset,
                at=at,
                steps=max(1, line.step - self.step) if self.step is not None else 1,
            )
            self._append(window)
        self.step, self.at, self.paused = line.step, at, False

    def _append(self, window: Window) -> None:
        last = self.windows[-1] if self.windows else None
        if not self.patient or last is None or last.seconds * last.steps >= SPAN:
            self.windows = [*self.windows, window][-KEPT:]
            return
        steps = last.steps + window.steps
        last.seconds = (last.seconds * last.steps + window.seconds * window.steps) / steps
        if last.data is not None and window.data is not None:
            last.data = (last.data * last.steps + window.data * window.steps) / steps
        else:
            last.data = None
        last.steps = steps

    def pause(self) -> None:
        """A phase other than stepping was seen: the next window is no measure."""
        self.paused = True

    def slowdown(self) -> Slowdown | None:
        """The slowdown that lasts until now, if there is one."""
        values = [w.seconds for w in self.windows]
        least_base = MOST_NEEDED if self.patient else LEAST_BASE
        for n in range(len(values) - least_base, LEAST_SLOW - 1, -1):
            base = values[:-n]
            if n < (MOST_NEEDED if self.patient else max(LEAST_SLOW, min(MOST_NEEDED, len(base) // 4))):
                return None
            usual = median(base)
            if usual > 0 and all(v > SLOW * usual for v in values[-n:]):
                return Slowdown(
                    since=self.windows[-n],
                    before=usual,
                    after=median(values[-n:]),
                    waits_for_data=self._waits(n, usual),
                )
        return None

    def _waits(self, n: int, usual: float) -> bool:
        before = [w.data for w in self.windows[:-n] if w.data is not None]
        after = [w.data for w in self.windows[-n:] if w.data is not None]
        if not before or not after:
            return False
        grown = median(w.seconds for w in self.windows[-n:]) - usual
        return median(after) - median(before) > MOSTLY * grown
