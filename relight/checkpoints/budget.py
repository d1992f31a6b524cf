"""How long an inspection may take and how many bytes it may read, for each level of checking."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum


class Level(StrEnum):
    """Levels of checking, by rising cost."""

    STRUCTURE = "markers, names and indexes"
    HEADERS = "headers and footers"
    DEEP = "every byte"


DEFAULT_LIMITS = {Level.STRUCTURE: 512 << 20, Level.HEADERS: 1 << 30, Level.DEEP: 1 << 50}
"""The most bytes that one inspection reads at each level."""


class OverBudgetError(Exception):
    """Time or bytes are used up; the message says which."""


@dataclass
class Budget:
    """What is left. Shared by the threads of one inspection."""

    seconds: float
    limits: dict[Level, int] = field(default_factory=lambda: dict(DEFAULT_LIMITS))
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._deadline = self.clock() + self.seconds
        self._left = dict(self.limits)
        self._lock = threading.Lock()

    def check_time(self) -> None:
        """Raises `OverBudgetError` once the time is used up."""
        if self.clock() > self._deadline:
            raise OverBudgetError(f"the time budget of {self.seconds:g} s is used up")

    def spend(self, level: Level, count: int) -> None:
        """Takes this many bytes from the level, or raises `OverBudgetError` and takes none."""
        self.check_time()
        with self._lock:
            if count > self._left[level]:
                raise OverBudgetError(
                    f"the budget of {self.limits[level]} bytes for {level.value} is used up"
                )
            self._left[level] -= count
