"""Numerics from step lines: a loss that is not a number, a spike that stays, skipped steps without end."""

import math
from collections.abc import Callable
from enum import StrEnum
from statistics import median

from pydantic import BaseModel, ConfigDict, Field

from relight.diagnosis.findings import StepLine

KEPT = 128
LEAST_BAD = 3
"""Windows in a row that must be bad."""
LEAST_BASE = 2
MOST_NEEDED = 20
SPIKE = 1.5
SHORT_BASE = 8
"""Of fewer losses than this the median says little: a spike must lie far beyond their range, too."""
LOW_SCALE = 1.0
"""An fp16 loss scale below this has been halved to its floor."""


class Trouble(StrEnum):
    """What is wrong with the numbers."""

    NOT_A_NUMBER = "not a number"
    ZERO = "zero loss"
    SPIKE = "loss spike"
    SKIPPING = "skipped steps"


class Window(BaseModel):
    """The numbers of one step line."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    step: int
    loss: float | None = None
    bad: bool = False
    skipped: bool = False
    low_scale: bool = False
    file: str = ""
    line: int = 0
    offset: int = 0


class Divergence(BaseModel):
    """Training goes wrong and has not recovered."""

    what: Trouble
    since: Window
    from_start: bool
    """No good step was seen before it."""


class Numbers(BaseModel):
    """The recent numbers of an attempt."""

    windows: list[Window] = Field(default_factory=list)

    def observe(self, line: StepLine) -> None:
        """A step line."""
        if self.windows and self.windows[-1].step == line.step:
            self._add_to_last(line)
            return
        if self.windows and line.step < self.windows[-1].step:
            self.windows = []
        skipped = bool(line.skipped)
        window = Window(
            step=line.step,
            loss=line.loss if line.loss is not None and math.isfinite(line.loss) else None,
            bad=_is_bad(line) and not skipped,
            skipped=skipped,
            low_scale=line.loss_scale is not None and line.loss_scale < LOW_SCALE,
            file=line.file,
            line=line.line,
            offset=line.offset,
        )
        self.windows = [*self.windows, window][-KEPT:]

    def _add_to_last(self, line: StepLine) -> None:
        """The numbers of a step can come on another line than its count."""
        last = self.windows[-1]
        if last.loss is None and line.loss is not None and math.isfinite(line.loss):
            last.loss = line.loss
        last.bad = last.bad or (_is_bad(line) and not last.skipped)

    def divergence(self) -> Divergence | None:
        """What is wrong up to now, if something is."""
        for what, tail in (
            (Trouble.NOT_A_NUMBER, self._tail(lambda w: w.bad)),
            (Trouble.ZERO, self._tail(lambda w: w.loss == 0.0) if self._was_nonzero() else 0),
            (Trouble.SKIPPING, self._tail(lambda w: w.skipped and w.low_scale)),
            (Trouble.SPIKE, self._spike()),
        ):
            if tail >= LEAST_BAD:
                return Divergence(what=what, since=self.windows[-tail], from_start=tail == len(self.windows))
        return None

    def _tail(self, bad: Callable[[Window], bool]) -> int:
        n = 0
        for w in reversed(self.windows):
            if not bad(w):
                break
            n += 1
        return n

    def _was_nonzero(self) -> bool:
        return any(w.loss is not None and w.loss != 0.0 for w in self.windows)

    def _spike(self) -> int:
        """Length of the tail that lies well above everything usual before it; 0 for none."""
        losses = [w.loss for w in self.windows]
        if any(v is None for v in losses[-LEAST_BAD:]):
            return 0
        for n in range(len(losses) - LEAST_BASE, LEAST_BAD - 1, -1):
            base = [v for v in losses[:-n] if v is not None]
            if len(base) < LEAST_BASE:
                continue
            if n < max(LEAST_BAD, min(MOST_NEEDED, len(base) // 4)):
                return 0
            usual = median(base)
            limit = SPIKE * usual
            if len(base) < SHORT_BASE:
                limit = max(limit, max(base) + 3 * (max(base) - min(base)))
            if usual > 0 and all(v is not None and v > limit for v in losses[-n:]):
                return n
        return 0


def _is_bad(line: StepLine) -> bool:
    return line.no_loss or any(v is not None and not math.isfinite(v) for v in (line.loss, line.grad_norm))
