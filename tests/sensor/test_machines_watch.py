"""What the sensor makes of one reading after the other. The readings and the clock are the test's."""

from datetime import UTC, datetime, timedelta

import pytest

from relight.config import PrometheusSettings
from relight.prometheus.reading import Reading, Value
from sensor.machines_watch import MachinesWatch

START = datetime(2026, 12, 2, 5, 0, tzinfo=UTC)
NODES = ("n1", "n2")
GPUS = [(node, str(gpu)) for node in NODES for gpu in range(8)]
HEALTHY = {"clock": dict.fromkeys(GPUS, 1980.0)}
ECC = HEALTHY | {"ecc": {("n1", "3"): 1.0}}
HOT = {"clock": HEALTHY["clock"] | {GPUS[2]: 300.0}, "held": {GPUS[2]: 64.0}}

Told = dict[str, dict[tuple[str, str], float]]


class Scene:
    """A watch; Prometheus answers what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.watch = MachinesWatch(PrometheusSettings(url="http://p:9090"))
        self.now = START
        self.asked: list[tuple[str, ...]] = []
        self.told: Told = HEALTHY
        self.problem = ""
        monkeypatch.setattr("relight.prometheus.machines.Machines.read", self._read)

    async def _read(self, names: tuple[str, ...], nodes: list[str], **_: object) -> Reading:
        self.asked.append(tuple(nodes))
        told = {
            name: tuple(Value(node, gpu, value) for (node, gpu), value in values.items() if node in nodes)
            for name, values in self.told.items()
            if name in names
        }
        return Reading(answers=told, problem=self.problem)

    async def after(
        self, seconds: float, told: Told, *, started: datetime | None = START, problem: str = ""
    ) -> list[str]:
        """The names of the faults that the next reading shows."""
        self.now += timedelta(seconds=seconds)
        self.told, self.problem = told, problem
        await self.watch.poll(NODES, self.now)
        return [f.name for f in self.watch.of(NODES, started, self.now)]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


async def test_a_fault_that_comes_is_the_attempts(scene: Scene) -> None:
    assert await scene.after(5, HEALTHY) == []
    assert await scene.after(15, ECC) == ["ecc"]
    assert await scene.after(15, ECC) == ["ecc"]
    assert scene.asked == [NODES] * 3  # and not for clocks, since no GPU is held down


async def test_a_fault_of_the_attempt_before_is_not_held_against_this_one(scene: Scene) -> None:
    assert await scene.after(5, HEALTHY) == []
    assert await scene.after(15, ECC) == ["ecc"]
    second = scene.now + timedelta(seconds=10)
    assert await scene.after(15, ECC, started=second) == []
    both = ECC | {"nvlink": {("n2", "0"): 3.0}}
    assert await scene.after(15, both, started=second) == ["nvlink"]


async def test_at_first_only_an_attempt_as_old_as_the_window_can_own_a_fault(scene: Scene) -> None:
    assert await scene.after(60, ECC) == []
    assert await scene.after(60, ECC) == []  # it is the same one
    old = scene.now - timedelta(hours=1)
    assert await scene.after(1, ECC, started=old) == ["ecc"]
    assert await scene.after(1, ECC, started=None) == ["ecc"]


async def test_a_gap_makes_the_time_of_a_fault_unknown(scene: Scene) -> None:
    assert await scene.after(5, HEALTHY) == []
    second = scene.now + timedelta(seconds=30)
    assert await scene.after(15, {}, problem="no route") == []
    assert scene.watch.problem == "no route"
    assert await scene.after(60, ECC, started=second) == []
    assert scene.watch.problem == ""


async def test_a_part_of_an_answer_is_used(scene: Scene) -> None:
    assert await scene.after(5, HEALTHY) == []
    assert await scene.after(15, ECC, problem="xid: HTTP Status Code 400") == ["ecc"]


async def test_a_throttled_gpu_is_told_once_it_is_so_for_long_enough(scene: Scene) -> None:
    assert await scene.after(5, HOT) == []
    assert await scene.after(15, HOT) == []
    assert await scene.after(15, HOT) == ["held"]
    assert await scene.after(15, HEALTHY) == []
    assert await scene.after(15, HOT) == []
