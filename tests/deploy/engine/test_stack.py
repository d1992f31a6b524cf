"""The whole of deploy/compose in a container engine: it becomes healthy, and its parts find each other.

There is no Slurm behind it: the worker and the sensor say so and wait, as they do on a cluster.
"""

import base64
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.stack import ROOT

pytestmark = pytest.mark.timeout(1500)

SLURM_CONF = """ClusterName=none
SlurmctldHost=localhost(127.0.0.1)
AuthType=auth/munge
NodeName=node01 CPUs=1
PartitionName=main Nodes=ALL
"""


class Stack:
    """`docker compose` on a copy of what it needs, with passwords, a munge key and a slurm.conf."""

    def __init__(self, root: Path) -> None:
        self.directory = root / "deploy" / "compose"
        for name in ("deploy", "relight", "sensor", "workflows", "activities", "worker"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "secrets"))
        for name in ("Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, root)
        for name in ("slurm", "shared"):
            (root / name).mkdir()
        (root / "slurm" / "slurm.conf").write_text(SLURM_CONF)
        key = root / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        # Nobody but root and relight's user may own its settings, and nobody but munge's user the key.
        relight, munge = (64030, 64031) if os.getuid() == 0 else (os.getuid(), os.getuid())
        os.chown(key, munge, -1)
        values = {
            "COMPOSE_PROJECT_NAME": "relight-test",
            "RELIGHT_UID": str(relight),
            "RELIGHT_GID": str(relight),
            "MUNGE_UID": str(munge),
            "MUNGE_GID": str(munge),
            "MUNGE_KEY": str(key),
            "SLURM_CONF_DIR": str(root / "slurm"),
            "SHARED": str(root / "shared"),
        }
        (self.directory / ".env").write_text("".join(f"{k}={v}\n" for k, v in values.items()))
        subprocess.run([self.directory / "make-secrets"], check=True)

    def __call__(self, *argv: str) -> str:
        done = subprocess.run(
            ["docker", "compose", *argv], cwd=self.directory, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    engine = subprocess.run(["docker", "compose", "ls"], capture_output=True, text=True, check=False)
    if engine.returncode != 0:
        pytest.fail(
            "these tests need Docker with its Compose plugin, and a daemon that runs: "
            f"{engine.stderr.strip() or engine.stdout.strip()}",
            pytrace=False,
        )
    stack = Stack(tmp_path_factory.mktemp("compose"))
    stack("config", "--quiet")
    try:
        stack("up", "--detach", "--wait", "--wait-timeout", "900", "--build")
    except AssertionError:
        raise AssertionError(stack("logs", "--tail", "40", "--no-color")) from None
    try:
        yield stack
    finally:
        stack("down", "--volumes", "--timeout", "10")


def ask(url: str, user: str = "") -> Any:
    request = urllib.request.Request(url)
    if user:
        request.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def test_temporal_is_set_up_for_relight(stack: Stack) -> None:
    assert "is ready for relight" in stack("exec", "-T", "worker", "relight", "setup", "--check")


def test_munge_vouches_for_the_worker(stack: Stack) -> None:
    said = stack("exec", "-T", "worker", "sh", "-c", "munge --no-input | unmunge")
    assert "Success" in said


def test_prometheus_sees_all(stack: Stack) -> None:
    deadline = time.monotonic() + 90
    while True:
        found = ask("http://127.0.0.1:9090/api/v1/targets")["data"]["activeTargets"]
        states = {target["labels"]["job"]: target["health"] for target in found}
        if set(states.values()) == {"up"}:
            break
        assert time.monotonic() < deadline, states
        time.sleep(2)
    assert set(states) == {"relight-worker", "relight-sensor", "temporal"}
    (group,) = ask("http://127.0.0.1:9090/api/v1/rules")["data"]["groups"]
    assert len(group["rules"]) > 10


def test_grafana_has_the_dashboard_and_asks_prometheus(stack: Stack) -> None:
    password = (stack.directory / "secrets" / "grafana_password").read_text()
    board = ask("http://127.0.0.1:3000/api/dashboards/uid/relight", f"admin:{password}")
    assert board["dashboard"]["title"] == "relight"
    query = "http://127.0.0.1:3000/api/datasources/proxy/uid/relight-prometheus/api/v1/query?query=up"
    assert ask(query, f"admin:{password}")["status"] == "success"


def test_all_of_it_comes_up_again(stack: Stack) -> None:
    """Databases and namespace are there already: that must not be in the way."""
    stack("down", "--timeout", "10")
    stack("up", "--detach", "--wait", "--wait-timeout", "600")
    assert "is ready for relight" in stack("exec", "-T", "worker", "relight", "setup", "--check")
