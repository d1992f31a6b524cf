"""The node sensor's own metrics, for Prometheus."""

import time
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge

from sensor.node.gpu_reading import GpuReading
from sensor.node.gpus import NvmlState

_GPU_VALUES: dict[str, str] = {
    "ecc_uncorrected": "Uncorrected memory errors since the driver was loaded.",
    "ecc_corrected": "Corrected memory errors since the driver was loaded.",
    "ecc_uncorrected_ever": "Uncorrected memory errors over the life of the GPU.",
    "remap_pending": "1: broken memory will be mapped out at the next reset.",
    "remap_failed": "1: broken memory could not be mapped out.",
    "link_recoveries": "How often NVLinks recovered from errors.",
    "pcie_width": "PCIe lanes in use.",
    "pcie_replays": "PCIe packets that were sent again.",
    "clocks_held": "Bits of the reasons for which heat, power or the board hold the clocks down.",
    "temperature": "Degrees Celsius.",
    "power": "Watts.",
    "recovery_action": "What the driver says that the GPU needs; 0: nothing.",
}


class NodeMetrics:
    """All metrics of one node sensor, in a registry of their own. Safe to use from several threads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.heartbeat = Gauge(
            "relight_node_sensor_heartbeat_timestamp_seconds",
            "When the node sensor last went through its loop.",
            registry=self.registry,
        )
        self.kernel_lines = Counter(
            "relight_node_sensor_kernel_lines",
            "Lines of the kernel log that were read.",
            registry=self.registry,
        )
        self.kernel_overruns = Gauge(
            "relight_node_sensor_kernel_overruns",
            "How often kernel lines came faster than they could be read, and some were lost.",
            registry=self.registry,
        )
        self.kernel_readable = Gauge(
            "relight_node_sensor_kernel_readable",
            "1 while the kernel log can be read.",
            registry=self.registry,
        )
        self.findings = Counter(
            "relight_node_sensor_findings",
            "What the kernel log and the GPUs said, repeats included.",
            ["source", "signature"],
            registry=self.registry,
        )
        self.dropped = Counter(
            "relight_node_sensor_dropped",
            "Facts that were given up, and why.",
            ["why"],
            registry=self.registry,
        )
        self.spool = Gauge("relight_node_sensor_spool_facts", "Facts that wait.", registry=self.registry)
        self.courier_failures = Counter(
            "relight_node_sensor_courier_failures",
            "How often the process that tells the monitors ended with an error.",
            registry=self.registry,
        )
        self.nvml = Gauge(
            "relight_node_sensor_nvml_state",
            "1 for the state that NVML is in.",
            ["state"],
            registry=self.registry,
        )
        self.gpus = Gauge(
            "relight_node_sensor_gpus", "GPUs that work, at the last look.", registry=self.registry
        )
        self._values = {
            name: Gauge(f"relight_node_gpu_{name}", text, ["gpu"], registry=self.registry)
            for name, text in _GPU_VALUES.items()
        }
        self._known: set[str] = set()

    def beat(self) -> None:
        """The loop goes round."""
        self.heartbeat.set(time.time())

    def show_nvml(self, state: NvmlState) -> None:
        """Shows how it is with NVML."""
        for other in NvmlState:
            self.nvml.labels(other.value).set(other is state)

    def show_gpus(self, readings: Sequence[GpuReading]) -> None:
        """Shows the latest readings; what is unknown has no value, and a GPU that is gone has no series."""
        self.gpus.set(sum(not (r.lost or r.reset_required) for r in readings))
        for gauge_name, gauge in self._values.items():
            for r in readings:
                value = getattr(r, gauge_name)
                if value is not None:
                    gauge.labels(r.pci).set(float(value))
                elif r.pci in self._known:
                    _forget(gauge, r.pci)
            for pci in self._known - {r.pci for r in readings}:
                _forget(gauge, pci)
        self._known = {r.pci for r in readings}


def _forget(gauge: Gauge, pci: str) -> None:
    try:
        gauge.remove(pci)
    except KeyError:
        return  # it never had a value
