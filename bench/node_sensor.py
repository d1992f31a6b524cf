"""What the node sensor costs a compute node: at rest with eight GPUs, and in a storm of kernel lines.

    python -m bench.node_sensor [--minutes 0.5] [--storm 10000] [--runs 1] [--json [FILE]]

The GPUs are the tests' stub of NVIDIA's library (needs `cc`), whose own cost is counted in. The kernel log is
a file, which costs more at rest than `/dev/kmsg` does (a look five times a second in place of none). CPU is
of the resident process, user and system, in percent of one core; memory is all that is resident, shared
libraries included. The limits are those of the design: 1 % of a core and 60 MB. In the storm all lines come
at once, and three kinds come only once among them: all of them must be told, and hardly anything else.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from bench import results
from relight.cli.devserver import free_port
from sensor.node.facts import Spool
from tests.sensor.node.stub import Stub, compile_stub

CPU_LIMIT = 1.0
"""Percent of one core."""
MEMORY_LIMIT = 60e6
"""Bytes."""
SETTLED = 5.0
"""Seconds after the start that are not measured."""

NOISE = (
    "usb 1-1: new high-speed USB device number {n} using xhci_hcd",
    "docker0: port {n}(veth{n:x}) entered blocking state",
    "audit: type=1400 audit({n}.1:1): apparmor=STATUS operation=profile_load",
    "pcieport 0000:00:03.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Transmitter ID)",
    "NVRM: Xid (PCI:0000:3b:00): 31, pid={n}, name=python3, Ch {n:08x}, intr 00000000. MMU Fault",
)
RARE = (
    "NVRM: Xid (PCI:0000:5d:00): 79, pid=1, GPU has fallen off the bus.",
    "EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0 (channel:2 slot:0)",
    "NVRM: Xid (PCI:0000:9b:00): 48, pid=1, An uncorrectable double bit error (DBE) has been detected",
)


class Measured:
    """A node sensor and what it uses."""

    def __init__(self, directory: Path) -> None:
        library = compile_stub(directory / "lib")
        self.kernel_log = directory / "kern.log"
        self.kernel_log.touch()
        self.spool = Spool(directory / "state" / "node-bench" / "spool")
        self.address = f"127.0.0.1:{free_port()}"
        env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library.parent),
            "NVML_STUB": str(Stub(directory / "nvml.script").path),
            "RELIGHT_STATE_DIR": str(directory / "state"),
            "RELIGHT_SCHEDULER": "slurm-cli",
            "RELIGHT_SLURM__BIN_DIR": str(directory),  # there is no Slurm: what is seen stays in the spool
            "RELIGHT_NODE__METRICS_ADDRESS": self.address,
        }
        command = [sys.executable, "-m", "relight", "sensor", "node", "--name", "bench"]
        command += ["--kernel-log", str(self.kernel_log)]
        with (directory / "sensor.log").open("wb") as out:
            self.process = subprocess.Popen(command, env=env, stdout=out, stderr=out)
        self._log = directory / "sensor.log"
        while "the node sensor watches" not in self._log.read_text():
            if self.process.poll() is not None:
                raise RuntimeError(self._log.read_text())
            time.sleep(0.1)

    def cpu(self) -> float:
        """Seconds of CPU used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Resident bytes."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def lines(self) -> float:
        """Kernel lines that were read so far."""
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        name = "relight_node_sensor_kernel_lines_total "
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(name))


def at_rest(sensor: Measured, seconds: float) -> dict[str, float]:
    """CPU and memory while nothing happens."""
    time.sleep(SETTLED)
    begin, used, most = time.monotonic(), sensor.cpu(), 0
    while time.monotonic() - begin < seconds:
        most = max(most, sensor.memory())
        time.sleep(1)
    cpu = 100 * (sensor.cpu() - used) / (time.monotonic() - begin)
    return {"rest_seconds": seconds, "rest_cpu_percent": round(cpu, 3), "rest_rss_mb": round(most / 1e6, 1)}


def storm(sensor: Measured, count: int) -> dict[str, float]:
    """CPU, time and told facts for so many lines at once."""
    lines = [NOISE[n % len(NOISE)].format(n=n) for n in range(count)]
    for n, text in enumerate(RARE):
        lines[(n + 1) * count // (len(RARE) + 1)] = text
    used, begin = sensor.cpu(), time.monotonic()
    with sensor.kernel_log.open("a") as log:
        log.write("\n".join(lines) + "\n")
    while sensor.lines() < count:
        time.sleep(0.05)
    seconds = time.monotonic() - begin
    peak = sensor.memory()
    time.sleep(6)
    facts = [fact.finding for _, fact in sensor.spool.waiting()]
    return {
        "storm_lines": count,
        "storm_seconds": round(seconds, 2),
        "storm_cpu_seconds": round(sensor.cpu() - used, 2),
        "storm_rss_mb": round(peak / 1e6, 1),
        "after_storm_rss_mb": round(sensor.memory() / 1e6, 1),
        "storm_facts": len(facts),
        "storm_rare_told": sum(any(f.text in rare for f in facts) for rare in RARE),
    }


def measure(minutes: float, lines: int) -> dict[str, float]:
    """One sensor, at rest and then in a storm."""
    with tempfile.TemporaryDirectory() as directory:
        sensor = Measured(Path(directory))
        try:
            return {**at_rest(sensor, minutes * 60), **storm(sensor, lines)}
        finally:
            sensor.process.terminate()
            sensor.process.wait(20)


def main() -> None:
    """Runs the measurement."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=0.5)
    parser.add_argument("--storm", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=1)
    results.add_json_option(parser)
    arguments = parser.parse_args()
    runs = [measure(arguments.minutes, arguments.storm) for _ in range(arguments.runs)]
    if arguments.json:
        limits = {"cpu_percent": CPU_LIMIT, "rss_mb": MEMORY_LIMIT / 1e6, "rare": len(RARE)}
        results.write(arguments.json, results.envelope("node_sensor", runs, limits=limits))
        return
    for run in runs:
        for name, value in run.items():
            print(f"{name:18} {value}")
        print(
            f"CPU at rest / limit = {run['rest_cpu_percent'] / CPU_LIMIT:.2f}, "
            f"memory / limit = {run['rest_rss_mb'] / (MEMORY_LIMIT / 1e6):.2f}, "
            f"rare kinds told = {run['storm_rare_told']} of {len(RARE)}"
        )


if __name__ == "__main__":
    main()
