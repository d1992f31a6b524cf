"""`relight jobs --watch` on a terminal: drawn anew, also after Temporal was away, and left by Ctrl-C."""

import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relight.cli.devserver import DevServer
from tests.relight.cli.conftest import Relight

pytestmark = pytest.mark.temporal


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self._end, inside = pty.openpty()
        termios.tcsetwinsize(inside, (40, 160))
        os.set_blocking(self._end, False)
        self.process = subprocess.Popen(argv, env=env, stdin=inside, stdout=inside, stderr=inside)
        os.close(inside)
        self._raw = b""

    def text(self) -> str:
        """All that was written until now."""
        try:
            while piece := os.read(self._end, 65536):
                self._raw += piece
        except OSError:  # nothing more now, or the other end is closed
            pass
        return self._raw.decode(errors="replace")

    def until(self, what: str, after: int = 0, timeout: float = 60) -> int:
        """Waits until this was written after a place; returns where it ends."""
        end = time.monotonic() + timeout
        while not (found := re.compile(what).search(self.text(), after)):
            assert time.monotonic() < end, f"no {what!r} in {self.text()[after:].split()[-80:]}"
            assert self.process.poll() is None, self.text()
            time.sleep(0.05)
        return found.end()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._end)


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[DevServer]:
    """A server that may be taken away."""
    with DevServer(tmp_path / "own.db") as started:
        yield started


@pytest.fixture
def terminal(nobody_home: None, settings_file: Path, own_server: DevServer) -> Iterator[Terminal]:
    env = {
        **os.environ, "RELIGHT_CONFIG": str(settings_file), "TEMPORAL_ADDRESS": own_server.address,
        "TERM": "xterm",
    }  # fmt: skip
    argv = [sys.executable, "-m", "relight"]
    subprocess.run([*argv, "setup"], env=env, check=True, capture_output=True)
    started = Terminal([*argv, "jobs", "--watch", "--every", "0.5"], env)
    try:
        yield started
    finally:
        started.close()


def test_a_live_table_outlives_temporal_and_leaves_cleanly(terminal: Terminal, own_server: DevServer) -> None:
    seen = terminal.until(r"no job is watched")
    seen = terminal.until(r"no job is watched", seen)
    own_server.stop()
    seen = terminal.until(r"Temporal has not answered since \d\d:\d\d:\d\d", seen)
    own_server.start()
    seen = terminal.until(r":\d\d UTC, every 0.5 s; Ctrl-C leaves", seen)
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.process.wait(20) == 0, terminal.text()
    left = terminal.text()[seen:]
    assert "\x1b[?1049l" in left, "the screen from before is back"
    assert "\x1b[?25h" in left, "so is the cursor"
    assert "Traceback" not in terminal.text()
    assert "interrupted" not in terminal.text()


@pytest.mark.parametrize(
    ("args", "says"),
    [(("jobs", "--watch"), "needs a terminal"), (("jobs", "--watch", "--json"), "either --watch or --json")],
)
def test_a_live_view_is_for_people(relight: Relight, args: tuple[str, ...], says: str) -> None:
    done = relight(*args)
    assert done.exit_code == 2
    assert says in done.stderr
