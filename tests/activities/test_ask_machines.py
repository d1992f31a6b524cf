"""What Prometheus is asked about a fault, and what becomes of its answers."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from activities.ask_machines import NORMAL, SHORTEST_NORMAL, about_hardware, about_silence, normal_time
from activities.common import Context
from relight.config import PrometheusSettings, Settings
from relight.contracts import Cause, Diagnosis, Source, Suspect, Symptom
from tests.activities.double import Double
from tests.prometheus.answering import Handler, serving

NOW = datetime(2026, 12, 2, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("silence", "ran", "normal"),
    [
        (60, None, NORMAL),
        (60, 86_400, NORMAL),
        (60, 660, timedelta(minutes=10)),
        (3600, 3660, timedelta(minutes=1)),
        (60, 60, SHORTEST_NORMAL),
        (60, 30, SHORTEST_NORMAL),
    ],
)
def test_what_is_normal_is_told_by_this_attempt(silence: int, ran: int | None, normal: timedelta) -> None:
    started = None if ran is None else NOW - timedelta(seconds=ran)
    assert normal_time(timedelta(seconds=silence), started, NOW) == normal


def context(double: Double, tmp_path: Path, url: str) -> Context:
    return Context(double, Settings(state_dir=tmp_path, prometheus=PrometheusSettings(url=url)))


def diagnosis(cause: Cause, symptom: Symptom = Symptom.CRASH) -> Diagnosis:
    at = datetime.now(UTC)
    return Diagnosis(
        symptom=symptom,
        cause=cause,
        retryable=True,
        occurred_at=at,
        detected_at=at,
        suspects=(Suspect(node="n1", because="its log says so"),),
    )


def query_of(path: str) -> str:
    return parse_qs(urlsplit(path).query)["query"][0]


def vector(*series: tuple[dict[str, str], float]) -> bytes:
    result = [{"metric": metric, "value": [0, str(value)]} for metric, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def nvlink_errors(handler: Handler) -> None:
    """Of one GPU of the suspected node and of one elsewhere; nothing else is wrong."""
    found = ({"Hostname": "n1", "gpu": "2"}, 4.0), ({"Hostname": "n2", "gpu": "0"}, 9.0)
    handler.say(vector(*found) if "NVLINK" in query_of(handler.path) else vector())


async def test_a_long_silence_is_judged_by_its_end_and_by_the_time_before_it(
    double: Double, tmp_path: Path
) -> None:
    with serving(lambda handler: handler.say(vector())) as (url, asked):
        said = await about_silence(
            context(double, tmp_path, url),
            diagnosis(Cause.UNKNOWN, Symptom.HANG),
            ["n1", "n2"],
            timedelta(hours=2),
            datetime.now(UTC) - timedelta(hours=3),
        )
    assert said is not None
    assert said.verdict == "unknown"
    queries = {query_of(path) for path, _ in asked}
    assert "avg_over_time(DCGM_FI_DEV_POWER_USAGE[600s])" in queries
    assert "quantile_over_time(0.5, DCGM_FI_DEV_POWER_USAGE[1800s] offset 7200s)" in queries


@pytest.mark.parametrize(
    ("suspected", "verdict"),
    [(Cause.NVLINK, "confirms"), (Cause.GPU_MEMORY_ECC, "unknown")],
)
async def test_a_fault_of_the_suspected_kind_and_node_confirms(
    double: Double, tmp_path: Path, suspected: Cause, verdict: str
) -> None:
    with serving(nvlink_errors) as (url, _):
        said = await about_hardware(context(double, tmp_path, url), diagnosis(suspected), ["n1", "n2"])
    assert said is not None
    assert said.verdict == verdict, said
    if verdict == "confirms":
        [evidence] = said.evidence
        assert (evidence.source, evidence.node, evidence.gpu) == (Source.PROMETHEUS, "n1", "2")


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:9"])
async def test_no_prometheus_says_nothing(double: Double, tmp_path: Path, url: str) -> None:
    said = await about_hardware(context(double, tmp_path, url), diagnosis(Cause.NVLINK), ["n1"])
    assert (said.verdict if said else None) == ("not available" if url else None)
