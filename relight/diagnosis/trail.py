"""What the logs of one attempt said so far, bounded: findings, rhythm, pace and numbers.

A sensor keeps one per attempt and can store it; `relight diagnose` fills one from whole files. Both then ask
`assemble` for anomalies, so that the same lines give the same diagnosis, however they arrive.
"""

from collections.abc import Callable
from datetime import datetime

from pydantic import BaseModel, Field

from relight.contracts import Cause, Progress, Role, Symptom
from relight.diagnosis.findings import (
    Event,
    Finding,
    PhaseLine,
    Sighting,
    StepLine,
    is_lasting,
    line_number,
)
from relight.diagnosis.numbers import Numbers, Trouble
from relight.diagnosis.pace import Pace
from relight.diagnosis.rhythm import Rhythm

MAX_SIGHTINGS = 512
MAX_ALIKE = 16
"""Findings of one signature on one node that are kept; the others are only counted."""
MAX_NAMES = 128
MAX_PLACES = 4096
MAX_OUTLIVED = 8


class Trail(BaseModel):
    """What was seen of one attempt."""

    live: bool = False
    """The log grows while it is read: it may grow for weeks, and the times at which lines were seen count."""
    sightings: list[Sighting] = Field(default_factory=list)
    alike: dict[str, int] = Field(default_factory=dict)
    """How many findings of a signature on a node came, kept or not."""
    rhythm: Rhythm = Rhythm()
    pace: Pace = Pace()
    numbers: Numbers = Numbers()
    last: StepLine | None = None
    """The last step line."""
    furthest: int | None = None
    attempts: dict[str, int] = Field(default_factory=dict)
    """The attempt that a file announced last, where it did."""
    throughput: float | None = None
    overall_throughput: float | None = None
    """What the run itself says at its end."""

    def add(self, event: Event, at: datetime, *, timed: bool = True, historic: bool = False) -> bool:
        """One more event, in the order of its file.

        Args:
            event: what a line says.
            at: when it happened, as well as that is known.
            timed: `at` can be compared with times from other files.
            historic: it was there when the watch began.

        Returns:
            Whether it is progress.
        """
        if self.live and getattr(event, "attempt", 0) > self.attempts.get(event.file, 0):
            self._forget_attempts_before(event.file, getattr(event, "attempt", 0))
        if isinstance(event, Finding):
            self._found(event, at, timed, historic)
        elif isinstance(event, StepLine):
            return self._stepped(event, at, timed)
        elif event.begins:
            self.rhythm.enter(event.phase, at)
            self.pace.pause()
        else:
            self._left(event, at)
        return False

    @property
    def step_file(self) -> str:
        """The file of the last step line; empty before the first one."""
        return self.last.file if self.last is not None else ""

    @property
    def where(self) -> str:
        """Where the last step line is: `file:byte offset`."""
        return f"{self.last.file}:{self.last.offset}" if self.last is not None else ""

    @property
    def line_number(self) -> int | None:
        """Of the last step line, from 1; None: not known."""
        return line_number(self.last.line) if self.last is not None else None

    def progress(self) -> Progress | None:
        """How far training has come."""
        if self.rhythm.last is None:
            return None
        step, at = self.rhythm.last
        return Progress(
            step=step, at=at, interval=self.rhythm.interval, loss=self.last.loss if self.last else None
        )

    def seen(self, now: datetime) -> list[Sighting]:
        """All sightings, and what the step lines themselves say."""
        return [*self.sightings, *self._numerics(now)]

    def slow(self, now: datetime) -> list[Sighting]:
        """A sustained slowdown, as a sighting."""
        slowdown = self.pace.slowdown()
        if slowdown is None:
            return []
        w = slowdown.since
        data = slowdown.waits_for_data
        says = f"A step takes {slowdown.after:.3g} s, {slowdown.before:.3g} s before step {w.step}."
        finding = Finding(
            signature="watch.slow",
            role=Role.ROOT,
            symptom=Symptom.SLOW,
            cause=Cause.DATA_LOADER if data else Cause.UNKNOWN,
            file=w.file,
            line=w.line,
            offset=w.offset,
            text=says,
            key="watch.slow",
            tag="slow",
            weight=-20,
            says=f"{says} Waiting for data explains it." if data else says,
        )
        return [Sighting(finding=finding, at=w.at or now, timed=w.at is not None)]

    def _numerics(self, now: datetime) -> list[Sighting]:
        divergence = self.numbers.divergence()
        if divergence is None:
            return []
        w = divergence.since
        fatal = divergence.from_start and divergence.what is Trouble.NOT_A_NUMBER
        finding = Finding(
            signature=f"watch.{divergence.what.name.lower().replace('_', '-')}",
            role=Role.ROOT,
            symptom=Symptom.DEGRADED,
            cause=Cause.NUMERICAL,
            retryable=not fatal,
            file=w.file,
            line=w.line,
            offset=w.offset,
            text=f"{divergence.what.value} since step {w.step}",
            key=f"watch.numerics|{divergence.what.value}",
            tag="numerics",
            ends_rank=True,
            weight=-5,
            says=f"The numbers are wrong since step {w.step}: {divergence.what.value}.",
        )
        return [Sighting(finding=finding, at=now, timed=False)]

    def _forget_attempts_before(self, file: str, attempt: int) -> None:
        """The file says that another attempt begins: what an earlier one said explains nothing now."""
        self.attempts[file] = attempt
        self.keep_only(lambda s: s.finding.file != file or s.finding.attempt >= attempt)

    def take_over(self, before: "Trail", began: datetime) -> None:
        """Takes over what was read for the attempt before and is clearly later: this attempt had begun."""
        self.sightings = [s for s in before.sightings if s.at > began and not (s.historic or s.told)]
        if before.last is not None and before.rhythm.at is not None and before.rhythm.at > began:
            self._stepped(before.last, before.rhythm.at, timed=True)

    def keep_only(self, wanted: Callable[[Sighting], bool]) -> None:
        """Forgets the other sightings."""
        self.sightings = [s for s in self.sightings if wanted(s)]
        self.alike = {}
        for s in self.sightings:
            self._count(s.finding)

    def mark_told(self) -> None:
        """All that was seen so far has been reported."""
        self.sightings = [s if s.told else s.model_copy(update={"told": True}) for s in self.sightings]

    def _count(self, f: Finding) -> int:
        place = f"{f.signature}@{f.node or ''}"
        if place not in self.alike and len(self.alike) >= MAX_PLACES:
            return MAX_PLACES  # a log may name any number of nodes
        self.alike[place] = self.alike.get(place, 0) + 1
        return self.alike[place]

    def _found(self, f: Finding, at: datetime, timed: bool, historic: bool) -> None:
        if f.groups.get("throughput"):
            self.overall_throughput = float(f.groups["throughput"])
        most = MAX_NAMES if f.tag == "names" else MAX_ALIKE if f.node else 4 * MAX_ALIKE
        if self._count(f) > most or not self._has_room(f):
            return
        self.sightings.append(Sighting(finding=f, at=at, timed=timed, historic=historic))

    def _has_room(self, f: Finding) -> bool:
        """Makes room, if need be: the first findings that end a rank tell most; of the others, the latest."""
        if len(self.sightings) < MAX_SIGHTINGS:
            return True
        lesser = next((n for n, s in enumerate(self.sightings) if not s.finding.ends_rank), None)
        if lesser is None or not self.live:
            return False
        del self.sightings[lesser]
        return True

    def _stepped(self, line: StepLine, at: datetime, timed: bool) -> bool:
        if not self.rhythm.observe(line.step, at):
            if self.last is not None and line.step == self.last.step:  # the rest of a record of many lines
                self.throughput = line.throughput if line.throughput is not None else self.throughput
                self._measure(line, at)
            return False
        self.last = line
        self.furthest = line.step if self.furthest is None else max(self.furthest, line.step)
        self.throughput = line.throughput if line.throughput is not None else self.throughput
        self._measure(line, at)
        for n, s in enumerate(self.sightings):
            f = s.finding
            if s.outlived < MAX_OUTLIVED and f.attempt == line.attempt:
                later = f.offset < line.offset if f.file == line.file else timed and s.timed and s.at < at
                if later:
                    self.sightings[n] = s.model_copy(update={"outlived": s.outlived + 1})
        if self.live and any(_is_done(s) for s in self.sightings):
            self.keep_only(lambda s: not _is_done(s))
        return True

    def _measure(self, line: StepLine, at: datetime) -> None:
        self.pace.observe(line, line.logged_at or (at if self.live else None), patient=self.live)
        self.numbers.observe(line)

    def _left(self, event: PhaseLine, at: datetime) -> None:
        self.rhythm.leave(event.phase, at)
        self.pace.pause()


def _is_done(s: Sighting) -> bool:
    """Training has long gone on after it."""
    return s.outlived >= MAX_OUTLIVED and not is_lasting(s.finding) and s.finding.tag != "names"
