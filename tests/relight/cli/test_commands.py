"""The commands against a real Temporal: monitors and recoveries are stand-ins in the states that matter."""

import json
import time

import pytest
from temporalio.client import Client

from relight.cli.watch import start_monitor
from relight.config import Settings
from relight.contracts import Mode, Outcome, RecoveryOutcome, TrainingJob
from relight.contracts.ids import monitor_id, recovery_id
from tests.relight.cli.conftest import Relight, Temporal
from tests.relight.cli.stand_ins import HOSTILE, PLAN, a_job

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("stand_ins")]


@pytest.fixture
def waiting(temporal: Temporal, watched: TrainingJob, relight: Relight) -> TrainingJob:
    """A watched job whose recovery waits for a person."""
    temporal(lambda client: client.get_workflow_handle(monitor_id(watched.attempt)).signal("recover"))
    end = time.monotonic() + 30
    while time.monotonic() < end:
        shown = json.loads(relight("show", watched.attempt.job_id, "--json").stdout)
        if shown["recoveries"] and shown["recoveries"][0]["status"]:
            return watched
        time.sleep(0.05)
    raise AssertionError("no recovery came")


def outcome(temporal: Temporal, job: TrainingJob) -> RecoveryOutcome:
    async def result(client: Client) -> RecoveryOutcome:
        handle = client.get_workflow_handle(recovery_id(job.attempt, "anomaly1"), result_type=RecoveryOutcome)
        ended: RecoveryOutcome = await handle.result()
        return ended

    found: RecoveryOutcome = temporal(result)
    return found


def test_jobs_lists_what_is_watched(relight: Relight, watched: TrainingJob) -> None:
    listed = json.loads(relight("jobs", "--json").stdout)
    [mine] = [job for job in listed if job["job"]["attempt"]["job_id"] == watched.attempt.job_id]
    assert mine["monitor_id"] == monitor_id(watched.attempt)
    assert mine["state"] == "watching"
    assert mine["status"]["progress"]["step"] == 121
    table = relight("jobs")
    assert table.exit_code == 0
    assert f"{watched.attempt.job_id}.0" in table.stdout
    assert "llm-7b" in table.stdout


def test_jobs_of_another_cluster_are_not_listed(relight: Relight, watched: TrainingJob) -> None:
    assert json.loads(relight("--cluster", "elsewhere", "jobs", "--json").stdout) == []
    assert "no job is watched" in relight("--cluster", "elsewhere", "jobs").stdout


def test_show_tells_evidence_plan_and_commands(relight: Relight, waiting: TrainingJob) -> None:
    done = relight("show", waiting.attempt.job_id)
    assert done.exit_code == 0
    assert HOSTILE in done.stdout, "log text is shown as it is, not taken as markup"
    assert PLAN.digest in done.stdout
    assert "keep the job off node02" in done.stdout
    assert "awaiting-approval" in done.stdout
    assert f"relight approve {waiting.attempt.job_id} --plan {PLAN.digest}" in done.stdout
    assert "confirmed: the scheduler says FAILED" in done.stdout


def test_show_takes_workflow_ids(relight: Relight, waiting: TrainingJob) -> None:
    for target in (monitor_id(waiting.attempt), recovery_id(waiting.attempt, "anomaly1")):
        shown = json.loads(relight("show", target, "--json").stdout)
        assert shown["job"]["attempt"]["job_id"] == waiting.attempt.job_id
        assert shown["recoveries"][0]["status"]["plan_digest"] == PLAN.digest


def test_approve_shows_the_plan_and_is_heard(
    relight: Relight, waiting: TrainingJob, temporal: Temporal
) -> None:
    done = relight("approve", waiting.attempt.job_id, "--yes", "--by", "anna", "--reason", "seen")
    assert done.exit_code == 0, done.output
    assert "keep the job off node02" in done.stdout
    assert f"plan {PLAN.digest} approved by anna" in done.stdout
    ended = outcome(temporal, waiting)
    assert (ended.outcome, ended.approved_by, ended.reason) == (Outcome.RESUMED, "anna", "seen")
    past = relight("show", waiting.attempt.job_id).stdout
    assert "20 lost" in past
    assert "past the failed step" in past


@pytest.mark.parametrize("command", ["approve", "reject"])
@pytest.mark.parametrize("answer", ["", "n\n", "\n"])
def test_nothing_is_decided_without_a_yes(
    relight: Relight, waiting: TrainingJob, command: str, answer: str
) -> None:
    done = relight(command, waiting.attempt.job_id, input=answer)
    assert done.exit_code == 6
    assert "nothing was decided" in done.stderr
    assert relight("approve", waiting.attempt.job_id, input="y\n").exit_code == 0


