"""deploy/compose without a container engine: is it valid, and is all there that it names."""

import json
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from prometheus_client import start_http_server

from relight.cli.devserver import free_port
from relight.config import Settings, load_settings
from sensor.metrics import Metrics
from tests.deploy import commands
from tests.deploy.stack import COMPOSE, ROOT, bind_mounts, stack, variables

SCHEMA = ROOT / "tests" / "data" / "compose" / "compose-spec.json"
HEALTHY = ROOT / "deploy" / "container" / "healthy"
SERVICES: dict[str, Any] = stack()["services"]
OURS = {
    name: s for name, s in SERVICES.items() if s["image"].startswith("relight:") and "entrypoint" not in s
}


def test_it_is_a_compose_file() -> None:
    jsonschema.validate(stack(), json.loads(SCHEMA.read_text()))


def test_the_schema_finds_a_mistake() -> None:
    wrong = stack()
    wrong["services"]["worker"]["helthcheck"] = {}
    with pytest.raises(jsonschema.ValidationError, match="helthcheck"):
        jsonschema.validate(wrong, json.loads(SCHEMA.read_text()))


def test_what_a_service_waits_for_can_come() -> None:
    for name, service in SERVICES.items():
        for other, wait in service.get("depends_on", {}).items():
            assert other in SERVICES, name
            if wait["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other], (name, other)
            if wait["condition"] == "service_completed_successfully":
                assert SERVICES[other]["restart"].startswith("on-failure"), (name, other)


@pytest.mark.parametrize("name", [n for n, s in SERVICES.items() if s["restart"] == "unless-stopped"])
def test_what_runs_for_long_is_looked_after(name: str) -> None:
    if name != "temporal-ui":  # its image has nothing to ask it with
        assert SERVICES[name]["healthcheck"]["test"]


def test_what_it_mounts_from_here_is_there() -> None:
    mounted = {source for service in SERVICES.values() for source, _ in bind_mounts(service)}
    here = {source for source in mounted if source.startswith(".")}
    assert len(here) >= 5
    assert [source for source in here if not (COMPOSE / source).exists()] == []
    # A file in a mounted directory that a command names.
    for name in ("temporal", "temporal-schema", "temporal-namespace"):
        (setup,) = [source for source, target in bind_mounts(SERVICES[name]) if target == "/setup"]
        text = json.dumps(SERVICES[name])
        files = re.findall(r"/setup/([\w.]+)", text)
        assert files, name
        assert [file for file in files if not (COMPOSE / setup / file).is_file()] == []


def test_volumes_are_declared() -> None:
    used = {
        str(volume).split(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", ())
        if not str(volume).startswith((".", "/"))
    }
    assert used == set(stack()["volumes"])


def test_the_example_names_every_variable() -> None:
    example = (COMPOSE / "env.example").read_text()
    required = set(re.findall(r"^(\w+)=$", example, re.MULTILINE))
    optional = dict(re.findall(r"^#(\w+)=(.+)$", example, re.MULTILINE))
    assert required == {name for name, default in variables().items() if default is None}
    assert optional == {name: default for name, default in variables().items() if default is not None}


def test_no_password_is_written_down(tmp_path: Path) -> None:
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            secret = re.search("PASS|PWD|TOKEN|SECRET|_KEY", key)
            assert not secret or (key.endswith("_FILE") and value.startswith("/run/secrets/")), (name, key)
        assert set(service.get("secrets", ())) <= set(stack()["secrets"]), name
    shutil.copy(COMPOSE / "make-secrets", tmp_path)
    subprocess.run([tmp_path / "make-secrets"], check=True, capture_output=True)
    made = {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()}
    assert {f"secrets/{name}" for name in made} == {s["file"] for s in stack()["secrets"].values()}
    assert len(set(made.values())) == len(made)
    assert all(re.fullmatch("[0-9a-f]{48}", password) for password in made.values())
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    subprocess.run([tmp_path / "make-secrets"], check=True)
    assert {path.name: path.read_text() for path in (tmp_path / "secrets").iterdir()} == made


def test_images_have_a_version() -> None:
    foreign = {s["image"] for s in SERVICES.values() if not s["image"].startswith("relight:")}
    assert len(foreign) == 6
    assert [image for image in foreign if not re.search(r":v?\d+\.\d+(\.\d+)?$", image)] == []
    versions = {image.partition(":")[2] for image in foreign if "temporalio/" in image and "ui" not in image}
    assert len(versions) == 1, "Temporal's server and its tools belong together"


def test_what_relight_runs_exists() -> None:
    assert set(OURS) == {"setup", "worker", "sensor"}
    for name, service in OURS.items():
        assert commands.problem(service["command"]) == "", name


def test_settings_in_the_environment_exist() -> None:
    for name, service in OURS.items():
        for key in service["environment"]:
            if key.startswith("RELIGHT_"):
                section, _, setting = key.removeprefix("RELIGHT_").lower().partition("__")
                inner = Settings.model_fields[section].annotation
                assert inner is not None, name
                assert setting in inner.model_fields, (name, key)


def test_the_settings_file_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RELIGHT_CONFIG", "RELIGHT_CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    settings = load_settings(COMPOSE / "relight" / "relight.toml")
    _, _, port = settings.sensor.wake_address.rpartition(":")
    assert [p for p in SERVICES["sensor"]["ports"] if p.endswith(f":{port}/udp")], "Slurm's hook gets there"


def test_relight_runs_with_little_power() -> None:
    for name in (*OURS, "munge"):
        service = SERVICES[name]
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name


def test_ports_are_for_this_host_unless_asked_otherwise() -> None:
    for name, service in SERVICES.items():
        for port in service.get("ports", ()):
            assert str(port).startswith("127.0.0.1:"), name
    ports = [p for s in stack(BIND="10.0.0.1")["services"].values() for p in s.get("ports", ())]
    assert sorted(p for p in ports if p.startswith("10.")) == ["10.0.0.1:7233:7233", "10.0.0.1:9467:9467/udp"]


def test_prometheus_scrapes_what_is_served(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    assert promtool, "these tests need Prometheus: apt-get install prometheus"
    (config,) = [s for s, target in bind_mounts(SERVICES["prometheus"]) if target.endswith("/prometheus.yml")]
    (alerts,) = [s for s, target in bind_mounts(SERVICES["prometheus"]) if target.endswith("/alerts.yml")]
    shutil.copy(COMPOSE / config, tmp_path / "prometheus.yml")
    shutil.copy(COMPOSE / alerts, tmp_path / "alerts.yml")
    done = subprocess.run(
        [promtool, "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = yaml.safe_load((COMPOSE / config).read_text())["scrape_configs"]
    targets = {target for job in jobs for group in job["static_configs"] for target in group["targets"]}
    served = set()
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            if key.endswith("METRICS_ADDRESS") or key == "PROMETHEUS_ENDPOINT":
                served.add(f"{name}:{value.rpartition(':')[2]}")
    assert targets == served


def test_grafana_finds_its_dashboard_and_its_prometheus() -> None:
    mounts = {target: source for source, target in bind_mounts(SERVICES["grafana"])}
    provisioning = COMPOSE / mounts["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/relight.yml").read_text())["providers"]
    dashboards = COMPOSE / mounts[provider["options"]["path"]]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (dashboards / home.rpartition("/")[2]).is_file()
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in SERVICES


@pytest.mark.parametrize("script", ["temporal/schema.sh", "temporal/namespace.sh", "make-secrets"])
def test_a_shell_reads_the_scripts(script: str) -> None:
    subprocess.run(["sh", "-n", COMPOSE / script], check=True)


def healthy(*argv: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, HEALTHY, *argv], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_the_health_check_of_the_sensor() -> None:
    """With the arguments of compose.yml, on a real page of metrics."""
    _, program, port, *rest = SERVICES["sensor"]["healthcheck"]["test"]
    assert program == "healthy"
    assert SERVICES["sensor"]["environment"]["RELIGHT_SENSOR__METRICS_ADDRESS"].endswith(f":{port}")
    metrics, ours = Metrics(), str(free_port())
    assert healthy(ours, *rest)[0] == 1
    server, thread = start_http_server(int(ours), "127.0.0.1", metrics.registry)
    try:
        assert healthy(ours) == (0, "")
        assert healthy(ours, *rest)[0] == 1, "no round yet"
        metrics.heartbeat.set_to_current_time()
        assert healthy(ours, *rest) == (0, "")
        metrics.heartbeat.set(1)
        code, text = healthy(ours, *rest)
        assert code == 1
        assert "heartbeat was" in text
    finally:
        server.shutdown()
        thread.join()


def test_the_health_check_of_the_worker() -> None:
    _, program, port = SERVICES["worker"]["healthcheck"]["test"]
    assert program == "healthy"
    assert SERVICES["worker"]["environment"]["RELIGHT_WORKER__METRICS_ADDRESS"].endswith(f":{port}")
