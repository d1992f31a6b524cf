"""Stands in for dcgm-exporter and node_exporter of many nodes: one HTTP server, a page for each node.

The text format and the names of metrics and labels are the exporters' own (Prometheus text format 0.0.4).
"""

import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HEALTHY = {
    "DCGM_FI_DEV_GPU_UTIL": 98.0,
    "DCGM_FI_DEV_POWER_USAGE": 600.0,
    "DCGM_FI_DEV_SM_CLOCK": 1980.0,
    "DCGM_FI_DEV_GPU_TEMP": 60.0,
    "DCGM_FI_DEV_XID_ERRORS": 0.0,
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0.0,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0.0,
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": 0.0,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": 0.0,
}


class Exporters:
    """The exporters of these nodes, with healthy GPUs that train until told otherwise."""

    def __init__(self, nodes: Iterable[str], gpus: int = 8) -> None:
        self.nodes = tuple(nodes)
        self._lock = threading.Lock()
        self._gpus = {(node, n): dict(HEALTHY) for node in self.nodes for n in range(gpus)}
        self._written = dict.fromkeys(self.nodes, 0.0)
        self._down: set[str] = set()
        exporters = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = exporters.page(self.path.strip("/").split("/")[0])
                self.send_response(200 if page else 503)
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> "Exporters":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def set(self, metric: str, value: float, nodes: Iterable[str] = (), gpu: int | None = None) -> None:
        """What the GPUs of these nodes (none named: all) show from now on."""
        with self._lock:
            for (node, n), values in self._gpus.items():
                if node in (tuple(nodes) or self.nodes) and gpu in (None, n):
                    values[metric] = value

    def lose(self, node: str, gpu: int) -> None:
        """The GPU is reported no more."""
        with self._lock:
            del self._gpus[node, gpu]

    def down(self, *nodes: str) -> None:
        """The exporters of these nodes do not answer."""
        self._down = set(nodes)

    def write(self, node: str, size: float) -> None:
        """The node has written so many bytes more."""
        with self._lock:
            self._written[node] += size

    def page(self, node: str) -> str:
        if node not in self.nodes or node in self._down:
            return ""
        with self._lock:
            lines = [
                f'{metric}{{gpu="{n}",UUID="GPU-{at}-{n}",Hostname="{at}",modelName="H100"}} {value}'
                for (at, n), values in self._gpus.items()
                if at == node
                for metric, value in values.items()
            ]
            lines.append(f'node_disk_written_bytes_total{{device="nvme0n1"}} {self._written[node]}')
            lines.append('node_network_transmit_bytes_total{device="eth0"} 0')
        return "\n".join(lines) + "\n"