def test_reject_is_heard(relight: Relight, waiting: TrainingJob, temporal: Temporal) -> None:
    done = relight("reject", recovery_id(waiting.attempt, "anomaly1"), "--yes", "--reason", "known bug")
    assert done.exit_code == 0, done.output
    assert outcome(temporal, waiting).outcome is Outcome.REJECTED


def test_a_second_decision_is_refused_with_the_reason(
    relight: Relight, waiting: TrainingJob, temporal: Temporal
) -> None:
    assert relight("approve", waiting.attempt.job_id, "--yes", "--by", "anna").exit_code == 0
    outcome(temporal, waiting)
    again = relight("approve", waiting.attempt.job_id, "--yes")
    assert again.exit_code == 6
    assert "no open recovery" in again.stderr
    assert "the last one was approved by anna" in again.stderr


def test_what_the_recovery_refuses_is_told(relight: Relight, waiting: TrainingJob) -> None:
    done = relight("approve", waiting.attempt.job_id, "--yes", "--by", "mallory")
    assert done.exit_code == 6
    assert "refused: mallory may not" in done.stderr


def test_another_plan_is_not_approved(relight: Relight, waiting: TrainingJob) -> None:
    done = relight("approve", waiting.attempt.job_id, "--yes", "--plan", "00000000")
    assert done.exit_code == 6
    assert f"the current plan is {PLAN.digest}: look at it with `relight show" in done.stderr
    shown = json.loads(relight("show", waiting.attempt.job_id, "--json").stdout)
    assert shown["recoveries"][0]["status"]["state"] == "awaiting-approval"


@pytest.mark.parametrize("command", ["approve", "reject"])
def test_nothing_to_decide(relight: Relight, watched: TrainingJob, command: str) -> None:
    done = relight(command, watched.attempt.job_id, "--yes")
    assert done.exit_code == 6
    assert "no open recovery" in done.stderr


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("show", "99"), 5, "is not watched"),
        (("approve", "99", "--yes"), 5, "is not watched"),
        (("mode", "99", "act"), 5, "is not watched"),
        (("unwatch", "99"), 5, "is not watched"),
        (("show", "job:here:99:0"), 5, "no workflow"),
        (("approve", "recover:here:99:0:x", "--yes"), 5, "no workflow"),
        (("show", "1' OR '1'='1"), 2, "neither a job id"),
        (("mode", "99", "go"), 2, "observe"),
        (("--config", "/nowhere.toml", "jobs"), 2, "no settings file"),
        (("watch", "1", "--policy", "no-such"), 2, "no-such"),
    ],
)
def test_mistakes_are_told(relight: Relight, args: tuple[str, ...], code: int, says: str) -> None:
    done = relight(*args)
    assert done.exit_code == code, done.output
    assert says in done.stderr
    assert "Traceback" not in done.output


def test_the_same_job_id_on_two_clusters(relight: Relight, temporal: Temporal, job_id: str) -> None:
    for cluster in ("here", "there"):
        job = a_job(job_id, cluster)
        temporal(lambda client, job=job: start_monitor(client, Settings(), job))
    done = relight("show", job_id, "--json")
    assert done.exit_code == 2
    assert "here, there" in done.stderr
    chosen = json.loads(relight("--cluster", "there", "show", job_id, "--json").stdout)
    assert chosen["job"]["cluster"] == "there"


def test_mode_changes_and_is_seen(relight: Relight, watched: TrainingJob) -> None:
    job_id = watched.attempt.job_id
    assert relight("mode", job_id, "act").exit_code == 0
    assert json.loads(relight("show", job_id, "--json").stdout)["job"]["mode"] == Mode.ACT
    refused = relight("mode", job_id, "observe", "--by", "mallory")
    assert refused.exit_code == 6
    assert "mallory may not" in refused.stderr


def test_unwatch_ends_the_watch_and_a_person_may_watch_again(
    relight: Relight, watched: TrainingJob, temporal: Temporal
) -> None:
    job_id = watched.attempt.job_id
    assert relight("unwatch", job_id, "--reason", "done").exit_code == 0
    temporal(lambda client: client.get_workflow_handle(monitor_id(watched.attempt)).result())
    assert relight("mode", monitor_id(watched.attempt), "act").exit_code == 6
    assert json.loads(relight("show", job_id, "--json").stdout)["state"] == "ended"
    assert job_id not in [j["job"]["attempt"]["job_id"] for j in json.loads(relight("jobs", "--json").stdout)]
    assert job_id in [
        j["job"]["attempt"]["job_id"] for j in json.loads(relight("jobs", "--all", "--json").stdout)
    ]
    temporal(lambda client: start_monitor(client, Settings(), watched))
    assert json.loads(relight("show", job_id, "--json").stdout)["state"] == "watching"
