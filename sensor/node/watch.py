"""The resident process of the node sensor: reads, judges, writes to the spool, and starts the courier.

It asks nobody over the network, so nothing that hangs there can hold it up.
"""

import ctypes
import fcntl
import gc
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import structlog
from prometheus_client import start_http_server
from pydantic import BaseModel, ConfigDict

from relight.addresses import listening
from relight.diagnosis.catalogue import Catalogue
from sensor.node.facts import MOST_FACTS, Fact, Spool
from sensor.node.gpus import GpuWatch, NvmlState
from sensor.node.intake import Intake
from sensor.node.kernel import KernelReader, kernel_catalogue
from sensor.node.kernel_log import KernelLog, open_kernel_log
from sensor.node.local_jobs import LocalJobs
from sensor.node.metrics import NodeMetrics

log = structlog.get_logger("sensor.node")

LOOP = 1.0
"""Seconds between two rounds of the loop while nothing happens."""
LOOK = 2.0
"""Seconds that one look at the kernel log waits at most."""
KERNEL_RETRY = 5.0
STORM = 500
"""Lines of one look that are many."""
FIRST_RESTART = 1.0
LONGEST_RESTART = 60.0


class NodeOptions(BaseModel):
    """What the process is told on its command line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node: str
    """The scheduler's name of this node."""
    state: Path
    """Where the spool and the outbox are."""
    kernel_log: Path
    nvml: bool = True
    gpus: int = 0
    gpu_every: float = 10.0
    metrics_address: str = ""
    signatures: tuple[Path, ...] = ()
    """Directories with the site's own signatures and Xid table."""


class NodeWatch:
    """The loop and its threads.

    Args:
        options: what to watch.
        courier: the command that tells the monitors what waits in the spool.
    """

    def __init__(self, options: NodeOptions, courier: Sequence[str]) -> None:
        self.metrics = NodeMetrics()
        self.spool = Spool(options.state / "spool")
        self._options = options
        self._intake = Intake(self.metrics)
        self._courier = Courier(courier, self.metrics)
        self._jobs = LocalJobs()
        self._unwritten: deque[Fact] = deque(maxlen=MOST_FACTS)
        self._write_failed = False
        self._nvml_told: NvmlState | None = None
        catalogue = kernel_catalogue(Catalogue.load(options.signatures))
        for problem in catalogue.problems:
            log.warning("the catalogue has an entry that cannot be used", problem=str(problem))
        self._kernel = _KernelThread(options, catalogue, self._intake, self.metrics)
        self._gpus = (
            GpuWatch(
                catalogue,
                options.node,
                self._intake.take,
                self.metrics.show_gpus,
                options.gpu_every,
                options.gpus,
            )
            if options.nvml
            else None
        )

    def run(self, stop: threading.Event) -> None:
        """Watches until `stop` is set.

        Raises:
            OSError: the state directory cannot be used.
        """
        self.spool.open()
        self._kernel.start()
        self._kernel.begun.wait(KERNEL_RETRY)
        if self._gpus is not None:
            self._gpus.start()
        _give_back_memory()
        log.info("the node sensor watches", node=self._options.node, kernel_log=str(self._options.kernel_log))
        try:
            while not stop.is_set():
                self._round()
            self._take_in(0.0)
            self._write()
        finally:
            self._kernel.stop()
            if self._gpus is not None:
                self._gpus.stop()
            self._courier.stop()

    def _round(self) -> None:
        self._take_in(LOOP)
        self._write()
        waiting = len(self.spool)
        self.metrics.spool.set(waiting)
        if waiting:
            self._courier.see_to_it()
        self._show_nvml()
        self.metrics.beat()

    def _take_in(self, timeout: float) -> None:
        fact = self._intake.next(timeout)
        here = self._jobs.look(time.monotonic())
        while fact is not None:
            self._unwritten.append(fact.model_copy(update={"jobs_here": here}))
            fact = self._intake.next(0.0) if len(self._unwritten) < MOST_FACTS else None

    def _write(self) -> None:
        while self._unwritten:
            try:
                dropped = self.spool.put(self._unwritten[0])
            except OSError as e:
                if not self._write_failed:
                    log.error("the spool cannot be written; facts wait in memory", error=str(e))
                self._write_failed = True
                return
            self._write_failed = False
            self._unwritten.popleft()
            if dropped:
                self.metrics.dropped.labels("spool full").inc(dropped)

    def _show_nvml(self) -> None:
        if self._gpus is None:
            return
        state = self._gpus.state
        self.metrics.show_nvml(state)
        if state is not self._nvml_told and state is not NvmlState.STARTING:
            say = log.info if state is NvmlState.OK else log.warning
            say("NVML", state=state.value, why=self._gpus.why)
            self._nvml_told = state


