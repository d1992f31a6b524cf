"""Calls to pyslurm with a deadline: in a child process, which a call that hangs costs its life.

Why not in this process: see `pyslurm_child`.
"""

import asyncio
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from relight.contracts import clean_text
from relight.scheduler.port import SchedulerUnreachable
from relight.scheduler.pyslurm_errors import port_error
from relight.scheduler.slurm_run import MAX_OUTPUT, clean_environment

_CHUNK = 1 << 20
_SAID = 2000
"""Bytes of the child's last words that are read."""


class PyslurmProcess:
    """One child, started when first asked and again after it died; it answers one request at a time.

    One thread waits for it: requests queue there, and each has its deadline from the moment it was made.
    """

    def __init__(self, timeout: float = 15.0) -> None:
        """Starts nothing yet.

        Args:
            timeout: the longest that a request may take, waiting for its turn included, in seconds.
        """
        self._timeout = timeout
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pyslurm")
        self._child: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (as long as this object)
        self.calls = 0
        """How many requests were sent."""

    async def call(self, ask: str, **arguments: object) -> Any:
        """Asks the child, off the event loop; see `ask`. A call that was sent goes on if nobody waits."""
        deadline = time.monotonic() + self._timeout
        return await asyncio.wrap_future(self._thread.submit(self._ask, deadline, ask, arguments))

    def ask(self, ask: str, **arguments: object) -> Any:
        """Asks the child and waits.

        Args:
            ask: the name of a method of `pyslurm_child.Slurm`.
            arguments: its arguments.

        Raises:
            SchedulerUnreachable: no answer in time, or the child ended.
            SchedulerError: Slurm refused; the kind says what it meant.
        """
        deadline = time.monotonic() + self._timeout
        return self._thread.submit(self._ask, deadline, ask, arguments).result()

    def close(self) -> None:
        """Ends the child."""
        self._thread.submit(self._end).result()
        self._thread.shutdown()
        self._errors.close()

    # ---- in the thread -----------------------------------------------------------------------------------

    def _ask(self, deadline: float, ask: str, arguments: dict[str, object]) -> Any:
        if time.monotonic() >= deadline:
            raise SchedulerUnreachable(f"pyslurm {ask}: an earlier call took all of {self._timeout:g} s")
        line = json.dumps({"ask": ask, "with": arguments}).encode() + b"\n"
        self.calls += 1
        try:
            self._errors.truncate(0)
            child = self._started()
            _send(child, line, deadline)
            answer = json.loads(_receive(child, deadline))
        except TimeoutError as e:
            self._end()
            raise SchedulerUnreachable(f"pyslurm {ask}: no answer within {self._timeout:g} s") from e
        except (OSError, EOFError, ValueError) as e:
            self._end()
            raise SchedulerUnreachable(f"pyslurm {ask}: {self._last_words() or e}") from e
        if error := answer.get("error"):
            raise port_error(f"pyslurm {ask}", error["number"], error["name"], error["said"])
        return answer["answer"]

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            environment = clean_environment(os.environ)
            environment["SLURM_BITSTR_LEN"] = "0"  # squeue(1): lists of array tasks in full
            child = subprocess.Popen(
                [sys.executable, "-m", "relight.scheduler.pyslurm_child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
                start_new_session=True,  # Ctrl-C in a terminal is for us alone
            )
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    os.set_blocking(pipe.fileno(), False)
            self._child = child
        return self._child

    def _end(self) -> None:
        """Kills the child: only Slurm's own timeout would end a call in it."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        child.wait()

    def _last_words(self) -> str:
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _SAID))
        return clean_text(self._errors.read().replace(b"\0", b"").decode(errors="replace"))


def _send(child: subprocess.Popen[bytes], line: bytes, deadline: float) -> None:
    assert child.stdin is not None
    descriptor, rest = child.stdin.fileno(), memoryview(line)
    while rest:
        _wait(descriptor, selectors.EVENT_WRITE, deadline)
        rest = rest[os.write(descriptor, rest[:_CHUNK]) :]


def _receive(child: subprocess.Popen[bytes], deadline: float) -> bytes:
    """One line."""
    assert child.stdout is not None
    descriptor, line = child.stdout.fileno(), bytearray()
    while not line.endswith(b"\n"):
        _wait(descriptor, selectors.EVENT_READ, deadline)
        if not (piece := os.read(descriptor, _CHUNK)):
            raise EOFError("the process that uses pyslurm ended")
        line += piece
        if len(line) > MAX_OUTPUT:
            raise EOFError(f"an answer of more than {MAX_OUTPUT} bytes")
    return bytes(line)


def _wait(descriptor: int, event: int, deadline: float) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, event)
        if not selector.select(max(0.0, deadline - time.monotonic())):
            raise TimeoutError
