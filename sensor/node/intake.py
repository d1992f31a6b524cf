"""What becomes of a fact: counted, held back, kept for later, or passed on to be told."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable

import structlog

from relight.contracts import Role
from sensor.node.facts import Fact
from sensor.node.metrics import NodeMetrics
from sensor.node.repeats import Repeats

log = structlog.get_logger("sensor.node")

MOST_WAITING = 1000
HEALS = {"link-up": "link-down", "storage-back": "storage-wait"}
"""Which message takes which one back, by the catalogue's tags."""
HEAL_WAIT = 60.0
"""Seconds that a port may be down, or a file server silent, before it is told: most come back."""
MOST_HEALING = 50
CONTEXT_BEFORE = 600.0
"""Seconds for which what explains nothing alone is kept, to be told with a fault that follows."""
CONTEXT_AFTER = 60.0
"""Seconds after a fault in which it is told at once."""
MOST_CONTEXT = 50


class Intake:
    """Takes facts from any thread; the loop takes out what is to be told.

    Context and consequences start nothing by themselves, and alone they would only make a later, unrelated
    fault look old. So they travel with a fault of the same node, or not at all. What often heals is kept for
    a while, and forgotten when it did.
    """

    def __init__(self, metrics: NodeMetrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._repeats = Repeats()
        self._context: deque[tuple[float, Fact]] = deque(maxlen=MOST_CONTEXT)
        self._healing: list[tuple[float, Fact]] = []
        self._fault_at = -1e9
        self._queue: queue.Queue[Fact] = queue.Queue(MOST_WAITING)

    def take(self, fact: Fact) -> None:
        """Takes a fact in. Never blocks and never raises."""
        f = fact.finding
        self._metrics.findings.labels(f.source.value, f.signature).inc(fact.count)
        with self._lock:
            now = self._clock()
            if f.tag in HEALS:
                self._heal(fact)
            if not fact.is_worth_telling:
                return
            passed = self._repeats.let_through(fact, now)
            if passed is None:
                return
            if f.tag in HEALS.values():
                if len(self._healing) < MOST_HEALING:
                    self._healing.append((now + HEAL_WAIT, passed))
            else:
                self._admit(passed, now)
        log.warning("seen", source=f.source.value, signature=f.signature, role=f.role.value, text=f.text)

    def next(self, timeout: float) -> Fact | None:
        """The next fact to tell; None: there was none for so many seconds."""
        with self._lock:
            now = self._clock()
            while self._healing and self._healing[0][0] <= now:
                self._admit(self._healing.pop(0)[1], now)
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def _admit(self, fact: Fact, now: float) -> None:
        if fact.finding.role is Role.ROOT:
            for at, context in self._context:
                if now - at <= CONTEXT_BEFORE:
                    self._pass(context)
            self._context.clear()
            self._fault_at = now
            self._pass(fact)
        elif now - self._fault_at <= CONTEXT_AFTER:
            self._pass(fact)
        else:
            self._context.append((now, fact))

    def _heal(self, back: Fact) -> None:
        """Takes back what waits: of the same server, where both messages name one."""
        tag, key = HEALS[back.finding.tag], back.finding.groups.get("key")
        self._healing = [
            (due, fact)
            for due, fact in self._healing
            if fact.finding.tag != tag or (key and fact.finding.groups.get("key") not in {None, key})
        ]

    def _pass(self, fact: Fact) -> None:
        try:
            self._queue.put_nowait(fact)
        except queue.Full:
            self._metrics.dropped.labels("queue full").inc()