class Courier:
    """The process that tells the monitors: started when there is something, and again when it failed."""

    def __init__(self, command: Sequence[str], metrics: NodeMetrics) -> None:
        self._command = list(command)
        self._metrics = metrics
        self._process: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self._wait = FIRST_RESTART

    def see_to_it(self) -> None:
        """There is something to tell: starts the process, unless it runs or failed just now."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._process = None
            if code:
                self._metrics.courier_failures.inc()
                self._not_before = time.monotonic() + self._wait
                log.warning("the courier failed and is started again", exit_code=code, after=self._wait)
                self._wait = min(LONGEST_RESTART, self._wait * 2)
            else:
                self._wait = FIRST_RESTART
        if time.monotonic() < self._not_before:
            return
        try:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        except OSError as e:  # no memory, no process slots: a sick node
            self._not_before = time.monotonic() + self._wait
            log.error("the courier cannot be started", error=str(e), again_after=self._wait)
            self._wait = min(LONGEST_RESTART, self._wait * 2)

    def stop(self) -> None:
        """Ends it; what it has not told stays in the spool."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)


class _KernelThread(threading.Thread):
    """Reads the kernel log; a log that cannot be read is tried again and again."""

    def __init__(
        self, options: NodeOptions, catalogue: Catalogue, intake: Intake, metrics: NodeMetrics
    ) -> None:
        super().__init__(name="kernel-log", daemon=True)
        self._path = options.kernel_log
        self._reader = KernelReader(catalogue, options.node, str(options.kernel_log))
        self._intake = intake
        self._metrics = metrics
        self._stopped = threading.Event()
        self._trouble = ""
        self.begun = threading.Event()
        """The log has been opened, or could not be: what comes from here on is new."""

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopped.is_set():
            try:
                source = open_kernel_log(self._path)
            except OSError as e:
                self._fail(e)
                continue
            self.begun.set()
            try:
                self._read(source)
            except OSError as e:
                self._fail(e)
            except Exception:
                # A bug here must not end the watch over the GPUs, nor this one for good.
                log.exception("the kernel log reader failed and starts anew")
                self._stopped.wait(KERNEL_RETRY)
            finally:
                source.close()

    def stop(self) -> None:
        """Asks the thread to end."""
        self._stopped.set()
        self.join(0.2)

    def _read(self, source: KernelLog) -> None:
        stormy = False
        while not self._stopped.is_set():
            lines = source.look(LOOK)
            self._metrics.kernel_readable.set(1)
            self._trouble = ""
            self._metrics.kernel_lines.inc(len(lines))
            if len(lines) >= STORM:
                stormy = True
            elif stormy and not lines:
                stormy = False
                _give_back_memory()
            self._metrics.kernel_overruns.set(source.overruns)
            for fact in self._reader.read(lines, datetime.now(UTC)):
                self._intake.take(fact)

    def _fail(self, error: OSError) -> None:
        self.begun.set()
        self._metrics.kernel_readable.set(0)
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.error("the kernel log cannot be read; it is tried again", why=str(error))
        self._stopped.wait(KERNEL_RETRY)


def run(options: NodeOptions, courier: Sequence[str]) -> int:
    """Runs the process until SIGTERM or SIGINT. Returns its exit code."""
    stop = threading.Event()
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, lambda *_: stop.set())
    try:
        options.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(options.state / "watch.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.error("another node sensor uses this state directory", state=str(options.state))
        return 1
    except OSError as e:
        log.error("the state directory cannot be used", state=str(options.state), error=str(e))
        return 1
    watch = NodeWatch(options, courier)
    try:
        close = _serve(watch.metrics, options.metrics_address)
    except (ValueError, OSError, OverflowError) as e:
        log.error("node.metrics_address cannot be used; write host:port", error=str(e))
        return 1
    try:
        watch.run(stop)
    finally:
        close()
    log.info("the node sensor has stopped")
    return 0


def _serve(metrics: NodeMetrics, address: str) -> Callable[[], None]:
    if not address:
        return lambda: None
    host, port = listening(address)
    server, _thread = start_http_server(port, host, metrics.registry)
    return server.shutdown


def _give_back_memory() -> None:
    """Compiling the patterns, and a storm of lines, take memory that is not needed any more."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
