"""Starts a real Prometheus that scrapes the test's exporters every second."""

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from tests.prometheus.exporter import Exporters

CONFIG = """
global:
  scrape_interval: {interval}
  scrape_timeout: {interval}
scrape_configs:
{jobs}
"""
JOB = """  - job_name: {node}
    metrics_path: /{node}/metrics
    static_configs:
      - targets: ["127.0.0.1:{port}"]
        labels: {{instance: "{node}.cluster.example:9400"}}
"""


class Prometheus:
    """A Prometheus server of its own, on a free port."""

    def __init__(self, root: Path, exporters: Exporters, interval: str = "1s", timeout: float = 30) -> None:
        self.root, self.exporters, self.timeout = root, exporters, timeout
        root.mkdir(parents=True, exist_ok=True)
        jobs = "".join(JOB.format(node=node, port=exporters.port) for node in exporters.nodes)
        (root / "prometheus.yml").write_text(CONFIG.format(interval=interval, jobs=jobs))
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Prometheus":
        program = shutil.which("prometheus")
        assert program, "these tests need Prometheus: apt-get install prometheus"
        with (self.root / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={self.root / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self.root / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + self.timeout
        while True:
            try:
                if self._scraped():
                    return self
            except OSError:
                pass  # not listening yet
            assert time.monotonic() < end, (self.root / "prometheus.log").read_text()
            assert self._process.poll() is None, (self.root / "prometheus.log").read_text()
            time.sleep(0.1)

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _scraped(self) -> bool:
        """It has scraped all targets: it takes five seconds to find the first ones."""
        with urllib.request.urlopen(f"{self.url}/api/v1/query?query=count(up)", timeout=1) as answer:
            found = json.load(answer)["data"]["result"]
        return bool(found) and int(found[0]["value"][1]) == len(self.exporters.nodes)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def queries(self) -> int:
        """Queries that it has answered, by its own count."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as page:
            text = page.read().decode()
        return sum(
            int(float(line.rsplit(" ", 1)[1]))
            for line in text.splitlines()
            if line.startswith("prometheus_http_requests_total") and 'handler="/api/v1/query' in line
        )


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port
