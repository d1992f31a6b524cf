"""The dashboard: Grafana's own model takes it whole, and its expressions are about metrics that exist."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from tests.deploy.dashboard import DASHBOARD, GRAFANA, expressions
from tests.deploy.served import all_names, named_in


def test_grafana_knows_every_field_of_it() -> None:
    """A field that the model does not know is lost on the way through it."""
    plugins.register_default_plugins()
    written = json.loads(DASHBOARD.read_text())
    understood = json.loads(json.dumps(Dashboard.from_json(written), cls=JSONEncoder))
    assert list(_lost(written, understood)) == []


def _lost(written: Any, understood: Any, at: str = "") -> Any:
    match written, understood:
        case dict(), dict():
            for key, value in written.items():
                yield from _lost(value, understood.get(key, "nothing"), f"{at}.{key}")
        case list(), list():
            if len(written) != len(understood):
                yield at
            for n, (one, other) in enumerate(zip(written, understood, strict=False)):
                yield from _lost(one, other, f"{at}[{n}]")
        case _ if written != understood:
            yield at


def test_no_panel_hides_another() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]


def test_prometheus_takes_every_expression(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    assert promtool, "these tests need Prometheus: apt-get install prometheus"
    rules = [
        {"record": f"panel:number{n}", "expr": expression} for n, (_, expression) in enumerate(expressions())
    ]
    assert len(rules) > 40
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_expression_is_about_metrics_that_are_served() -> None:
    names = all_names()
    for title, expression in expressions():
        assert named_in(expression), title
        assert named_in(expression) <= names, title


def test_what_is_provisioned_is_there() -> None:
    written = json.loads(DASHBOARD.read_text())
    variables = {v["name"] for v in written["templating"]["list"]}
    assert variables == {"datasource", "cluster", "window"}
    sources = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())["datasources"]
    assert [source["type"] for source in sources] == ["prometheus"]
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/relight.yml").read_text())["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
