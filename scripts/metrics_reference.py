"""Writes the tables of `docs/reference/metrics.md` anew, from the metrics themselves.

    .venv/bin/python scripts/metrics_reference.py [--check]

With `--check` nothing is written; the exit code is 1 if the page is not up to date.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # a script's own directory is where Python looks for modules, and not this one

from prometheus_client import CollectorRegistry  # noqa: E402

from scripts.reference.markdown import table  # noqa: E402
from sensor.metrics import Metrics  # noqa: E402
from sensor.node.metrics import NodeMetrics  # noqa: E402
from worker.metrics import METRICS  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "metrics.md"

Row = tuple[str, str, tuple[str, ...], str]
"""Name, kind, labels, meaning."""


def tables() -> dict[str, str]:
    """The table of each process, by the name that the page's marks have."""
    sensor = Metrics()
    sensor.show_prometheus(up=True)
    return {
        "worker": _table((m.served, m.kind, m.labels, m.help) for m in METRICS),
        "sensor": _table(_rows(sensor.registry)),
        "node": _table(_rows(NodeMetrics().registry)),
    }


def renewed(page: str) -> str:
    """The page with the tables as they should be."""
    for name, rows in tables().items():
        begin, end = f"<!-- metrics: {name} -->\n", "<!-- end -->\n"
        page, found = re.subn(f"({begin}).*?({end})", rf"\g<1>{rows}\g<2>", page, flags=re.DOTALL)
        if found != 1:
            raise ValueError(f"the page should have the mark {begin.strip()} once, and has it {found} times")
    return page


def _table(rows: Iterable[Row]) -> str:
    titles = ("metric", "kind", "labels", "meaning")
    cells = (
        (f"`{name}`", kind, ", ".join(labels), said.removesuffix(".")) for name, kind, labels, said in rows
    )
    return table(titles, cells)


def _rows(registry: CollectorRegistry) -> Iterator[Row]:
    """What a registry of the Prometheus client serves. Only its private parts know labels without values."""
    for collector in registry._collector_to_names:
        (family,) = collector.describe()
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield name, family.type, tuple(collector._labelnames), family.documentation


def main() -> int:
    """Writes, or checks."""
    before = PAGE.read_text()
    after = renewed(before)
    if "--check" in sys.argv[1:]:
        if before != after:
            sys.stderr.write(f"{PAGE} is not up to date: run {Path(__file__).name}\n")
        return int(before != after)
    PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
