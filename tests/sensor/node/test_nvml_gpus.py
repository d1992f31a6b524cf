"""The GPU watch with the real pynvml, on a stub of NVIDIA's library that does what drivers do on bad days."""

import threading
import time
from collections.abc import Iterator, Sequence

import pynvml
import pytest

from relight.contracts import Cause, Role, Source, Symptom
from relight.diagnosis.catalogue import Catalogue
from sensor.node import gpus as gpus_module
from sensor.node.facts import Fact
from sensor.node.gpu_reading import GpuReading
from sensor.node.gpus import GpuWatch, NvmlState
from tests.sensor.node.conftest import wait_until
from tests.sensor.node.stub import Stub


class Watching:
    """A GPU watch at work."""

    def __init__(self, catalogue: Catalogue, expected: int = 0) -> None:
        self.facts: list[Fact] = []
        self.readings: Sequence[GpuReading] = ()
        self.looks = 0
        self.watch = GpuWatch(catalogue, "node01", self.facts.append, self._show, 0.05, expected)
        self.watch.start()

    def _show(self, readings: Sequence[GpuReading]) -> None:
        self.readings = readings
        self.looks += 1

    def looked(self, times: int = 2) -> None:
        """Waits until it has looked so often again."""
        before = self.looks
        wait_until("it looks", lambda: self.looks >= before + times)

    def found(self, signature: str) -> Fact:
        """Waits for a fact with this signature."""
        wait_until(signature, lambda: any(f.finding.signature == signature for f in self.facts))
        return next(f for f in self.facts if f.finding.signature == signature)


