"""`relight show`: the timeline of an open recovery, and a job that was submitted anew under another id."""

import json
import re
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from rich.console import Console

from relight.cli.recovery_view import timeline_of
from relight.contracts import Timeline, TrainingJob
from relight.contracts.ids import monitor_id
from tests.relight.cli.conftest import Relight, Temporal
from tests.relight.cli.stand_ins import HANGS, T0

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("stand_ins")]


def until(test: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not test():
        assert time.monotonic() < end
        time.sleep(0.1)


def recover(temporal: Temporal, relight: Relight, job: TrainingJob, target: str) -> None:
    temporal(lambda client: client.get_workflow_handle(monitor_id(job.attempt)).signal("recover"))
    until(lambda: json.loads(relight("show", target, "--json").stdout)["recoveries"])


def submit_anew(temporal: Temporal, relight: Relight, job: TrainingJob, new_id: str) -> None:
    handle = monitor_id(job.attempt)
    temporal(lambda client: client.get_workflow_handle(handle).signal("resubmitted", new_id))
    until(lambda: relight("mode", new_id, "observe").exit_code == 0)


def test_the_timeline_of_an_open_recovery(temporal: Temporal, relight: Relight, watched: TrainingJob) -> None:
    job_id = watched.attempt.job_id
    recover(temporal, relight, watched, job_id)
    shown = json.loads(relight("show", job_id, "--json").stdout)
    times = shown["recoveries"][0]["times"]
    assert times["occurred"] == "2026-12-02T03:00:00Z"
    assert times["detected"] == "2026-12-02T03:00:01Z"
    assert times["approved"] is None
    text = relight("show", job_id).stdout
    assert re.search(r"detected +\S+ +1.00s +1.00s", text)
    assert re.search(r"now: awaiting-approval", text)
    assert re.search(r"approved +not yet", text)


def test_a_hang_whose_plan_was_rejected_is_no_healthy_job(
    temporal: Temporal, relight: Relight, watched: TrainingJob
) -> None:
    job_id = watched.attempt.job_id
    recover(temporal, relight, watched, job_id)
    assert relight("reject", job_id, "--reason", HANGS, "--yes").exit_code == 0

    def listed() -> dict[str, object]:
        found = json.loads(relight("jobs", "--json").stdout)
        return next(job for job in found if job["job"]["attempt"]["job_id"] == job_id)

    until(lambda: listed()["stands_still"])
    shown = relight("show", job_id).stdout
    assert f"its plan was rejected ({HANGS})" in " ".join(shown.split())
    assert "healthy job" not in shown
    why = json.loads(relight("why", job_id, "--json").stdout)
    assert why["closed"][0]["gate"] == "declined"


def test_the_id_from_before_a_resubmission(
    temporal: Temporal, relight: Relight, watched: TrainingJob
) -> None:
    old, new = watched.attempt.job_id, f"{watched.attempt.job_id}99"
    submit_anew(temporal, relight, watched, new)
    by_monitor = relight("show", old, "--json")
    assert by_monitor.exit_code == 0, "the monitor's own id keeps the first id of the job"
    shown = json.loads(by_monitor.stdout)
    assert (shown["job"]["attempt"]["job_id"], shown["earlier_ids"]) == (new, [old])
    assert f"job {old} was submitted anew, and is job {new} now" in by_monitor.stderr
    assert re.search(rf"earlier ids +{old}", relight("show", old).stdout)
    refused = relight("mode", old, "act")
    assert refused.exit_code == 5, "to change something, say the id that is meant: ids are given again"
    assert f"is job {new} now" in refused.stderr


def test_ids_between_the_first_and_the_last(
    temporal: Temporal, relight: Relight, watched: TrainingJob
) -> None:
    old, second, third = (f"{watched.attempt.job_id}{more}" for more in ("", "77", "88"))
    submit_anew(temporal, relight, watched, second)
    recover(temporal, relight, watched, second)
    submit_anew(temporal, relight, watched, third)
    shown = json.loads(relight("show", second, "--json").stdout)
    assert (shown["job"]["attempt"]["job_id"], shown["earlier_ids"]) == (third, [old, second])


@pytest.mark.parametrize(
    ("times", "now", "rows"),
    [
        (
            Timeline(occurred=T0, detected=T0 + timedelta(seconds=2), acted=T0 + timedelta(seconds=5)),
            None,
            ["fault 0.00s -", "detected 2.00s 2.00s", "acted: requeue accepted 5.00s 3.00s"],
        ),
        (
            Timeline(occurred=T0, detected=T0 + timedelta(seconds=2)),
            10,
            [
                "fault 0.00s -", "detected 2.00s 2.00s", "now: verifying 10.0s 8.00s", "confirmed not yet",
                "approved not yet", "acted: requeue accepted not yet", "running again not yet",
                "past the failed step not yet",
            ],
        ),
        (Timeline(), None, []),
    ],
)  # fmt: skip
def test_rows(times: Timeline, now: int | None, rows: list[str]) -> None:
    out = Console(width=200)
    at = T0 + timedelta(seconds=now) if now is not None else None
    with out.capture() as shown:
        out.print(timeline_of(times, at, "verifying"))
    _, *lines = shown.get().splitlines()
    told = [re.sub(r"\d\d:\d\d:\d\d\.\d\d ", "", " ".join(line.split())) for line in lines]
    assert told == rows
