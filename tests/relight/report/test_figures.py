"""A history with known truth gives exactly its figures."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.audit.record import RecoveryAudit
from relight.contracts import Cause, Outcome
from relight.contracts.messages import EndReason
from relight.report.figures import Figures, figures
from relight.report.records import ChainEnd, Phase, Watch, chains, loss_of
from relight.report.spread import nearest_rank, spread
from tests.relight.report.making import SINCE, UNTIL, a_month, job, recovery, watch

DAY, HOUR, MINUTE = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)


def of(watches: list[Watch], audits: list[RecoveryAudit], write: timedelta | None = None) -> Figures:
    found = chains(watches, [loss_of(audit, UNTIL) for audit in audits], UNTIL)
    return figures(found, SINCE, UNTIL, write)


def at(day: float) -> datetime:
    return SINCE + day * DAY


# Ten days of 4 nodes (32 GPUs) with ten faults, each an hour: 5, 5, 10, 10 and 30 minutes.
STEADY = {"detect": 300, "decide": 300, "queue": 600, "load": 600, "replay": 1800}


def steady(**fields: object) -> Figures:
    mine = job(1, 4)
    audits = [recovery(mine, at(day + 0.5), **(STEADY | fields)) for day in range(10)]  # type: ignore[arg-type]
    return of([watch(mine, SINCE, at(10), end=EndReason.COMPLETED)], audits)


def test_a_known_history_gives_its_known_figures() -> None:
    found = steady()
    assert found.watched == 10 * 24 * 4
    assert found.lost == pytest.approx(10 * 4)
    assert found.ettr == pytest.approx(1 - 1 / 24)
    assert found.gpu_hours == pytest.approx(10 * 32)
    assert found.gpu_hours_by_phase[Phase.REPLAY] == pytest.approx(10 * 16)
    assert found.gpu_hours_by_phase[Phase.REST] == 0
    assert [(p.name, p.count, p.p50, p.p95, p.longest) for p in found.phases] == [
        ("detect", 10, 5 * MINUTE, 5 * MINUTE, 5 * MINUTE),
        ("decide", 10, 5 * MINUTE, 5 * MINUTE, 5 * MINUTE),
        ("queue", 10, 10 * MINUTE, 10 * MINUTE, 10 * MINUTE),
        ("load", 10, 10 * MINUTE, 10 * MINUTE, 10 * MINUTE),
        ("replay", 10, 30 * MINUTE, 30 * MINUTE, 30 * MINUTE),
    ]
    assert found.whole is not None
    assert (found.whole.count, found.whole.longest) == (10, HOUR)
    assert (found.recoveries, found.faults, found.outcomes) == (10, 10, {Outcome.RESUMED: 10})
    assert found.chains.ended_well.value == 1.0
    assert found.chains.attempts == 11


def test_the_forecast_says_what_was_measured_and_what_would_be_different() -> None:
    found = steady().forecast
    assert found is not None
    assert found.per_day == pytest.approx(1.0)
    assert found.rate == pytest.approx(0.25), "of four nodes"
    assert found.between_faults == DAY
    assert (found.restart, found.interval) == (30 * MINUTE, HOUR)
    assert found.lost_share == pytest.approx(1 / 24)
    now, *better = found.scenarios
    assert now.ettr == pytest.approx(1 - 1 / 24), (
        "with all faults alike, what is expected is what was measured"
    )
    # Of the hour that a fault costs, finding it takes 5 minutes, deciding 5, and training again half an hour.
    assert {one.name: round((one.ettr - now.ettr) * 24 * 60, 6) for one in better} == {
        "every fault found at once": 5,
        "every decision made at once": 5,
        "checkpoints twice as often": 15,
        "checkpoints four times as often": 22.5,
        "found and decided at once, checkpoints twice as often": 25,
    }
    assert better[0].gained_gpu_hours == pytest.approx(10 * 32 * 5 / 60)
    assert found.doubts == ()
    assert [point.interval for point in found.curve] == sorted(point.interval for point in found.curve)


def test_faults_of_large_runs_weigh_more() -> None:
    small, large = job(1, 2), job(2, 30)
    audits = [recovery(small, at(1), **STEADY), recovery(large, at(1), **(STEADY | {"detect": 3900}))]  # type: ignore[arg-type]
    found = of([watch(small), watch(large)], audits)
    assert found.forecast is not None
    # 32 node faults in 32 nodes * 30 days
    assert found.forecast.per_day == pytest.approx(1 / 30)
    assert found.forecast.restart == 30 * MINUTE + HOUR * 30 / 32
    assert found.ettr == pytest.approx(found.forecast.scenarios[0].ettr)
    assert found.forecast.doubts == ("2 faults are too few for a rate to rely on",)


def test_writing_checkpoints_has_its_price() -> None:
    mine = job(1, 4)
    audits = [recovery(mine, at(day + 0.5), **STEADY) for day in range(10)]  # type: ignore[arg-type]
    found = of([watch(mine, SINCE, at(10))], audits, 6 * MINUTE).forecast
    assert found is not None
    assert found.scenarios[0].ettr == pytest.approx((1 - 1 / 24) / 1.1)
    ettr = {one.name: one.ettr for one in found.scenarios}
    assert ettr["checkpoints four times as often"] < ettr["as measured"], "writing costs more than it saves"
    [advice] = found.intervals
    assert advice.young.total_seconds() == pytest.approx((2 * 360 * 86_400) ** 0.5)


@pytest.mark.parametrize(
    ("fields", "doubt"),
    [
        ({"queue": 40_000}, "faults cost"),
        ({"replay": 0}, "not known how often"),
    ],
)
def test_doubts_are_said(fields: dict[str, float], doubt: str) -> None:
    found = steady(**fields).forecast
    assert found is not None
    assert any(doubt in one for one in found.doubts)


def test_causes_are_told_apart_the_most_expensive_first() -> None:
    mine = job(1, 4)
    audits = [
        recovery(mine, at(1), cause=Cause.STORAGE, detect=3600),
        recovery(mine, at(2), cause=Cause.STORAGE, outcome=Outcome.HELD, detect=3600),
        recovery(mine, at(3), cause=Cause.USER_CODE, outcome=Outcome.EXPIRED),
        recovery(mine, at(4), cause=Cause.NVLINK),
        recovery(mine, at(5), cause=Cause.NVLINK, outcome=Outcome.REFUTED),
    ]
    found = of([watch(mine)], audits)
    assert [(cost.cause, cost.recoveries) for cost in found.costs] == [
        (Cause.STORAGE, 2), (Cause.NVLINK, 1), (Cause.USER_CODE, 1),
    ]  # fmt: skip
    assert found.costs[2].gpu_hours == 0
    assert found.cost_unknown == 1, "nobody decided: nothing was done, and nothing counted"
    held = found.costs[0].by_phase[Phase.REST]
    assert held == pytest.approx(32 * (120 + 300 + 600) / 3600), "after the hold nothing is known"
    assert sum(found.gpu_hours_by_phase.values()) == pytest.approx(found.gpu_hours)
    assert (found.recoveries, found.faults) == (5, 4)


def test_how_chains_ended() -> None:
    ends = [EndReason.COMPLETED] * 3 + [EndReason.STOPPED, EndReason.CANCELLED, None]
    watches = [watch(job(n), SINCE, UNTIL if end else None, end=end) for n, end in enumerate(ends)]
    audits = [recovery(job(n), at(1)) for n in range(1, 6)]
    audits += [recovery(job(0), at(1), outcome=Outcome.REFUTED)]
    found = of(watches, audits).chains
    assert (found.total, found.with_faults) == (6, 5), "a false alarm is no fault"
    assert found.ends == {
        ChainEnd.WELL: 2, ChainEnd.BADLY: 1, ChainEnd.BY_OTHERS: 1, ChainEnd.OPEN: 1,
    }  # fmt: skip
    assert (found.ended_well.value, found.ended_well.of) == (pytest.approx(2 / 3), 3)


def test_nothing_gives_nothing() -> None:
    found = of([], [])
    assert (found.ettr, found.recoveries, found.gpu_hours, found.forecast) == (None, 0, 0, None)
    assert found.chains.ended_well.value is None
    quiet = of([watch(job())], [])
    assert (quiet.ettr, quiet.forecast) == (1.0, None)
    forgotten = of([], [recovery(job(), at(1))])
    assert (forgotten.ettr, forgotten.left_out, forgotten.faults) == (None, 1, 1)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([1], 0.5, 1), ([1, 2], 0.5, 1), ([1, 2, 3], 0.5, 2), (list(range(1, 21)), 0.95, 19), ([1, 9], 0.95, 9)],
)
def test_percentiles_by_nearest_rank(values: list[int], share: float, expected: int) -> None:
    assert nearest_rank([v * MINUTE for v in values], share) == expected * MINUTE


@given(st.lists(st.timedeltas(timedelta(0), DAY), min_size=1))
def test_a_spread_is_of_measured_values(values: list[timedelta]) -> None:
    found = spread("x", values)
    assert found is not None
    assert found.p50 <= found.p95 <= found.longest == max(values)
    assert {found.p50, found.p95} <= set(values)
    assert min(values) <= found.mean <= found.longest


@pytest.mark.parametrize("seed", range(5))
def test_what_is_shown_adds_up(seed: int) -> None:
    found = a_month(seed).figures
    assert sum(found.outcomes.values()) + found.open == found.recoveries
    assert sum(cost.recoveries for cost in found.costs) == found.faults
    assert sum(found.gpu_hours_by_phase.values()) == pytest.approx(found.gpu_hours)
    assert sum(bucket.lost for bucket in found.buckets) == pytest.approx(found.lost)
    assert Figures.model_validate_json(found.model_dump_json()) == found
