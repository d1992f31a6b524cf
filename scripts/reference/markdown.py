"""Markdown, as the pages need it."""

import re
from collections.abc import Iterable, Sequence


def head(title: str, intro: str, module: str) -> str:
    """The beginning of a page."""
    return (
        f"# {title}\n\n<!-- Made by `make reference` from {module}: change it there. -->\n\n{intro.strip()}\n"
    )


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown."""
    lines = ["| " + " | ".join(titles) + " |", "|" + " --- |" * len(titles)]
    lines += ["| " + " | ".join(cell(text) for text in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """On one line, and without a bar that would end the cell."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def code(text: str) -> str:
    """As code, whatever is in it; empty stays empty."""
    if not text:
        return ""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def prose(text: str, none: str = "left out") -> str:
    """Help or docstring text as Markdown: what stands in backticks stays code, the rest is only text.

    An angle bracket or an asterisk would otherwise be markup. `none` is what Python's None is called here.
    """
    text = re.sub(r"\bNone:", f"{none}:", text)
    parts = re.split(r"(`[^`]+`)", text.strip())
    return "".join(part if part.startswith("`") else re.sub(r"([<*\[\]\\])", r"\\\1", part) for part in parts)
