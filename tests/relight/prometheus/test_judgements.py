"""What is made of Prometheus' answers. Pure."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.config import PrometheusSettings
from relight.contracts import Cause
from relight.prometheus import faults, hang
from relight.prometheus.queries import DEFAULTS, fill
from relight.prometheus.reading import Reading, Value, host, read_vector

NODES = ("n1", "n2")
GPUS = [(node, str(gpu)) for node in NODES for gpu in range(8)]
SETTINGS = PrometheusSettings(url="http://p:9090")
LONG = timedelta(minutes=2)


def reading(problem: str = "", **answers: dict[tuple[str, str], float]) -> Reading:
    told = {
        name: tuple(Value(node, gpu, value) for (node, gpu), value in values.items())
        for name, values in answers.items()
    }
    return Reading(answers=told, problem=problem)


def gpus(
    least: float,
    most: float,
    power: float,
    before: float | None = 600.0,
    age: float = 5.0,
    seen_for: float = 110.0,
    **more: Any,
) -> dict[str, Any]:
    found = {
        "age": dict.fromkeys(GPUS, age),
        "utilisation_least": dict.fromkeys(GPUS, least),
        "utilisation_most": dict.fromkeys(GPUS, most),
        "power": dict.fromkeys(GPUS, power),
    }
    found["seen_for"] = dict.fromkeys(GPUS, seen_for)
    if before is not None:
        found["power_before"] = dict.fromkeys(GPUS, before)
    return found | more


def io(now: float, usual: float = 1e6) -> dict[str, Any]:
    return {"io": {("n1", ""): now, ("n2", ""): 0.0}, "io_before": {("n1", ""): usual}}


def part(values: dict[tuple[str, str], float], share: float, other: float) -> dict[tuple[str, str], float]:
    """The last of the GPUs show something else."""
    keep = round(share * len(values))
    return {gpu: value if n < keep else other for n, (gpu, value) in enumerate(values.items())}


PINNED = gpus(100, 100, 300)
TRAINS = gpus(80, 100, 590)


@pytest.mark.parametrize(
    ("told", "silence", "verdict", "says"),
    [
        (PINNED, LONG, "confirms", "16 GPUs are at full utilisation with 50% of their usual power"),
        (gpus(0, 0, 90), LONG, "confirms", "16 GPUs are idle"),
        (TRAINS, LONG, "refutes", "16 of 16 GPUs draw 98% of their usual power: they compute"),
        (gpus(100, 100, 600), LONG, "refutes", "they compute"),
        (PINNED | io(300e6), LONG, "refutes", "n1 writes 300 MB/s (usually 1): it may save a checkpoint"),
        (gpus(0, 3, 90) | io(300e6), LONG, "refutes", "may save a checkpoint"),
        (PINNED | io(10e6), LONG, "confirms", "full utilisation"),
        (PINNED | io(300e6, usual=200e6), LONG, "confirms", "full utilisation"),
        (PINNED, timedelta(seconds=10), "unknown", "too short"),
        (gpus(100, 100, 300, age=300), LONG, "unknown", "0 of 2 nodes"),
        (gpus(100, 100, 300, seen_for=20), LONG, "unknown", "span 20 s, and 30 s are needed"),
        (gpus(0, 0, 90, seen_for=20), LONG, "unknown", "span 20 s"),
        (PINNED | {"seen_for": {}}, LONG, "unknown", "span 0 s"),
        (gpus(100, 100, 300, before=None), LONG, "unknown", "0 wait, 0 are idle and 0 compute"),
        (PINNED | {"power": part(PINNED["power"], 0.7, 600)}, LONG, "unknown", "11 wait"),
        ({}, LONG, "unknown", "0 of 2 nodes"),
    ],
)  # fmt: skip
def test_a_silent_job(told: dict[str, Any], silence: timedelta, verdict: str, says: str) -> None:
    sign = hang.judge(reading(**told), NODES, silence, SETTINGS)
    assert (sign.verdict, says in sign.text) == (verdict, True), sign


def test_half_of_the_nodes_missing_is_unknown_and_no_answer_is_not_available() -> None:
    half = {gpu: age for gpu, age in PINNED["age"].items() if gpu[0] == "n1"}
    assert hang.judge(reading(**(PINNED | {"age": half})), NODES, LONG, SETTINGS).verdict == "unknown"
    sign = hang.judge(reading("age: no route", **PINNED), NODES, LONG, SETTINGS)
    assert (sign.verdict, "no route" in sign.text) == ("not available", True)


def test_other_jobs_nodes_say_nothing() -> None:
    sign = hang.judge(reading(**PINNED), ("n3",), LONG, SETTINGS)
    assert sign.verdict == "unknown"


def test_faults_of_gpus() -> None:
    found = faults.faults(
        reading(
            ecc={("n1", "3"): 1.02, ("n9", "0"): 5},
            nvlink={("n2", "0"): 12},
            gone={("n2", "5"): 60, ("n1", "7"): 60},
            present={("n2", "0"): 60},
        ),
        NODES,
    )
    assert [(f.name, f.node, f.gpu, f.hold_out) for f in found] == [
        ("ecc", "n1", "3", True),
        ("nvlink", "n2", "0", False),
        ("gone", "n2", "5", True),
    ]
    assert found[0].says == "GPU 3 of n1: 1 more uncorrected memory errors"


@pytest.mark.parametrize(
    ("shown", "suspected", "confirmed"),
    [
        ("ecc", Cause.GPU_MEMORY_ECC, True),
        ("ecc", Cause.GPU_FALLEN_OFF_BUS, True),
        ("nvlink", Cause.NVLINK, True),
        ("nvlink", Cause.GPU_MEMORY_ECC, False),
    ],
)
def test_what_a_fault_confirms(shown: str, suspected: Cause, confirmed: bool) -> None:
    told: dict[str, Any] = {shown: {("n1", "3"): 2.0}}
    [fault] = faults.faults(reading(**told), NODES)
    assert faults.speaks_for(fault, suspected) is confirmed


@pytest.mark.parametrize(
    ("clock", "reasons", "peers", "told"),
    [
        (300, 0x40, 15, True),
        (300, 0x4, 15, False),  # by software, as configured
        (1900, 0x40, 15, False),
        (300, 0x40, 3, False),
    ],
)
def test_a_throttled_gpu_is_judged_against_its_peers(
    clock: int, reasons: int, peers: int, told: bool
) -> None:
    others = dict.fromkeys(GPUS[1 : peers + 1], 1980.0)
    read = reading(held={GPUS[0]: reasons}, clock={GPUS[0]: clock, **others})
    found = faults.throttled(read, NODES)
    assert [(f.node, f.gpu) for f in found] == ([GPUS[0]] if told else [])


@pytest.mark.parametrize("name", DEFAULTS)
def test_every_query_can_be_filled(name: str) -> None:
    query = fill(DEFAULTS[name], window=60, before=1800, match='{Hostname=~"n1"}')
    assert "$" not in query


def test_what_is_normal_ended_when_the_silence_began() -> None:
    query = fill(DEFAULTS["power_before"], window=600, before=1800, ago=3600)
    assert query == "quantile_over_time(0.5, DCGM_FI_DEV_POWER_USAGE[1800s] offset 3600s)"
    assert "[600s:30s]" in fill(DEFAULTS["seen_for"], window=600, before=1800)


def test_a_query_that_names_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a query names \$nodes; it may name"):
        fill("up{$nodes}", window=1, before=1)


@pytest.mark.parametrize(
    ("text", "name"),
    [("n1", "n1"), ("n1:9400", "n1"), ("n1.example.org:9400", "n1"), ("gpu-03.a.b", "gpu-03"), ("", "")],
)
def test_names_of_hosts(text: str, name: str) -> None:
    assert host(text) == name


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["metric", "value", "gpu"]), inner)
    ),
    max_leaves=8,
)


@given(st.lists(JSON, max_size=5))
def test_an_answer_of_any_shape_is_read_or_left_out(answer: list[Any]) -> None:
    for value in read_vector(answer, ["Hostname"], None):
        assert value.node


def test_a_series_without_labels_is_left_out() -> None:
    assert read_vector([{"metric": None, "value": [1, "7"]}], ["Hostname"], None) == ()


def test_what_is_no_number_is_unknown() -> None:
    metric = {"Hostname": "n1.example", "gpu": "0"}
    answer = [{"metric": metric, "value": [1, text]} for text in ("NaN", "+Inf", "x", "7")]
    assert read_vector(answer, ["node", "Hostname"], {"n1": "n1"}) == (Value("n1", "0", 7.0),)
