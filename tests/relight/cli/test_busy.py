"""What a person sees while a command takes long, and what a script does not see."""

import os
import pty
import subprocess
import sys
import time

import pytest

CODE = """
import time
from relight.cli.busy import busy
with busy("reading [histories]") as tell:
    time.sleep({before})
    tell("3 of [7]")
    time.sleep({after})
print("done")
"""


def on_a_terminal(code: str) -> str:
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
        process.wait(30)
    os.close(ours)
    return shown.decode()


def test_a_person_sees_what_takes_long_and_how_far_it_is() -> None:
    shown = on_a_terminal(CODE.format(before=1.5, after=0.5))
    assert "reading [histories] ..." in shown
    assert "reading [histories]: 3 of [7] ..." in shown
    assert shown.rstrip().endswith("done")
    assert "\x1b[?25h" in shown, "the cursor is back"


def test_what_is_quick_says_nothing() -> None:
    assert on_a_terminal(CODE.format(before=0, after=0)).strip() == "done"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_scripts_see_nothing_of_it(stream: str) -> None:
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(before=1.2, after=0)], capture_output=True, text=True, check=True
    )
    assert time.monotonic() - began > 1.2
    assert getattr(done, stream) == ("done\n" if stream == "stdout" else "")
