"""What `deploy/prometheus` holds is checked by Prometheus' own tool, and names metrics that exist."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from relight.prometheus.queries import DEFAULTS
from tests.deploy.served import all_names, named_in

DEPLOY = Path(__file__).parents[2] / "deploy" / "prometheus"


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
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"][0]["rules"]
    assert all({"summary", "do"} <= set(rule["annotations"]) for rule in rules)
    used = set().union(*(named_in(rule["expr"]) for rule in rules))
    assert used
    assert used <= all_names()


def test_every_query_is_explained() -> None:
    reference = (DEPLOY.parents[1] / "docs" / "reference.md").read_text()
    assert [name for name in sorted(DEFAULTS) if f"`{name}`" not in reference] == []


def test_the_reference_of_metrics_is_up_to_date() -> None:
    script = DEPLOY.parents[1] / "scripts" / "metrics_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
