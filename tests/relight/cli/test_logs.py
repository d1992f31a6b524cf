"""`relight logs` against a real Temporal: the evidence of a recovery in its log."""

import json
import time
from pathlib import Path

import pytest

from relight.cli.watch import start_monitor
from relight.config import Settings
from relight.contracts import TrainingJob
from relight.contracts.ids import monitor_id, recovery_id
from tests.relight.cli.conftest import Relight, Temporal
from tests.relight.cli.stand_ins import HOSTILE, a_job

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("stand_ins")]


@pytest.fixture
def failed(temporal: Temporal, relight: Relight, job_id: str, tmp_path: Path) -> TrainingJob:
    """A watched job with an open recovery, whose evidence is the third line of its log."""
    log = tmp_path / "train.log"
    before = ["iteration 1 " + "." * 25, "iteration 2 " + "." * 26]
    log.write_text("\n".join([*before, HOSTILE, "\x1b[31mafter\x1b[0m"]) + "\n")
    assert log.read_text().index(HOSTILE) == 77
    job = a_job(job_id).model_copy(update={"log_paths": (str(log),)})
    temporal(lambda client: start_monitor(client, Settings(), job))
    assert relight("logs", job_id).exit_code == 5, "nothing has gone wrong yet"
    temporal(lambda client: client.get_workflow_handle(monitor_id(job.attempt)).signal("recover"))
    end = time.monotonic() + 30
    while relight("logs", job_id).exit_code:
        assert time.monotonic() < end
        time.sleep(0.1)
    return job


def test_the_evidence_is_shown_where_it_is(relight: Relight, failed: TrainingJob) -> None:
    target, log = failed.attempt.job_id, failed.log_paths[0]
    view = json.loads(relight("logs", target, "--json", "--lines", "1").stdout)
    assert (view["job_id"], view["recovery_id"]) == (target, recovery_id(failed.attempt, "anomaly1"))
    [quote] = view["evidence"]
    assert (quote["file"], quote["line"], quote["verbatim"], quote["text"]) == (log, 3, True, HOSTILE)
    [excerpt] = view["excerpts"]
    assert [(line["line"], line["evidence"]) for line in excerpt["lines"]] == [
        (2, False),
        (3, True),
        (4, False),
    ]
    text = relight("logs", recovery_id(failed.attempt, "anomaly1"))
    assert f"{log}:1-4" in text.stdout
    assert f"> 3 | {HOSTILE}" in text.stdout, "the line is marked, and nothing in it is taken as markup"
    assert "  4 | after" in text.stdout
    assert "\x1b" not in text.stdout


def test_the_quotation_outlives_the_log(relight: Relight, failed: TrainingJob) -> None:
    Path(failed.log_paths[0]).unlink()
    done = relight("logs", failed.attempt.job_id)
    assert done.exit_code == 0
    assert HOSTILE in done.stdout
    assert "it cannot be read here: No such file or directory" in done.stdout


def test_a_decision_as_json(relight: Relight, failed: TrainingJob) -> None:
    done = relight("reject", failed.attempt.job_id, "--yes", "--by", "anna", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["accepted"]
    assert HOSTILE in done.stderr, "what it is about is told beside it"
