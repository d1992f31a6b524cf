"""What the demo tells while it runs: timed lines, and on a terminal a live status below them."""

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table


class Story:
    """Lines with the seconds since the demo began; on a terminal, with a status line that follows the job."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._began = time.monotonic()
        self._status: dict[str, str] = {}
        self._live = Live(self._table(), console=out, refresh_per_second=8, transient=True)
        self._is_live = out.is_terminal

    def __enter__(self) -> Self:
        if self._is_live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def tell(self, text: str, who: str = "demo") -> None:
        """One line; nothing in it is taken as markup."""
        self.tell_markup(escape(text), who)

    def tell_markup(self, text: str, who: str = "demo") -> None:
        """One line of rich markup."""
        elapsed = time.monotonic() - self._began
        self._out.print(f"[dim]{elapsed:6.1f}s[/] [cyan]{who:8}[/] {text}", soft_wrap=not self._is_live)

    def status(self, **facts: str) -> None:
        """Updates the live status; only terminals show it."""
        self._status.update(facts)
        if self._is_live:
            self._live.update(self._table())

    def pause(self) -> None:
        """Takes the live status away, to ask something."""
        self._live.stop()

    def go_on(self) -> None:
        """Shows it again."""
        if self._is_live:
            self._live.start()

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for name, value in self._status.items():
            table.add_row(f"[bold]{name}[/]", escape(value))
        return table
