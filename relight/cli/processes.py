"""Child processes that are kept running until they are to end: relight's services, under `up` and `demo`."""

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from relight.cli.devserver import die_with_parent

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
STEADY_SECONDS = 60.0
"""A process that ran this long starts again at once when it ends, instead of after a growing pause."""


def relight_argv(
    *args: str, config_file: Path | None = None, flags: Mapping[str, object] | None = None
) -> list[str]:
    """`python -m relight [--config FILE] [FLAGS] ARGS`, with this Python."""
    options = ["--config", str(config_file)] if config_file else []
    for name, value in (flags or {}).items():
        options += [f"--{name.replace('_', '-')}", str(value)]
    return [sys.executable, "-m", "relight", *options, *args]


class Service:
    """One child process, started again with a growing pause when it ends by itself.

    Args:
        name: for messages.
        argv: the command.
        env: its whole environment.
        log: the file that its output is appended to; None: this process's own output.
        tell: called with a sentence when it ended by itself.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        *,
        log: Path | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.log = log
        self.restarts = 0
        self._argv, self._env, self._tell = argv, env, tell
        self._process: asyncio.subprocess.Process | None = None

    async def keep_running(self) -> None:
        """Runs it, again and again, until this task is cancelled; then ends it."""
        pause = FIRST_PAUSE
        try:
            while True:
                began = time.monotonic()
                code = await self._run_once()
                if time.monotonic() - began > STEADY_SECONDS:
                    pause = FIRST_PAUSE
                self._tell(f"the {self.name} ended ({_ending(code)}); it starts again in {pause:g} s")
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                self.restarts += 1
        finally:
            await self._end()

    async def _run_once(self) -> int:
        out = self.log.open("ab") if self.log else None
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv, env=dict(self._env), stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out,
                # Its own session: Ctrl-C comes to this process, which ends its children in order.
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip
        finally:
            if out:
                out.close()
        return await self._process.wait()

    async def _end(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            # The service bounds its own graceful stop; this is for one that does not obey.
            await asyncio.wait_for(self._process.wait(), 45)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
