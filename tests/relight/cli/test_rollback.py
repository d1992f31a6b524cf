"""`relight rollback`, `guard mode`, `policy apply` and `would-have`, with the real workflows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from typer.testing import Result

from relight.cli.watch import start_monitor
from relight.config import Settings
from relight.contracts import Mode, Policy, TrainingJob
from relight.contracts.ids import monitor_id
from tests.relight.cli.test_guard import QUEUE, Temporal, _worker, cluster, guarded, run, until, why
from tests.workflows import samples

__all__ = ["_worker", "cluster", "guarded", "run"]

pytestmark = pytest.mark.temporal


def watch(
    temporal: Temporal, cluster: str, job_id: str, mode: Mode = Mode.ACT, *, guard: bool = True, **more: Any
) -> TrainingJob:
    attempt = samples.attempt(job_id=job_id).model_copy(update={"cluster": cluster})
    job = samples.job(mode, cluster=cluster, attempt=attempt, **more)
    settings = Settings(task_queue=QUEUE, guard=guard)
    temporal(lambda client: start_monitor(client, settings, job))
    return job


def fail(temporal: Temporal, job: TrainingJob, **more: Any) -> None:
    handle = monitor_id(job.attempt)
    anomaly = samples.anomaly("a1", attempt=job.attempt, **more)

    async def tell(client: Client) -> None:
        await client.get_workflow_handle(handle).signal("report_anomaly", anomaly)

    temporal(tell)


def mode_of(run: Callable[..., Result], job_id: str) -> str:
    return str(json.loads(run("show", job_id, "--json").stdout)["job"]["mode"])


def test_rollback_tells_every_job_and_the_guard(
    run: Callable[..., Result], guarded: str, job_id: str, temporal: Temporal
) -> None:
    watch(temporal, guarded, job_id)
    watch(temporal, guarded, f"{job_id}7", guard=False)
    done = run("rollback", "--reason", "a bad rule", "--by", "ada")
    assert done.exit_code == 0, done.stderr
    assert f"job {job_id}: act -> observe" in done.stdout
    assert f"cluster {guarded} observes: 2 jobs" in done.stdout
    assert [mode_of(run, one) for one in (job_id, f"{job_id}7")] == ["observe", "observe"]
    assert "a bad rule" in run("guard").stdout
    again = json.loads(run("rollback", "--json").stdout)
    assert (again["guard"], again["heard"], len(again["jobs"]), again["failed"]) == (True, True, 2, [])
    assert "each job does what its own mode allows" in run("guard", "mode", "act").stdout
    assert "observes" not in run("guard").stdout


def test_a_job_that_is_watched_after_a_rollback_asks_a_person(
    run: Callable[..., Result], guarded: str, job_id: str, temporal: Temporal
) -> None:
    """Its own mode is act; what the guard says counts."""
    assert run("rollback").exit_code == 0
    job = watch(temporal, guarded, job_id)
    assert [gate["gate"] for gate in why(run, job_id)["closed"]] == ["cluster mode"]
    fail(temporal, job)
    found = until(lambda: why(run, job_id), lambda s: s["state"] == "awaiting-approval")
    assert [gate["gate"] for gate in found["closed"]] == ["approval", "cluster mode"]
    assert "observe mode" in found["closed"][0]["why"]
    assert run("guard", "mode", "act").exit_code == 0
    until(lambda: json.loads(run("jobs", "--json").stdout), lambda jobs: jobs[0]["state"] == "watching")


def test_rollback_without_a_worker_is_on_record(relight: Any, cluster: str) -> None:
    done = relight("rollback", RELIGHT_TASK_QUEUE="nobody", RELIGHT_CLUSTER=f"{cluster}x")
    assert done.exit_code == 7
    assert "on record" in done.stderr


def test_apply_lowers_what_the_file_does_not_allow_any_more(
    run: Callable[..., Result], guarded: str, job_id: str, temporal: Temporal, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    watch(temporal, guarded, job_id, partition="gpu")
    watch(temporal, guarded, f"{job_id}7", partition="debug")
    file = tmp_path / "policy.yaml"
    file.write_text("act_in: [debug]")
    file.chmod(0o600)
    monkeypatch.setenv("RELIGHT_POLICY_FILE", str(file))
    assert f"job {job_id} would be told" in run("policy", "apply", "--dry-run").stdout
    [planned] = json.loads(run("policy", "apply", "--dry-run", "--json").stdout)
    assert planned["job_id"] == job_id
    done = run("policy", "apply")
    assert done.stdout == f"job {job_id} is told to observe: partition gpu only observes: jobs act in debug\n"
    until(lambda: mode_of(run, job_id), lambda mode: mode == "observe")
    assert mode_of(run, f"{job_id}7") == "act"
    assert "no watched job" in run("policy", "apply").stdout
    refused = run("mode", job_id, "act")
    assert refused.exit_code == 6
    assert "add gpu to `act_in`" in refused.stderr
    closed = why(run, job_id)["closed"]
    assert [gate["gate"] for gate in closed] == ["partition", "mode"]
    file.write_text("nonsense: 1")
    assert run("mode", f"{job_id}7", "observe").exit_code == 0  # to stop never depends on the file
    still = run("why", job_id)
    assert still.exit_code == 0
    assert "Services go on" in still.stderr


def test_rules_that_only_count_are_counted(
    run: Callable[..., Result], guarded: str, job_id: str, temporal: Temporal, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    policy = Policy.model_validate({**samples.QUICK.model_dump(), "observe_only": ("python_exception",)})
    job = watch(temporal, guarded, job_id, Mode.OBSERVE, policy=policy)
    file = tmp_path / "policy.yaml"
    file.write_text("observe: [no-progress]")
    file.chmod(0o600)
    monkeypatch.setenv("RELIGHT_POLICY_FILE", str(file))
    fail(temporal, job)
    until(lambda: why(run, job_id), lambda s: s["state"] == "awaiting-approval")
    assert json.loads(run("policy", "would-have", "--json").stdout) == [
        {"rule": "python_exception", "listed": False, "recoveries": 1, "jobs": [job_id]},
        {"rule": "no-progress", "listed": True, "recoveries": 0, "jobs": []},
    ]
    assert "python_exception (not listed any more)" in run("policy", "would-have").stdout
