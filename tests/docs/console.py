"""What a page tells its reader to type: the commands in its ```console blocks, and the files that it shows.

A line that begins with `$ ` or `# ` is a command, of a user or of root; it goes on after a backslash, and
until the quote that it opens is closed. What follows ` # ` is for the reader. Any other line is an answer.
A block with `title="NAME"` is a file of that name.
"""

import re
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```$", re.M | re.S)


@dataclass(frozen=True)
class Command:
    """One command of a page."""

    page: str
    """Path from the root of the repository."""
    line: int
    text: str
    """Without the prompt and without the remark at its end."""
    remark: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.text}"

    @property
    def words(self) -> list[str]:
        """As a shell would split it; what the shell itself would do is left as it is written."""
        return shlex.split(self.text, comments=True)


@dataclass(frozen=True)
class File:
    """A file that a page shows."""

    page: str
    name: str
    text: str


def pages() -> list[Path]:
    """README.md and all pages of the documentation, the README first."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def commands(page: Path) -> list[Command]:
    """What a page tells to type, in its order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for block in _FENCE.finditer(text):
        if block["info"].split(maxsplit=1)[:1] == ["console"]:
            first = text.count("\n", 0, block.start("body")) + 1
            found += _typed(str(page.relative_to(ROOT)), first, textwrap.dedent(block["body"]))
    return found


def files(page: Path) -> list[File]:
    """The files that a page shows."""
    name = str(page.relative_to(ROOT))
    return [
        File(name, title[1], textwrap.dedent(block["body"]))
        for block in _FENCE.finditer(page.read_text(encoding="utf-8"))
        if (title := re.search(r'\btitle="([^"]+)"', block["info"]))
    ]


def _typed(page: str, first: int, body: str) -> list[Command]:
    found = []
    lines = iter(enumerate(body.splitlines(), first))
    for number, line in lines:
        if not line.startswith(("$ ", "# ")):
            continue
        text = line[2:]
        while text.endswith("\\") or not _closed(text):
            text = text.removesuffix("\\") + ("" if text.endswith("\\") else "\n") + next(lines)[1].lstrip()
        found.append(Command(page, number, *_without_remark(text)))
    return found


def _closed(text: str) -> bool:
    """Every quote that is opened is closed too."""
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def _without_remark(text: str) -> tuple[str, str]:
    """Cuts ` # ...` off, where it is no part of a quoted text."""
    for found in re.finditer(r"\s+# ?", text):
        if _closed(text[: found.start()]):
            return text[: found.start()], text[found.end() :]
    return text, ""
