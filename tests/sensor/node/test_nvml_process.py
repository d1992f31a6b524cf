"""The node sensor as a process: light, with old drivers, without any, and with one that hangs."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relight.cli.devserver import free_port
from sensor.node.facts import Spool
from tests.sensor.node.conftest import wait_until
from tests.sensor.node.stub import Stub, compile_stub

MOST_MEMORY = 60e6
"""Bytes, resident: what a compute node may have to give for it."""


class Sensor:
    """`relight sensor node`, as an operator would start it."""

    def __init__(self, tmp_path: Path, library: Path | None, log: str = "kern.log") -> None:
        self.dir = tmp_path
        self.kernel_log = tmp_path / log
        if not self.kernel_log.exists():
            self.kernel_log.touch()
        self.address = f"127.0.0.1:{free_port()}"
        self.stub = Stub(tmp_path / "nvml.script")
        self.spool = Spool(tmp_path / "state" / "node-node01" / "spool")
        env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library.parent) if library else "",
            "NVML_STUB": str(self.stub.path),
            "RELIGHT_STATE_DIR": str(tmp_path / "state"),
            "RELIGHT_SCHEDULER": "slurm-cli",
            "RELIGHT_SLURM__BIN_DIR": str(tmp_path),  # there is no Slurm: what is seen stays in the spool
            "RELIGHT_NODE__METRICS_ADDRESS": self.address,
            "RELIGHT_NODE__GPU_POLL": "200ms",
            "TEMPORAL_ADDRESS": f"127.0.0.1:{free_port()}",
        }
        with (tmp_path / "sensor.log").open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "relight", "sensor", "node", "--name", "node01",
                 "--kernel-log", str(self.kernel_log)],
                env=env, stdout=out, stderr=out,
            )  # fmt: skip

    def text(self) -> str:
        return (self.dir / "sensor.log").read_text(errors="replace")

    def says(self, what: str) -> None:
        try:
            wait_until(what, lambda: what in self.text(), 30)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.text()}") from e

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    def shows(self, metric: str) -> None:
        wait_until(metric, lambda: f"\n{metric}\n" in self.metrics())

    def signatures(self) -> set[str]:
        return {fact.finding.signature for _, fact in self.spool.waiting()}

    def memory(self) -> int:
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def kernel_says(self, text: str) -> None:
        with self.kernel_log.open("a") as log:
            log.write(f"{text}\n")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Sensor]]:
    started: list[Sensor] = []

    def run(library: Path | None, **more: str) -> Sensor:
        started.append(Sensor(tmp_path, library, **more))
        started[0].says("the node sensor watches")
        return started[0]

    yield run
    for sensor in started:
        sensor.process.kill()
        sensor.process.wait()


def test_nvml_it_is_light_and_tells_of_kernel_and_gpus(
    start: Callable[..., Sensor], stub_library: Path
) -> None:
    sensor = start(stub_library)
    sensor.shows('relight_node_sensor_nvml_state{state="ok"} 1.0')
    sensor.shows("relight_node_sensor_gpus 8.0")
    assert sensor.memory() < MOST_MEMORY
    sensor.kernel_says("NVRM: Xid (PCI:0000:3b:00): 48, pid=1, An uncorrectable double bit error")
    sensor.stub.xid(79, gpu=3)
    sensor.stub.link(5, 17, up=False)
    wait_until(
        "all three", lambda: sensor.signatures() == {"kernel.xid-48", "kernel.xid-79", "nvml.nvlink-down"}
    )
    sensor.says("there is no command squeue")  # the courier cannot do its work, and is tried again
    sensor.shows('relight_node_gpu_temperature{gpu="0000:13:00"} 34.0')
    sensor.process.send_signal(signal.SIGTERM)
    assert sensor.process.wait(20) == 0


def test_nvml_the_resident_part_never_loads_temporal() -> None:
    code = "import sys, sensor.node.watch; print([m for m in sys.modules if m.startswith('temporalio')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nvml_an_old_driver_lacks_functions(start: Callable[..., Sensor], tmp_path: Path) -> None:
    sensor = start(compile_stub(tmp_path / "old", "OLD"))
    sensor.shows('relight_node_sensor_nvml_state{state="ok"} 1.0')
    sensor.stub.set("nvmlDeviceGetCurrentClocksThrottleReasons", 6, 0x40)
    sensor.stub.set("ecc-uncorrected-now", 2, 7)
    wait_until("what it can tell", lambda: "nvml.ecc-uncorrected" in sensor.signatures())
    sensor.shows('relight_node_gpu_clocks_held{gpu="0000:16:00"} 64.0')
    assert "relight_node_gpu_remap_failed{" not in sensor.metrics()  # unknown, so there is no value


def test_nvml_without_a_driver_the_kernel_log_is_still_read(start: Callable[..., Sensor]) -> None:
    sensor = start(None)
    sensor.shows('relight_node_sensor_nvml_state{state="unavailable"} 1.0')
    sensor.says("NVML Shared Library Not Found")
    sensor.kernel_says("EDAC MC3: 1 UE memory read error on CPU_SrcID#1_MC#1_Chan#2_DIMM#0")
    wait_until("the line", lambda: sensor.signatures() == {"kernel.mem-ue"})


def test_nvml_a_driver_that_hangs_does_not_keep_it_from_ending(
    start: Callable[..., Sensor], stub_library: Path
) -> None:
    sensor = start(stub_library)
    sensor.shows('relight_node_sensor_nvml_state{state="ok"} 1.0')
    sensor.stub.hang("nvmlDeviceGetTotalEccErrors")
    sensor.stub.hang("nvmlEventSetWait_v2")
    sensor.kernel_says("NVRM: Xid (PCI:0000:3b:00): 119, pid=1, Timeout waiting for RPC from GSP")
    wait_until("the line", lambda: sensor.signatures() == {"kernel.xid-119"})
    sensor.process.send_signal(signal.SIGTERM)
    assert sensor.process.wait(20) == 0


def test_nvml_a_second_sensor_of_the_node_is_refused(
    start: Callable[..., Sensor], stub_library: Path, tmp_path: Path
) -> None:
    start(stub_library)
    (tmp_path / "second").mkdir()
    options = {
        "node": "node01",
        "state": str(tmp_path / "state" / "node-node01"),
        "kernel_log": str(tmp_path / "kern.log"),
    }
    second = subprocess.run(
        [sys.executable, "-m", "sensor.node", json.dumps(options)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert second.returncode == 1
    assert "another node sensor" in second.stdout + second.stderr


def test_nvml_without_a_kernel_log_the_gpus_are_still_watched(
    start: Callable[..., Sensor], stub_library: Path, tmp_path: Path
) -> None:
    (tmp_path / "directory").mkdir()
    sensor = start(stub_library, log="directory")
    sensor.says("the kernel log cannot be read; it is tried again")
    sensor.shows("relight_node_sensor_kernel_readable 0.0")
    sensor.stub.xid(79, gpu=3)
    wait_until("the event", lambda: sensor.signatures() == {"kernel.xid-79"})


def test_nvml_the_kernel_log_of_this_machine_is_read(
    start: Callable[..., Sensor], stub_library: Path
) -> None:
    sensor = start(stub_library, log="/dev/kmsg")
    sensor.shows("relight_node_sensor_kernel_readable 1.0")
    sensor.shows("relight_node_sensor_kernel_overruns 0.0")
    with Path("/dev/kmsg").open("w") as device:
        device.write("<12>LustreError: relight-test: This client was evicted by relight-test\n")
    sensor.stub.xid(48, gpu=3)
    wait_until("the event", lambda: "kernel.xid-48" in sensor.signatures())
    assert sensor.signatures() == {"kernel.xid-48"}  # and nothing that a program says
