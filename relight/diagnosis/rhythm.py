"""How often step lines come, learned from the job itself, and from when on silence is suspicious."""

from datetime import datetime, timedelta
from statistics import median

from pydantic import BaseModel, Field

from relight.contracts import UtcDatetime
from relight.diagnosis.findings import PhaseKind

RECENT = 32
"""Intervals remembered: enough for a robust median, few enough to follow a change of pace."""
PHASE_RECENT = 8
LAG = 3
"""Ranks that print may be this many strides behind the first one; only a longer way back is going back."""
NEEDED = 3
"""Intervals needed before a learned pace counts."""
FIRST_STEP_FACTOR = 10.0
"""Before the pace is known, silence may last this many floors: the first steps compile and warm up."""
PHASE_FLOORS: dict[PhaseKind, float] = {
    PhaseKind.CHECKPOINT_SAVE: 10.0,
    PhaseKind.CHECKPOINT_LOAD: 30.0,
    PhaseKind.EVALUATION: 15.0,
    PhaseKind.COMPILATION: 30.0,
    PhaseKind.DATA_LOADING: 30.0,
}
"""How many floors a phase may last while its own length is not known yet."""


class Rhythm(BaseModel):
    """The pace of an attempt. Serialisable, so that a restarted sensor goes on where it was.

    Times are when the lines were *seen*: a job's own clock is not needed, and a log that is read late
    should be told with the times it was written at, where known.
    """

    step: int | None = None
    """The furthest step."""
    at: UtcDatetime | None = None
    """When it was first seen."""
    intervals: list[float] = Field(default_factory=list)
    """Seconds between progress, most recent last."""
    strides: list[int] = Field(default_factory=list)
    """Steps between progress, as `intervals`."""
    phase: PhaseKind | None = None
    """The phase that is open now."""
    phase_since: UtcDatetime | None = None
    phase_lengths: dict[PhaseKind, list[float]] = Field(default_factory=dict)
    paused: bool = False
    """A phase was seen since the last step: the next interval is no measure of the pace."""

    @property
    def last(self) -> tuple[int, datetime] | None:
        """The furthest step and when it was seen; None before the first one."""
        if self.step is None or self.at is None:
            return None
        return self.step, self.at

    @property
    def interval(self) -> timedelta | None:
        """The learned time between step lines; None until three intervals were seen."""
        if len(self.intervals) < NEEDED:
            return None
        return timedelta(seconds=median(self.intervals))

    def observe(self, step: int, at: datetime) -> bool:
        """A step line was seen. Returns whether it is progress; every rank repeating a step is not.

        A step far below the last one is progress too: training went back, or started anew. One a little
        below it is another rank that is late.
        """
        if self.step is not None and step <= self.step <= step + LAG * self._stride:
            return False
        if self.step is not None and self.at is not None:
            seconds = (at - self.at).total_seconds()
            if step > self.step and seconds > 0 and not self.paused:
                self.intervals = [*self.intervals, seconds][-RECENT:]
                self.strides = [*self.strides, step - self.step][-RECENT:]
        self._close(at)
        self.step, self.at, self.paused = step, at, False
        return True

    def enter(self, phase: PhaseKind, at: datetime) -> None:
        """A phase other than stepping began."""
        if self.phase is phase:
            return
        self._close(at)
        self.phase, self.phase_since, self.paused = phase, at, True

    def leave(self, phase: PhaseKind, at: datetime) -> None:
        """A phase ended. Its length is learned; the silence allowed after it is counted from here."""
        if self.phase is phase:
            self._close(at)
        self.paused = True

    @property
    def _stride(self) -> float:
        return max(1.0, median(self.strides)) if self.strides else 1.0

    def deadline(self, floor: timedelta, factor: float) -> datetime | None:
        """When silence becomes a suspected hang: last progress + max(floor, factor x interval).

        In a phase, its own learned length takes the place of the interval. None before any step line: blind.
        """
        if self.at is None:
            return None
        allowed = self._allowed(floor, factor)
        if self.phase is not None and self.phase_since is not None:
            return max(self.at, self.phase_since) + max(allowed, self._phase_allowed(floor, factor))
        return self.at + allowed

    def _allowed(self, floor: timedelta, factor: float) -> timedelta:
        interval = self.interval
        if interval is None:
            return floor * FIRST_STEP_FACTOR
        return max(floor, interval * factor)

    def _phase_allowed(self, floor: timedelta, factor: float) -> timedelta:
        assert self.phase is not None
        lengths = self.phase_lengths.get(self.phase, [])
        if not lengths:
            return floor * PHASE_FLOORS[self.phase]
        return max(floor, timedelta(seconds=max(lengths)) * factor)

    def _close(self, at: datetime) -> None:
        if self.phase is not None and self.phase_since is not None:
            seconds = max(0.0, (at - self.phase_since).total_seconds())
            known = self.phase_lengths.get(self.phase, [])
            self.phase_lengths = {**self.phase_lengths, self.phase: [*known, seconds][-PHASE_RECENT:]}
        self.phase = None
        self.phase_since = None
