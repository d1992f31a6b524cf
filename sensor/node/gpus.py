"""The threads that watch the GPUs: one waits for Xid events, one looks at their health now and then.

A call into the driver may never return. Then its thread is stuck for good, the other one and the rest of the
sensor go on, and `GpuWatch.state` says so.
"""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pynvml
import structlog

from relight.contracts import Role, Source
from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.findings import Finding
from relight.diagnosis.reader import LogReader
from sensor.node.facts import Fact
from sensor.node.gpu_judge import GpuJudge
from sensor.node.gpu_reading import GpuReading, read_gpu
from sensor.node.nvml import Gpu, NvmlUnavailable, Session, SessionOver

log = structlog.get_logger("sensor.node.gpus")

STUCK_AFTER = 15.0
"""Seconds that a call into the driver may take."""
EVENT_WAIT = 5.0
"""Seconds that one wait for an event lasts."""
RETRY_EVERY = 30.0
"""Seconds between two attempts to reach NVML where it is not there."""
ANEW_AFTER_LOSS = 60.0
"""Seconds after which a session that lacks a GPU begins anew: only a new one sees one that came back."""
TEXT_DECIDES = frozenset({144, 145, 146, 147, 148, 149, 150, 154})
"""Xids that are harmless or not by their text, which the event lacks: the kernel log has it."""


class NvmlState(StrEnum):
    """How it is with NVML."""

    STARTING = "starting"
    OK = "ok"
    UNAVAILABLE = "unavailable"
    """There is no driver, or it does not answer; it is tried again."""
    STUCK = "stuck"
    """A call does not return."""


class GpuWatch:
    """Watches the GPUs of this node.

    Args:
        catalogue: knows what the Xids mean.
        node: the scheduler's name of this node.
        tell: takes a fact; called from the threads.
        show: takes the readings of one look; called from a thread.
        every: seconds between two looks.
        expected: how many GPUs the node should have; 0: as many as were seen at most.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        node: str,
        tell: Callable[[Fact], None],
        show: Callable[[Sequence[GpuReading]], None] = lambda readings: None,
        every: float = 10.0,
        expected: int = 0,
    ) -> None:
        self._stop = threading.Event()
        library = _Library()
        self._parts = (
            _Events(self._stop, library, _XidReader(catalogue, node), tell),
            _Health(self._stop, library, GpuJudge(node), tell, show, every, expected),
        )

    def start(self) -> None:
        """Starts the threads."""
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        """Asks the threads to end, and waits a moment; one that is stuck is left behind."""
        self._stop.set()
        for part in self._parts:
            part.join(0.2)

    @property
    def state(self) -> NvmlState:
        """The worst that is true of one of the threads."""
        states = [part.state for part in self._parts]
        order = (NvmlState.STUCK, NvmlState.UNAVAILABLE, NvmlState.STARTING)
        return next((s for s in order if s in states), NvmlState.OK)

    @property
    def why(self) -> str:
        """Why NVML is not available, in words; empty while it is."""
        return next((part.why for part in self._parts if part.why), "")


class _Library:
    """NVML counts who has initialised it, and begins anew only when the last one has left.

    So whoever finds that it must begin anew says so here, and the other one leaves too.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._inside_since = 0
        self.round = 0
        """Counts how often it was to begin anew."""

    def enter(self) -> int:
        """Waits until those of an earlier round have left; not for long, since one may be stuck."""
        with self._changed:
            self._changed.wait_for(lambda: not self._inside or self._inside_since == self.round, STUCK_AFTER)
            self._inside += 1
            self._inside_since = self.round
            return self.round

    def leave(self) -> None:
        """One less uses it."""
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    def renew(self, entered: int) -> None:
        """It must begin anew, says one who entered in this round."""
        with self._changed:
            if entered == self.round:
                self.round += 1


class _Part(threading.Thread):
    """One thread with sessions of its own."""

    def __init__(self, name: str, stop: threading.Event, library: _Library) -> None:
        super().__init__(name=f"nvml-{name}", daemon=True)
        self._stopped = stop
        self._library = library
        self._round = 0
        self._session: Session | None = None
        self._state = NvmlState.STARTING
        self.why = ""

    allowed = STUCK_AFTER

    @property
    def state(self) -> NvmlState:
        session = self._session
        since = session.busy_since if session is not None else None
        if since is not None and time.monotonic() - since > self.allowed:
            return NvmlState.STUCK
        return self._state

    def run(self) -> None:
        while not self._stopped.is_set():
            self._round = self._library.enter()
            session = self._session = Session()
            try:
                session.open()
                self._state, self.why = NvmlState.OK, ""
                self.watch(session)
            except NvmlUnavailable as e:
                self._state, self.why = NvmlState.UNAVAILABLE, str(e)
                if isinstance(e, SessionOver):
                    self._library.renew(self._round)
            except Exception as e:
                # A bug, or an answer nobody foresaw: the other thread and the kernel log go on.
                self._state, self.why = NvmlState.UNAVAILABLE, f"{type(e).__name__}: {e}"
                log.exception("a part of the GPU watch failed and starts anew", part=self.name)
            finally:
                session.close()
                self._library.leave()
            if self._state is NvmlState.UNAVAILABLE:
                self._stopped.wait(RETRY_EVERY)

    @property
    def goes_on(self) -> bool:
        """The session is still the one to watch with."""
        return not self._stopped.is_set() and self._library.round == self._round

    def watch(self, session: Session) -> None:
        """Watches until the session should begin anew.

        Raises:
            NvmlUnavailable: the session is over.
        """
        raise NotImplementedError


