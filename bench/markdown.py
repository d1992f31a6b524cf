"""Tables of the pages that are made of results. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

Rows = Iterable[Mapping[str, Any]]


def table(rows: Rows, columns: Mapping[str, str]) -> list[str]:
    """A Markdown table: `columns` are keys of a row (with dots for tables in it) and their titles."""
    lines = [f"| {' | '.join(columns.values())} |", f"|{' --- |' * len(columns)}"]
    for row in rows:
        lines.append(f"| {' | '.join(cell(_at(row, key)) for key in columns)} |")
    return lines


def cell(value: object) -> str:
    """A value, for people: few digits, no bar that would end the cell."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        if value and abs(value) < 0.01:
            return f"{value:.2g}"
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, int):
        return f"{value:,}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def _at(row: object, key: str) -> object:
    for part in key.split("."):
        row = row.get(part) if isinstance(row, Mapping) else None
    return row
