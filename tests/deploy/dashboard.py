"""The dashboard's expressions, with values for Grafana's variables."""

import json
from collections.abc import Iterator
from pathlib import Path

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"
DASHBOARD = GRAFANA / "dashboards" / "relight.json"


def expressions(since: str = "1d") -> Iterator[tuple[str, str]]:
    """Title of the panel, and expression.

    Args:
        since: the window that is chosen.
    """
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$window", since)
            expression = expression.replace("$cluster", ".*")
            assert "$" not in expression, (panel["title"], expression)
            yield panel["title"], expression