class _Events(_Part):
    allowed = STUCK_AFTER + EVENT_WAIT

    def __init__(
        self,
        stop: threading.Event,
        library: _Library,
        reader: "_XidReader",
        tell: Callable[[Fact], None],
    ) -> None:
        super().__init__("events", stop, library)
        self._reader = reader
        self._tell = tell

    def watch(self, session: Session) -> None:
        events = session.watch_events(pynvml.nvmlEventTypeXidCriticalError)
        try:
            self._wait(session, events)
        finally:
            session.forget_events(events)

    def _wait(self, session: Session, events: Any) -> None:
        while self.goes_on:
            event = session.wait_for_event(events, EVENT_WAIT)
            if event is None:
                continue
            kind, code, gpu = event
            now = datetime.now(UTC)
            log.warning("the driver reports an Xid", xid=code, gpu=gpu.pci if gpu else "unknown")
            if kind == pynvml.nvmlEventTypeXidCriticalError and (f := self._reader.read(code, gpu)):
                self._tell(Fact(finding=f, at=now, where=f"nvml:xid-{code}:{now.isoformat()}"))


class _Health(_Part):
    def __init__(
        self,
        stop: threading.Event,
        library: _Library,
        judge: GpuJudge,
        tell: Callable[[Fact], None],
        show: Callable[[Sequence[GpuReading]], None],
        every: float,
        expected: int,
    ) -> None:
        super().__init__("health", stop, library)
        self._judge = judge
        self._tell = tell
        self._show = show
        self._every = every
        self._expected = expected
        self._missing_told = False

    def watch(self, session: Session) -> None:
        self._check_count(session)
        opened = time.monotonic()
        links: dict[str, int] = {}
        while self.goes_on:
            readings = [read_gpu(session, gpu, links.get(gpu.pci)) for gpu in session.gpus]
            for reading in readings:
                if not (reading.lost or reading.reset_required):
                    links.setdefault(reading.pci, len(reading.links))
                self._tell_all(self._judge.judge(reading))
            self._show(readings)
            worse = self._missing_told or any(r.lost for r in readings)
            if worse and time.monotonic() - opened > ANEW_AFTER_LOSS:
                self._library.renew(self._round)
            self._stopped.wait(self._every)

    def _check_count(self, session: Session) -> None:
        working = len(session.gpus)
        expected = max(self._expected, working if not self._expected else 0)
        if working >= expected:
            self._missing_told = False
        elif not self._missing_told:
            self._missing_told = True
            present = {gpu.pci for gpu in session.gpus}
            self._tell_all(self._judge.missing(present, working, expected))
        if not self._expected:
            self._expected = working

    def _tell_all(self, findings: Sequence[Finding]) -> None:
        now = datetime.now(UTC)
        for f in findings:
            log.warning("a GPU got worse", signature=f.signature, gpu=f.gpu, text=f.text)
            self._tell(Fact(finding=f, at=now, where=f"nvml:{f.signature}:{now.isoformat()}"))


class _XidReader:
    """Judges an Xid event by the line that the kernel prints for it: one catalogue for both."""

    def __init__(self, catalogue: Catalogue, node: str) -> None:
        self._reader = LogReader(catalogue, "nvml", source=Source.NVML, node=node)
        self._node = node

    def read(self, code: int, gpu: Gpu | None) -> Finding | None:
        """What this Xid means; None: it says nothing, or only its text would."""
        if code in TEXT_DECIDES:
            return None
        pci = gpu.pci if gpu is not None else "0000:00:00"
        line = f"NVRM: Xid (PCI:{pci}): {code}, reported by NVML\n"
        found = next((e for e in self._reader.feed(line.encode()) if isinstance(e, Finding)), None)
        if found is None:
            return None
        name = f"GPU {gpu.index} ({gpu.pci}, {gpu.uuid})" if gpu is not None else "a GPU"
        role = found.role
        if gpu is None and role is Role.ROOT:
            role = Role.CONTEXT  # whose it is, nobody knows
        return found.model_copy(
            update={
                "node": self._node,
                "gpu": pci if gpu is not None else None,
                "role": role,
                "text": f"NVML event: Xid {code} on {name}",
            }
        )