@pytest.fixture
def watching(stub: Stub, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    monkeypatch.setattr(gpus_module, "RETRY_EVERY", 0.2)
    monkeypatch.setattr(gpus_module, "EVENT_WAIT", 0.2)
    monkeypatch.setattr(gpus_module, "ANEW_AFTER_LOSS", 0.3)
    started = Watching(catalogue)
    started.looked()
    yield started
    started.watch.stop()


def test_nvml_healthy_gpus_say_nothing(watching: Watching) -> None:
    watching.looked(5)
    assert watching.facts == []
    assert watching.watch.state is NvmlState.OK
    reading = watching.readings[3]
    assert (reading.pci, reading.index, reading.uuid) == ("0000:13:00", 3, "GPU-stub-3")
    assert (reading.ecc_uncorrected, reading.remap_failed, reading.pcie_width) == (0, False, 16)
    assert reading.links == (True,) * 18
    assert (reading.temperature, reading.power, reading.recovery_action) == (34, 71.0, 0)


def test_nvml_an_xid_event_is_a_fact_judged_by_the_catalogue(watching: Watching, stub: Stub) -> None:
    stub.xid(79, gpu=3)
    f = watching.found("kernel.xid-79").finding
    assert (f.source, f.role, f.cause) == (Source.NVML, Role.ROOT, Cause.GPU_FALLEN_OFF_BUS)
    assert (f.node, f.gpu, f.hold_out) == ("node01", "0000:13:00", True)
    assert f.text == "NVML event: Xid 79 on GPU 3 (0000:13:00, GPU-stub-3)"


@pytest.mark.parametrize(
    ("code", "role", "holds_out"),
    [(13, Role.ROOT, False), (45, Role.CASCADE, False), (48, Role.ROOT, True), (63, Role.CONTEXT, False),
     (94, Role.ROOT, True), (999, Role.CONTEXT, False)],
)  # fmt: skip
def test_nvml_xids_mean_what_the_table_says(
    watching: Watching, stub: Stub, code: int, role: Role, holds_out: bool
) -> None:
    stub.xid(code, gpu=0)
    fact = watching.found(f"kernel.xid-{code}")
    assert (fact.finding.role, fact.finding.hold_out) == (role, holds_out)
    assert fact.is_worth_telling == (code != 63)


def test_nvml_an_xid_whose_text_decides_is_left_to_the_kernel_log(watching: Watching, stub: Stub) -> None:
    stub.xid(149, gpu=0)
    stub.xid(154, gpu=0)
    stub.xid(48, gpu=0)
    watching.found("kernel.xid-48")
    assert {f.finding.signature for f in watching.facts} == {"kernel.xid-48"}


def test_nvml_rising_ecc_counts_are_told_once_for_each_rise(watching: Watching, stub: Stub) -> None:
    stub.set("ecc-uncorrected-now", 2, 7)
    f = watching.found("nvml.ecc-uncorrected").finding
    assert (f.cause, f.role, f.hold_out, f.gpu) == (Cause.GPU_MEMORY_ECC, Role.ROOT, True, "0000:12:00")
    assert "7 more uncorrected memory errors" in f.text
    watching.looked(4)
    assert len(watching.facts) == 1
    stub.set("ecc-uncorrected-now", 2, 0)  # the driver was loaded anew
    watching.looked(4)
    stub.set("ecc-uncorrected-now", 2, 3)
    wait_until("told again", lambda: len(watching.facts) == 2)
    assert "3 more" in watching.facts[1].finding.text


def test_nvml_what_was_so_at_the_start_is_history(
    stub: Stub, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.set("ecc-uncorrected-now", 2, 7)
    stub.set("remap-failed", 1, 1)
    stub.link(0, 3, up=False)
    stub.set("nvmlDeviceGetCurrPcieLinkWidth", 4, 8)
    watching = Watching(catalogue)
    watching.looked(4)
    watching.watch.stop()
    assert watching.facts == []
    assert watching.readings[1].remap_failed is True  # the metrics show it


def test_nvml_a_link_that_goes_down(watching: Watching, stub: Stub) -> None:
    stub.link(5, 17, up=False)
    f = watching.found("nvml.nvlink-down").finding
    assert (f.cause, f.hold_out, f.gpu) == (Cause.NVLINK, True, "0000:15:00")
    assert "NVLink 17 went down" in f.text


def test_nvml_remapped_rows(watching: Watching, stub: Stub) -> None:
    stub.set("remap-pending", 1, 1)
    assert watching.found("nvml.remap-pending").finding.role is Role.CONTEXT
    stub.set("remap-failed", 1, 1)
    assert watching.found("nvml.remap-failed").finding.hold_out


def test_nvml_slow_signs_explain_and_start_nothing(watching: Watching, stub: Stub) -> None:
    stub.set("nvmlDeviceGetCurrPcieLinkWidth", 4, 8)
    stub.set("nvmlDeviceGetCurrentClocksEventReasons", 6, 0x40 | 0x4)
    stub.set(f"field-{pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL}", 7, 12)
    for signature in ("nvml.pcie-width", "nvml.clocks-held", "nvml.nvlink-recovery"):
        f = watching.found(signature).finding
        assert (f.role, f.symptom, f.hold_out) == (Role.CONTEXT, Symptom.SLOW, False), signature
    assert "too hot" in watching.found("nvml.clocks-held").finding.text


def test_nvml_an_idle_gpu_with_a_power_cap_is_not_slowed_down(watching: Watching, stub: Stub) -> None:
    stub.set("nvmlDeviceGetCurrentClocksEventReasons", 6, 0x1 | 0x4)  # idle, software power cap
    watching.looked(6)
    assert watching.facts == []


@pytest.mark.parametrize(
    ("action", "role"), [(1, Role.ROOT), (2, Role.ROOT), (3, Role.CONTEXT), (4, Role.ROOT), (9, Role.CONTEXT)]
)
def test_nvml_the_recovery_action_of_the_driver(
    watching: Watching, stub: Stub, action: int, role: Role
) -> None:
    stub.set(f"field-{pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION}", 0, action)
    f = watching.found(f"nvml.needs-{action}").finding
    assert (f.role, f.hold_out) == (role, role is Role.ROOT)


def test_nvml_a_lost_gpu_is_told_once_and_the_others_are_still_watched(
    watching: Watching, stub: Stub
) -> None:
    stub.error("nvmlDeviceGetTotalEccErrors", pynvml.NVML_ERROR_GPU_IS_LOST, gpu=3)
    f = watching.found("nvml.gpu-lost").finding
    assert (f.cause, f.hold_out, f.gpu) == (Cause.GPU_FALLEN_OFF_BUS, True, "0000:13:00")
    stub.set("ecc-uncorrected-now", 2, 7)
    watching.found("nvml.ecc-uncorrected")
    watching.looked(4)
    assert [f.finding.signature for f in watching.facts].count("nvml.gpu-lost") == 1


def test_nvml_a_gpu_that_is_gone_from_a_new_session(watching: Watching, stub: Stub) -> None:
    stub.error("*", pynvml.NVML_ERROR_GPU_IS_LOST, gpu=7)
    watching.found("nvml.gpu-lost")
    stub.gpus(7)
    f = watching.found("nvml.gpu-missing").finding
    assert (f.gpu, f.hold_out) == ("0000:17:00", True)
    assert "7 GPUs of 8" in f.text
    stub.error("*", None, gpu=7)
    stub.gpus(8)  # the driver counts anew only when both threads have let go of it
    wait_until("it is back", lambda: len(watching.readings) == 8)
    watching.looked()
    assert watching.watch.state is NvmlState.OK
    stub.xid(48, gpu=7)
    watching.found("kernel.xid-48")


def test_nvml_fewer_gpus_than_the_node_should_have(
    stub: Stub, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.gpus(7)
    watching = Watching(catalogue, expected=8)
    f = watching.found("nvml.gpu-missing").finding
    watching.watch.stop()
    assert (f.gpu, f.cause, f.role) == (None, Cause.GPU_FALLEN_OFF_BUS, Role.CONTEXT)  # it was so before


def test_nvml_a_gpu_that_must_be_reset(watching: Watching, stub: Stub) -> None:
    stub.error("nvmlDeviceGetTotalEccErrors", pynvml.NVML_ERROR_RESET_REQUIRED, gpu=1)
    assert watching.found("nvml.reset-required").finding.hold_out


def test_nvml_what_cannot_be_told_is_unknown_and_not_asked_again(watching: Watching, stub: Stub) -> None:
    for function in ("nvmlDeviceGetRemappedRows", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetPowerUsage"):
        stub.error(function, pynvml.NVML_ERROR_NOT_SUPPORTED)
    stub.error("nvmlDeviceGetTemperature", pynvml.NVML_ERROR_UNKNOWN)
    watching.looked(3)
    reading = watching.readings[0]
    assert (reading.remap_failed, reading.power, reading.temperature) == (None, None, None)
    assert set(reading.links) == {None}
    assert reading.ecc_uncorrected == 0  # the rest is still known
    assert watching.facts == []


def test_nvml_a_hanging_call_stops_neither_events_nor_the_caller(
    watching: Watching, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in watching.watch._parts:
        monkeypatch.setattr(part, "allowed", 0.5)
    stub.hang("nvmlDeviceGetTotalEccErrors")
    wait_until("it is seen to be stuck", lambda: watching.watch.state is NvmlState.STUCK)
    stub.xid(79, gpu=3)
    watching.found("kernel.xid-79")
    stub.hang("nvmlDeviceGetTotalEccErrors", on=False)
    wait_until("it goes on", lambda: watching.watch.state is NvmlState.OK)
    watching.looked()


def test_nvml_a_stuck_thread_does_not_keep_the_other_from_a_new_session(
    watching: Watching, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus_module, "STUCK_AFTER", 0.5)
    stub.hang("nvmlEventSetWait_v2")
    stub.error("nvmlDeviceGetTotalEccErrors", pynvml.NVML_ERROR_GPU_IS_LOST, gpu=3)
    watching.found("nvml.gpu-lost")
    looks = watching.looks
    wait_until("it goes on", lambda: watching.looks > looks + 20)
    stub.hang("nvmlEventSetWait_v2", on=False)
    stub.error("nvmlDeviceGetTotalEccErrors", None, gpu=3)
    stub.xid(48, gpu=0)
    watching.found("kernel.xid-48")


def test_nvml_a_driver_that_hangs_at_the_start_holds_nobody_up(
    stub: Stub, catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus_module._Part, "allowed", 0.3)
    stub.hang("nvmlInitWithFlags")
    begin = time.monotonic()
    watching = Watching(catalogue)
    wait_until("it is seen to be stuck", lambda: watching.watch.state is NvmlState.STUCK)
    watching.watch.stop()
    assert time.monotonic() - begin < 5
    stub.hang("nvmlInitWithFlags", on=False)
    wait_until("no thread is left", lambda: not any(t.name.startswith("nvml") for t in threading.enumerate()))


def test_nvml_a_driver_that_is_unloaded_and_loaded_again(watching: Watching, stub: Stub) -> None:
    stub.error("nvmlInitWithFlags", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    for function in ("nvmlDeviceGetTotalEccErrors", "nvmlEventSetWait_v2"):
        stub.error(function, pynvml.NVML_ERROR_UNINITIALIZED)
    wait_until("it is gone", lambda: watching.watch.state is NvmlState.UNAVAILABLE)
    assert watching.watch.why
    for function in ("nvmlInitWithFlags", "nvmlDeviceGetTotalEccErrors", "nvmlEventSetWait_v2"):
        stub.error(function, None)
    wait_until("it is back", lambda: watching.watch.state is NvmlState.OK)
    stub.xid(48, gpu=0)
    watching.found("kernel.xid-48")


def test_nvml_an_event_of_an_unknown_gpu_accuses_nobody(watching: Watching, stub: Stub) -> None:
    stub.xid(79, gpu=-1)
    f = watching.found("kernel.xid-79").finding
    assert (f.role, f.gpu) == (Role.CONTEXT, None)
