"""The simulated run, against the published closed formula; and what measured recoveries are taken for."""

from typing import Any

import numpy as np
import pytest

from bench.ettr import published
from bench.ettr.measured import Recovery, Unusable, recoveries
from bench.ettr.model import closed_formula, simulate
from bench.ettr.published import DAY, MINUTE, Fault
from bench.ettr.strategies import KINDS, Setting, Struck, person, relight, requeue, strike

MEASURED = (
    Recovery(Fault.CRASH, True, 0.5, 2.0),
    Recovery(Fault.HANG, True, 4.3, 3.0),
    Recovery(Fault.NODE_LOSS, True, 1.3, 9.0),
)


@pytest.mark.parametrize("source", published.RATES)
@pytest.mark.parametrize("gpus", [256, 1024, 4096, 16384])
@pytest.mark.parametrize("down_minutes", [1.5, 5.0, 15.0])
@pytest.mark.parametrize("checkpoint", [(10, 0), (30, 0), (30, 60), (60, 120)])
def test_it_agrees_with_the_published_formula_where_that_holds(
    source: str, gpus: int, down_minutes: float, checkpoint: tuple[float, float]
) -> None:
    every, takes = checkpoint[0] * MINUTE, float(checkpoint[1])
    failures = gpus / 8 * published.RATES[source] / 1000 / DAY
    lost = failures * (down_minutes * MINUTE + every / 2)
    if lost > 0.2:  # it is a first order in what is lost, and published as good to 5 %
        assert closed_formula(failures, down_minutes * MINUTE, every, takes) < 0.81
        return

    def down(struck: Struck, rng: np.random.Generator) -> Any:
        return np.full(len(struck), down_minutes * MINUTE)

    setting = Setting(checkpoint_every=every, checkpoint_takes=takes)
    found = simulate(failures, down, setting, length=60 * DAY, runs=60, seed=7)
    formula = closed_formula(failures, down_minutes * MINUTE, every, takes)
    assert found.mean == pytest.approx(formula, rel=0.05)
    assert found.low <= found.mean <= found.high
    assert found.failures == pytest.approx(failures * 60 * DAY * (1 - lost), rel=0.2)


def test_the_same_seed_gives_the_same_run() -> None:
    setting = Setting()
    runs = [simulate(1e-4, person(setting), setting, length=10 * DAY, runs=5, seed=s) for s in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_the_mix_is_that_of_the_table() -> None:
    assert sum(n for _, n, _, _ in published.LLAMA_3) == 419
    struck = strike(200_000, np.random.default_rng(1))
    hangs = sum(n for _, n, fault, _ in published.LLAMA_3 if fault is Fault.HANG) / 419
    assert struck.of(Fault.HANG).mean() == pytest.approx(hangs, rel=0.05)
    assert struck.persists.mean() < 1 - published.TRANSIENT


def _one(fault: Fault, *, persists: bool = False) -> Struck:
    return Struck(np.array([KINDS.index(fault)]), np.array([persists]))


@pytest.mark.parametrize(
    ("fault", "persists", "by_person", "by_slurm", "by_relight"),
    [
        (Fault.CRASH, False, 4080, 421, 302.5),
        (Fault.CRASH, True, 4080, 421 + 4080, 302.5),
        (Fault.HANG, False, 4680, 1021, 60 - 4 + 4.3 + 303),
        (Fault.NODE_LOSS, True, 4080, 721, 300 + 1.3 + 309),
        (Fault.SILENT, False, 4080, 4080, 4080),
    ],
)
def test_how_long_a_run_is_down(
    fault: Fault, persists: bool, by_person: float, by_slurm: float, by_relight: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(published, "NAMED", 1.0)
    setting, struck, rng = Setting(), _one(fault, persists=persists), np.random.default_rng(1)
    assert person(setting)(struck, rng)[0] == by_person
    assert requeue(setting)(struck, rng)[0] == by_slurm
    assert relight(setting, MEASURED)(struck, rng)[0] == pytest.approx(by_relight)


def test_where_the_node_is_not_known_a_fault_that_persists_takes_a_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(published, "NAMED", 0.0)
    took = relight(Setting(), MEASURED)(_one(Fault.CRASH, persists=True), np.random.default_rng(1))
    assert took[0] == pytest.approx(302.5 + published.PERSON)


def test_a_recovery_that_did_not_resume_takes_a_person() -> None:
    measured = (Recovery(Fault.CRASH, resumed=False), *MEASURED[1:])
    assert relight(Setting(), measured)(_one(Fault.CRASH), np.random.default_rng(1))[0] == published.PERSON


RECOVERY = {
    "bench": "recovery",
    "runs": [
        {
            "scenario": name,
            "outcome": "resumed",
            "detected": 1.0,
            "acted": 2.0,
            "running": 3.0,
            "productive": 4.0,
        }
        for name in ("crash", "hang", "node-loss")
    ],
}


def _fault_run(scenario: str, **more: Any) -> dict[str, Any]:
    seconds = {"detected": 1.0, "added": 4.0, "slurm": 2.5}
    return {"scenario": scenario, "problem": "", "verdict": {"ended_well": True}, "seconds": seconds, **more}


def test_recoveries_of_the_recovery_benchmark() -> None:
    found = recoveries(RECOVERY)
    assert found[0] == Recovery(Fault.CRASH, True, 1.0, 5.0)
    assert [one.fault for one in found] == [Fault.CRASH, Fault.HANG, Fault.NODE_LOSS]


def test_recoveries_of_the_fault_suite() -> None:
    runs = [
        _fault_run("segfault"),
        _fault_run("hang"),
        _fault_run("node-frozen"),
        _fault_run("exception", verdict={"ended_well": False}),
        _fault_run("exception", problem="no job came up", verdict={}),
        _fault_run("scancel"),
    ]
    found = recoveries({"bench": "faults", "runs": runs})
    assert found[0] == Recovery(Fault.CRASH, True, 1.0, 5.5)
    assert [(one.fault, one.resumed) for one in found] == [
        (Fault.CRASH, True),
        (Fault.HANG, True),
        (Fault.NODE_LOSS, True),
        (Fault.CRASH, False),
    ]


@pytest.mark.parametrize(
    ("result", "lacks"),
    [
        ({"bench": "scan", "runs": []}, "bench.scan"),
        ({"bench": "recovery", "runs": RECOVERY["runs"][:2]}, "node-loss"),  # type: ignore[index]
    ],
)
def test_what_a_result_lacks_is_told(result: dict[str, Any], lacks: str) -> None:
    with pytest.raises(Unusable, match=lacks):
        recoveries(result)
