"""Temporal answers, but no worker does."""

import json
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from relight.cli import decide, watch, watched
from relight.config import Settings
from relight.contracts import TrainingJob
from relight.contracts.ids import monitor_id
from tests.relight.cli.conftest import Relight
from tests.relight.cli.stand_ins import a_job

pytestmark = pytest.mark.temporal
QUEUE = "nobody-serves-this"


@pytest.fixture
def lonely(
    temporal: Callable[[Callable[[Client], Coroutine[Any, Any, Any]]], Any],
    settings_file: Path,
    job_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[TrainingJob]:
    """A watched job on a queue without a worker; the command waits a second for answers instead of many."""
    monkeypatch.setattr(watched, "ANSWER", timedelta(seconds=1))
    monkeypatch.setattr(decide, "ANSWER", timedelta(seconds=1))
    monkeypatch.setattr(watch, "ANSWER", timedelta(seconds=1))
    settings_file.write_text(settings_file.read_text() + f'task_queue = "{QUEUE}"\n')
    job = a_job(job_id, "lonely")
    temporal(lambda client: watch.start_monitor(client, Settings(task_queue=QUEUE), job))
    yield job
    temporal(lambda client: client.get_workflow_handle(monitor_id(job.attempt)).terminate())


def test_reads_tell_what_is_known_and_what_is_missing(relight: Relight, lonely: TrainingJob) -> None:
    shown = relight("show", lonely.attempt.job_id, "--json")
    assert shown.exit_code == 0
    assert json.loads(shown.stdout)["status"] is None
    assert json.loads(shown.stdout)["job"]["run"] == "llm-7b"
    assert "relight worker" in shown.stderr
    listed = relight("--cluster", "lonely", "jobs")
    assert lonely.attempt.label in listed.stdout
    assert "relight worker" in listed.stderr


def test_a_change_of_mode_stays_on_record(
    relight: Relight,
    lonely: TrainingJob,
    temporal: Callable[[Callable[[Client], Coroutine[Any, Any, Any]]], Any],
) -> None:
    done = relight("mode", lonely.attempt.job_id, "observe", "--reason", "stop that")
    assert done.exit_code == 7
    assert "on record" in done.stderr

    async def signals(client: Client) -> list[str]:
        history = await client.get_workflow_handle(monitor_id(lonely.attempt)).fetch_history()
        return [
            event.workflow_execution_signaled_event_attributes.signal_name
            for event in history.events
            if event.HasField("workflow_execution_signaled_event_attributes")
        ]

    assert temporal(signals) == ["set_mode"]
