"""What `deploy/prometheus` holds is checked by Prometheus' own tool, and names metrics that exist."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from relight.prometheus.queries import DEFAULTS
from sensor.metrics import Metrics
from sensor.node.metrics import NodeMetrics

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"
OF_THE_WORKER = {"relight_recoveries_total", "relight_detections_total", "temporal_num_pollers"}
"""They come from Temporal's runtime (`tests/worker/test_worker.py` reads them there)."""


@pytest.mark.parametrize(
    "args",
    [
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts.test.yml"),
        ("check", "config", "--syntax-only", "scrape.yml"),
    ],
    ids=" ".join,
)
def test_promtool(args: tuple[str, ...]) -> None:
    promtool = shutil.which("promtool")
    assert promtool, "these tests need Prometheus: apt-get install prometheus"
    done = subprocess.run([promtool, *args], cwd=DEPLOY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_about_a_metric_that_is_served() -> None:
    sensor = Metrics()
    sensor.show_prometheus(up=True)
    served = generate_latest(sensor.registry) + generate_latest(NodeMetrics().registry)
    names = set(re.findall(r"^# TYPE (\S+)", served.decode(), re.MULTILINE)) | OF_THE_WORKER
    used = set(re.findall(r"\b(?:relight|temporal)_\w+", _expressions()))
    assert used
    assert used <= names


def test_every_query_and_every_metric_of_the_sensor_is_explained() -> None:
    reference = (DEPLOY.parents[1] / "docs" / "reference.md").read_text()
    sensor = Metrics()
    sensor.show_prometheus(up=True)
    served = re.findall(r"^# TYPE (\S+)", generate_latest(sensor.registry).decode(), re.MULTILINE)
    named = {name for name in served if not name.endswith("_created")}
    assert len(named) > 10
    assert [name for name in sorted(named | set(DEFAULTS)) if f"`{name}`" not in reference] == []


def _expressions() -> str:
    import yaml

    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    assert all({"summary", "do"} <= set(rule["annotations"]) for rule in rules)
    return "\n".join(rule["expr"] for rule in rules)
