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
CONTEXT_BEFORE = 600.0
"""Seconds for which what explains nothing alone is kept, to be told with a fault that follows."""
CONTEXT_AFTER = 60.0
"""Seconds after a fault in which it is told at once."""
MOST_CONTEXT = 50


class Intake:
    """Takes facts from any thread; the loop takes out what is to be told.

    Context and consequences start nothing by themselves, and alone they would only make a later, unrelated
    fault look old. So they travel with a fault of the same node, or not at all.
    """

    def __init__(self, metrics: NodeMetrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._lock = threading.Lock()
        self._repeats = Repeats()
        self._context: deque[tuple[float, Fact]] = deque(maxlen=MOST_CONTEXT)
        self._fault_at = -1e9
        self._queue: queue.Queue[Fact] = queue.Queue(MOST_WAITING)

    def take(self, fact: Fact) -> None:
        """Takes a fact in. Never blocks and never raises."""
        f = fact.finding
        self._metrics.findings.labels(f.source.value, f.signature).inc(fact.count)
        if not fact.is_worth_telling:
            return
        with self._lock:
            now = self._clock()
            passed = self._repeats.let_through(fact, now)
            if passed is None:
                return
            if f.role is Role.ROOT:
                for at, context in self._context:
                    if now - at <= CONTEXT_BEFORE:
                        self._pass(context)
                self._context.clear()
                self._fault_at = now
                self._pass(passed)
            elif now - self._fault_at <= CONTEXT_AFTER:
                self._pass(passed)
            else:
                self._context.append((now, passed))
        log.warning("seen", source=f.source.value, signature=f.signature, role=f.role.value, text=f.text)

    def next(self, timeout: float) -> Fact | None:
        """The next fact to tell; None: there was none for so many seconds."""
        try:
            return self._queue.get(timeout=timeout)
        except queue.Empty:
            return None

    def _pass(self, fact: Fact) -> None:
        try:
            self._queue.put_nowait(fact)
        except queue.Full:
            self._metrics.dropped.labels("queue full").inc()
