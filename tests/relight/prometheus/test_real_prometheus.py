"""The queries against a real Prometheus and the exporters' metrics, while they change."""

import asyncio
import dataclasses
import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from relight.config import PrometheusSettings
from relight.prometheus import faults, hang
from relight.prometheus.machines import Machines
from relight.prometheus.reading import Reading
from tests.prometheus.exporter import Exporters
from tests.prometheus.server import Prometheus

NODES = ("node01", "node02", "node03")
JOB = NODES[:2]
WINDOW = timedelta(seconds=4)


@dataclasses.dataclass
class Site:
    exporters: Exporters
    prometheus: Prometheus
    settings: PrometheusSettings

    async def read(self, names: tuple[str, ...], window: timedelta = WINDOW) -> Reading:
        return await Machines(self.settings).read(names, JOB, window=window)

    async def sign(self, wanted: str, window: timedelta = WINDOW) -> hang.Sign:
        """What the GPUs say, once that is as wanted."""
        return await self._until(lambda r: hang.judge(r, JOB, window, self.settings), wanted, window)

    async def _until(
        self, judge: Callable[[Reading], hang.Sign], wanted: str, window: timedelta
    ) -> hang.Sign:
        end = time.monotonic() + 30
        while True:
            sign = judge(await self.read(hang.QUERIES, window))
            if sign.verdict == wanted:
                return sign
            assert time.monotonic() < end, f"wanted {wanted}: {sign}"
            await asyncio.sleep(0.3)

    async def fault(self, name: str) -> faults.Fault:
        end = time.monotonic() + 30
        while True:
            found = faults.faults(await self.read(faults.QUERIES), JOB)
            if match := next((f for f in found if f.name == name), None):
                return match
            assert time.monotonic() < end, found
            await asyncio.sleep(0.3)


@pytest.fixture(params=["", "Hostname"], ids=["all nodes", "matched"])
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    with Exporters(NODES) as exporters, Prometheus(tmp_path / "prometheus", exporters) as prometheus:
        settings = PrometheusSettings(
            url=prometheus.url, match_label=request.param, long_enough="2s", stale_after="5s"
        )
        yield Site(exporters, prometheus, settings)


async def test_a_hang_a_save_and_training(site: Site) -> None:
    """One story, since what is normal has to be seen first."""
    assert (await site.sign("refutes")).text.endswith("they compute")
    site.exporters.set("DCGM_FI_DEV_POWER_USAGE", 290.0, JOB)
    site.exporters.set("DCGM_FI_DEV_GPU_UTIL", 100.0, JOB)
    sign = await site.sign("confirms")
    assert re.search(r"16 GPUs are at full utilisation with \d\d% of their usual power", sign.text)
    assert "DCGM_FI_DEV_POWER_USAGE" in sign.query

    saving = asyncio.create_task(_save(site))
    sign = await site.sign("refutes")
    assert "node01 writes" in sign.text
    saving.cancel()

    site.exporters.down(*JOB)
    assert (await site.sign("unknown")).text.startswith("fresh samples of the GPUs of ")
    site.prometheus.stop()
    sign = await site.sign("not available")
    assert "does not tell" in sign.text


async def test_a_hang_does_not_become_normal_by_lasting(site: Site) -> None:
    """What is normal is told by the time before the silence, however long the silence lasts."""
    await asyncio.sleep(2 * WINDOW.total_seconds())
    began = time.monotonic()
    site.exporters.set("DCGM_FI_DEV_POWER_USAGE", 290.0, JOB)
    site.exporters.set("DCGM_FI_DEV_GPU_UTIL", 100.0, JOB)
    await asyncio.sleep(2 * WINDOW.total_seconds() + 2)
    silence = timedelta(seconds=time.monotonic() - began)
    ask = Machines(site.settings)
    reading = await ask.read(hang.QUERIES, JOB, window=WINDOW, before=WINDOW, ago=silence)
    sign = hang.judge(reading, JOB, silence, site.settings)
    assert sign.verdict == "confirms", sign
    wrong = await ask.read(hang.QUERIES, JOB, window=WINDOW, before=WINDOW)
    assert hang.judge(wrong, JOB, silence, site.settings).verdict == "refutes", "so it would be without `ago`"


async def _save(site: Site) -> None:
    while True:
        site.exporters.write("node01", 100e6)
        await asyncio.sleep(0.2)


async def test_faults_show_when_they_are_new(site: Site) -> None:
    """A counter that was high before, and a gauge that keeps its last Xid, are history."""
    site.exporters.set("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 7.0, ["node01"], gpu=1)
    site.exporters.set("DCGM_FI_DEV_XID_ERRORS", 79.0, ["node01"], gpu=1)
    site.exporters.set("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1.0, ["node03"], gpu=0)
    await asyncio.sleep(WINDOW.total_seconds() + 3)
    read = await site.read(faults.QUERIES)
    assert read.problem == ""
    assert faults.faults(read, JOB) == []
    assert faults.xids(read, JOB) == []

    site.exporters.set("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 8.0, ["node01"], gpu=1)
    site.exporters.set("DCGM_FI_DEV_XID_ERRORS", 48.0, ["node01"], gpu=1)
    fault = await site.fault("ecc")
    assert (fault.node, fault.gpu) == ("node01", "1")
    assert faults.xids(await site.read(faults.QUERIES), JOB) == [("node01", "1", 48)]
    site.exporters.set("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 2.0, ["node02"], gpu=0)
    assert (await site.fault("nvlink")).node == "node02"
    site.exporters.lose("node02", 5)
    fault = await site.fault("gone")
    assert (fault.node, fault.gpu) == ("node02", "5")
    site.exporters.set("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", 64.0, ["node01"], gpu=2)
    site.exporters.set("DCGM_FI_DEV_SM_CLOCK", 210.0, ["node01"], gpu=2)
    end = time.monotonic() + 20
    while not (slow := faults.throttled(await site.read(faults.QUERIES + faults.CLOCKS), JOB)):
        assert time.monotonic() < end
        await asyncio.sleep(0.3)
    assert [(f.node, f.gpu) for f in slow] == [("node01", "2")]
    assert "14 other GPUs of the job run at 1980" in slow[0].says

    # A counter that was reset has not risen, and an exporter that is silent has lost no GPU.
    site.exporters.down("node01")
    await asyncio.sleep(WINDOW.total_seconds() + 2)
    assert [f for f in faults.faults(await site.read(faults.QUERIES), JOB) if f.node == "node01"] == []


async def test_what_answers_is_no_prometheus(tmp_path: Path) -> None:
    with Exporters(["node01"]) as exporters:
        settings = PrometheusSettings(url=f"http://127.0.0.1:{exporters.port}")
        read = await Machines(settings).read(hang.QUERIES, ["node01"], window=WINDOW)
    assert read.answers == {}
    assert read.problem.startswith("age: ")
