"""The pure parts of the benchmark of the control plane, and the simulated cluster as relight reads it."""

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from bench.scale.cluster import START_DELAY, Cluster, Refused
from bench.scale.fit import fit, quantile
from bench.scale.histories import Parts, Rates, Share, forecast, parts
from bench.scale.processes import read_metrics
from relight.contracts import JobState
from relight.scheduler import slurm_text

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SEP = "@1@"


@pytest.mark.parametrize(
    ("costs", "exponent", "words"),
    [
        ([5.0, 5.0, 5.0], 0.0, "does not grow"),
        ([1.0, 100.0, 10_000.0], 1.0, "linear"),
        ([1.0, 10_000.0, 100_000_000.0], 2.0, "grows faster than the jobs"),
        ([10.0, 100.0, 1_000.0], 0.5, "grows slower than the jobs"),
    ],
)
def test_growth(costs: list[float], exponent: float, words: str) -> None:
    found = fit([1, 100, 10_000], costs)
    assert found.exponent == pytest.approx(exponent)
    assert found.words == words


def test_a_line_is_found() -> None:
    found = fit([1, 100, 1000], [102.0, 300.0, 2100.0])
    assert (found.base, found.slope, found.r2) == (pytest.approx(100), pytest.approx(2), pytest.approx(1))


@pytest.mark.parametrize("jobs", [[], [5], [5, 5]])
def test_growth_needs_two_sizes(jobs: list[float]) -> None:
    with pytest.raises(ValueError, match="two different"):
        fit(jobs, jobs)


def test_a_cost_of_nothing_has_no_exponent() -> None:
    assert fit([1, 10], [0.0, 0.0]).words == "unknown"


def test_quantiles_are_values_that_were_measured() -> None:
    assert [quantile([3.0, 1.0, 2.0], q) for q in (0.5, 0.99, 0.0)] == [2.0, 3.0, 1.0]
    with pytest.raises(ValueError, match="no value"):
        quantile([], 0.5)


def _events(*kinds: str) -> list[HistoryEvent]:
    return [HistoryEvent(event_type=EventType.Value(f"EVENT_TYPE_{kind}")) for kind in kinds]


TASK = ("WORKFLOW_TASK_SCHEDULED", "WORKFLOW_TASK_STARTED", "WORKFLOW_TASK_COMPLETED")
LOOK = ("TIMER_FIRED", *TASK, "ACTIVITY_TASK_SCHEDULED", "TIMER_STARTED", "ACTIVITY_TASK_STARTED")


def test_a_history_is_divided_by_what_caused_it() -> None:
    signal = ("WORKFLOW_EXECUTION_SIGNALED", *TASK)
    found = parts(
        _events(
            "WORKFLOW_EXECUTION_STARTED", *TASK, *signal, *signal, *LOOK, "ACTIVITY_TASK_COMPLETED", *TASK
        )
    )
    assert (found.signals.times, found.signals.events, found.signals.actions) == (2, 8, 2)
    assert (found.looks.times, found.looks.events, found.looks.actions) == (1, 11, 2)
    assert (found.start.times, found.start.events, found.start.actions) == (1, 4, 1)
    assert found.signals.bytes == sum(event.ByteSize() for event in _events(*signal, *signal))


def test_the_cost_of_a_day_is_extrapolated_from_what_was_measured() -> None:
    found = Parts(signals=Share(10, 40, 4000, 10), looks=Share(2, 22, 1000, 4))
    cost = forecast(found, Rates(signals_per_day=288, looks_per_day=288), renew_after=4096)
    assert cost["events_per_day"] == 288 * 4 + 288 * 11
    assert cost["renewals_per_day"] == pytest.approx(288 * 15 / 4096)
    assert cost["actions_per_day"] == pytest.approx(288 * 3 + 288 * 15 / 4096)
    assert cost["history_bytes_per_month"] == pytest.approx(30 * (288 * 400 + 288 * 500))
    assert cost["longest_history_bytes"] == pytest.approx(4096 * 900 / 15)


def test_nothing_is_said_of_what_was_not_seen() -> None:
    with pytest.raises(ValueError, match="too short"):
        forecast(Parts(signals=Share(1, 4, 400, 1)), Rates(1, 1), renew_after=4096)


def test_metrics_are_read_and_of_several_series_the_largest_counts() -> None:
    text = '# HELP relight_a x\nrelight_a 3.0\nrelight_b{job="1"} 0.5\nrelight_b{job="2"} 2.5\nother 1\n'
    assert read_metrics(text) == {"relight_a": 3.0, "relight_b": 2.5}


class Written:
    def __init__(self, jobs: int = 3) -> None:
        self.lines: list[tuple[str, str]] = []
        self.cluster = Cluster(
            jobs, "/logs", timedelta(seconds=10), NOW, lambda *line: self.lines.append(line)
        )

    def jobs(self, now: datetime = NOW) -> dict[str, JobState]:
        columns = slurm_text.format_option(slurm_text.JOB_FIELDS, SEP)
        main = self.cluster.run("squeue", ["--all", f"--Format={columns}"], now)
        excluded = self.cluster.run("squeue", ["--all", f"--format=%i{SEP}%x{SEP}"], now)
        return {name: info.state for name, info in slurm_text.job_infos(main, excluded, SEP).items()}


def test_the_adapter_reads_the_simulated_listings() -> None:
    sim = Written()
    assert sim.jobs() == dict.fromkeys(("1", "2", "3"), JobState.RUNNING)
    option = slurm_text.format_option(slurm_text.NODE_FIELDS, SEP)
    nodes = slurm_text.node_infos(
        sim.cluster.run("sinfo", ["--all", "--nodes=node[00001-00002]", f"--Format={option}"], NOW), SEP
    )
    assert sorted(nodes) == ["node00001", "node00002"]
    assert not any(node.is_lost for node in nodes.values())
    config = slurm_text.settings(sim.cluster.run("scontrol", ["show", "config"], NOW))
    assert config["ClusterName"] == "simulated"


def test_a_failed_job_that_is_requeued_and_released_trains_past_where_it_failed() -> None:
    sim = Written(1)
    at = NOW
    for _ in range(6):
        at += timedelta(seconds=10)
        sim.cluster.tick(at)
    failed_at = sim.cluster.jobs[1].step
    sim.cluster.fail([1], at)
    assert sim.jobs(at) == {"1": JobState.FAILED}
    sim.cluster.run("scontrol", ["requeuehold", "1"], at)
    assert sim.jobs(at) == {"1": JobState.PENDING}
    sim.cluster.run("scontrol", ["update", "JobId=1", "StartTime=now"], at)
    sim.cluster.run("scontrol", ["release", "1"], at)
    sim.cluster.tick(at + START_DELAY)
    assert sim.jobs(at) == {"1": JobState.RUNNING}
    for seconds in range(2, 8):
        sim.cluster.tick(at + timedelta(seconds=seconds))
    assert sim.cluster.jobs[1].step > failed_at
    assert sim.cluster.jobs[1].restarts == 1
    assert "iteration" in sim.lines[-1][1]


@pytest.mark.parametrize(
    ("program", "args"),
    [("scontrol", ["requeuehold", "9"]), ("sacct", []), ("scontrol", ["reboot"]), ("sbatch", ["x"])],
)
def test_what_it_does_not_know_fails(program: str, args: list[str]) -> None:
    with pytest.raises(Refused):
        Written().cluster.run(program, args, NOW)
