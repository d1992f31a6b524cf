"""What the logs of one attempt said so far, bounded: findings, rhythm, pace and numbers.

A sensor keeps one per attempt and can store it; `relight diagnose` fills one from whole files. Both then ask
`assemble` for anomalies, so that the same lines give the same diagnosis, however they arrive.
"""

from datetime import datetime

from pydantic import BaseModel, Field

from relight.contracts import Cause, Progress, Role, Symptom
from relight.diagnosis.findings import Event, Finding, PhaseLine, Sighting, StepLine
from relight.diagnosis.numbers import Numbers, Trouble
from relight.diagnosis.pace import Pace
from relight.diagnosis.rhythm import Rhythm

MAX_SIGHTINGS = 512
MAX_ALIKE = 16
"""Findings of one signature on one node that are kept; the others are only counted."""
MAX_NAMES = 128
MAX_OUTLIVED = 8


class Trail(BaseModel):
    """What was seen of one attempt."""

    sightings: list[Sighting] = Field(default_factory=list)
    alike: dict[str, int] = Field(default_factory=dict)
    """How many findings of a signature on a node came, kept or not."""
    rhythm: Rhythm = Rhythm()
    pace: Pace = Pace()
    numbers: Numbers = Numbers()
    last: StepLine | None = None
    """The last step line."""
    furthest: int | None = None
    throughput: float | None = None
    overall_throughput: float | None = None
    """What the run itself says at its end."""

    def add(self, event: Event, at: datetime, *, timed: bool = True) -> None:
        """One more event, in the order of its file. `timed`: `at` compares with times from other files."""
        if isinstance(event, Finding):
            self._found(event, at, timed)
        elif isinstance(event, StepLine):
            self._stepped(event, at, timed)
        elif event.begins:
            self.rhythm.enter(event.phase, at)
            self.pace.pause()
        else:
            self._left(event, at)

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

    def _found(self, f: Finding, at: datetime, timed: bool) -> None:
        if f.groups.get("throughput"):
            self.overall_throughput = float(f.groups["throughput"])
        place = f"{f.signature}@{f.node or ''}"
        self.alike[place] = self.alike.get(place, 0) + 1
        most = MAX_NAMES if f.tag == "names" else MAX_ALIKE if f.node else 4 * MAX_ALIKE
        if self.alike[place] <= most and len(self.sightings) < MAX_SIGHTINGS:
            self.sightings.append(Sighting(finding=f, at=at, timed=timed))

    def _stepped(self, line: StepLine, at: datetime, timed: bool) -> None:
        if not self.rhythm.observe(line.step, at):
            if self.last is not None and line.step == self.last.step:  # the rest of a record of many lines
                self.throughput = line.throughput if line.throughput is not None else self.throughput
                self.pace.observe(line, line.logged_at)
                self.numbers.observe(line)
            return
        self.last = line
        self.furthest = line.step if self.furthest is None else max(self.furthest, line.step)
        self.throughput = line.throughput if line.throughput is not None else self.throughput
        self.pace.observe(line, line.logged_at)
        self.numbers.observe(line)
        for n, s in enumerate(self.sightings):
            f = s.finding
            if s.outlived < MAX_OUTLIVED and f.attempt == line.attempt:
                later = f.offset < line.offset if f.file == line.file else timed and s.timed and s.at < at
                if later:
                    self.sightings[n] = s.model_copy(update={"outlived": s.outlived + 1})

    def _left(self, event: PhaseLine, at: datetime) -> None:
        self.rhythm.leave(event.phase, at)
        self.pace.pause()
