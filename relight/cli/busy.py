"""What a command does while a person waits: a line on the terminal, gone when it is done."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

AFTER = 1.0
"""Seconds that may pass in silence."""

Tell = Callable[[str], None]
"""Says how far it has come: `17 of 200`."""


@contextmanager
def busy(doing: str) -> Iterator[Tell]:
    """Says on stderr what is being done, from `AFTER` seconds on, where a person looks at it.

    Nothing in the block may ask that person something: the answer would be typed into this line.
    """
    if not sys.stderr.isatty():
        yield nobody
        return
    status = Console(stderr=True, emoji=False).status(f"{escape(doing)} ...")
    timer = threading.Timer(AFTER, status.start)
    timer.daemon = True

    def tell(so_far: str) -> None:
        status.update(f"{escape(doing)}: {escape(so_far)} ...")

    timer.start()
    try:
        yield tell
    finally:
        timer.cancel()
        timer.join()  # else it might start after the stop
        status.stop()


def nobody(so_far: str) -> None:
    """Nobody looks."""
