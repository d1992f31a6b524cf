"""`relight report` against a real Temporal and a real archive."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from relight.audit.archive import open_archive
from relight.audit.record import RecoveryAudit
from relight.cli import report as command
from relight.cli.shapes import ReportView
from relight.cli.watch import start_monitor
from relight.config import Settings
from relight.contracts import TrainingJob
from relight.contracts.ids import monitor_id, recovery_id
from relight.report.records import ChainEnd
from tests.relight.cli.conftest import Relight, Temporal
from tests.relight.cli.stand_ins import a_job
from tests.relight.report.making import job, recovery

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("stand_ins")]
NOW = datetime.now(UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def approved(temporal: Temporal, relight: Relight, job_id: str) -> TrainingJob:
    """A job that is watched no more; its one recovery was approved, and ended."""
    mine = a_job(job_id, cluster=f"report{job_id}")
    temporal(lambda client: start_monitor(client, Settings(), mine))
    temporal(lambda client: client.get_workflow_handle(monitor_id(mine.attempt)).signal("recover"))
    end = time.monotonic() + 30
    while relight("--cluster", mine.cluster, "approve", job_id, "--yes", "--by", "anna").exit_code:
        assert time.monotonic() < end
        time.sleep(0.1)
    temporal(lambda client: client.get_workflow_handle(recovery_id(mine.attempt, "anomaly1")).result())
    assert relight("--cluster", mine.cluster, "unwatch", job_id).exit_code == 0
    temporal(lambda client: client.get_workflow_handle(monitor_id(mine.attempt)).result())
    return mine


def archived(settings_file: Path, directory: Path, *audits: RecoveryAudit) -> None:
    """Writes an archive and names it in the settings."""
    archive = open_archive(str(directory / "archive"), directory)
    for audit in audits:
        assert archive.append(audit, NOW)
    settings_file.write_text(f'{settings_file.read_text()}\n[archive]\nurl = "{directory}/archive"\n')


def told(relight: Relight, cluster: str, recoveries: int) -> ReportView:
    """The JSON, once Temporal's lists have caught up: with so many recoveries, and no open run."""
    end = time.monotonic() + 20
    while True:
        done = relight("--cluster", cluster, "report", "--json")
        assert done.exit_code == 0, done.output
        view = ReportView.model_validate_json(done.stdout)
        settled = all(chain.end is not ChainEnd.OPEN for chain in view.chains)
        if (settled and view.figures.recoveries == recoveries) or time.monotonic() > end:
            return view
        time.sleep(0.2)


def test_live_history_and_archive_are_one_and_nothing_counts_twice(
    relight: Relight, approved: TrainingJob, settings_file: Path, tmp_path: Path
) -> None:
    archived(
        settings_file,
        tmp_path,
        recovery(job(88_001), NOW - HOUR, job=job(88_001).model_copy(update={"cluster": approved.cluster})),
        recovery(job(88_002), NOW - HOUR),  # of another cluster
        recovery(
            job(88_003), NOW - 40 * 24 * HOUR, job=job(1).model_copy(update={"cluster": approved.cluster})
        ),
    )
    assert relight("--cluster", approved.cluster, "audit", "archive").exit_code == 0
    view = told(relight, approved.cluster, recoveries=2)
    by_job = {chain.job_id: chain for chain in view.chains}
    assert set(by_job) == {approved.attempt.job_id, "88001"}
    live = by_job[approved.attempt.job_id]
    assert (live.run, live.user, live.nodes) == ("llm-7b", "anna", 2)
    assert live.end.value == "no longer watched"
    [loss] = live.losses
    assert loss.cause.value == "gpu_memory_ecc"
    assert (loss.until - loss.occurred) == timedelta(seconds=9)
    assert view.figures.recoveries == 2
    assert view.cluster == approved.cluster
    assert view.from_archive == 1
    assert view.figures.left_out == 1, "how long 88001 was watched nobody knows any more"
    assert view.nodes is None
    assert any("has no guard" in remark for remark in view.remarks)


def test_a_page_is_written(relight: Relight, approved: TrainingJob, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = relight("--cluster", approved.cluster, "report", "--since", "7d", "--out", out)
    assert done.exit_code == 0, done.output
    assert str(out) in done.stdout
    assert ": 1 recovery, 1 run\n" in done.stdout
    page = out.read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert approved.attempt.job_id in page
    printed = relight("--cluster", approved.cluster, "report", "--out", "-").stdout
    assert printed.startswith("<!DOCTYPE html>")
    assert "</html>" in printed


def test_an_empty_history_makes_a_page_that_says_so(relight: Relight, tmp_path: Path) -> None:
    done = relight("--cluster", "empty", "report")
    assert done.exit_code == 0, done.output
    assert "Nothing to report yet" in (tmp_path / "report.html").read_text()
    assert json.loads(relight("--cluster", "empty", "report", "--json").stdout)["figures"]["ettr"] is None


def test_the_archive_answers_without_temporal(alone: Relight, settings_file: Path, tmp_path: Path) -> None:
    assert alone("report").exit_code == 3, "no archive: Temporal is needed"
    archived(settings_file, tmp_path, recovery(job(77_001), NOW - HOUR))
    done = alone("report", "--json", "--checkpoint-write", "2m")
    assert done.exit_code == 0
    assert "only the archive" in done.stderr
    view = ReportView.model_validate_json(done.stdout)
    assert (view.figures.recoveries, view.from_archive) == (1, 1)
    assert view.cluster == "lab", "no setting names it, but all that is told is of one cluster"
    assert view.figures.gpu_hours == pytest.approx(32 * 1110 / 3600)


def test_without_the_extra_it_says_what_to_install(
    relight: Relight, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    done = relight("report")
    assert done.exit_code == 2
    assert "pip install 'relight[report]'" in done.stderr
    assert "matplotlib and jinja2" in done.stderr
    assert not (tmp_path / "report.html").exists()
    assert relight("--cluster", "empty", "report", "--json").exit_code == 0, "the numbers need no plots"


def test_wrong_questions(relight: Relight, tmp_path: Path) -> None:
    assert relight("report", "--since", "soon").exit_code == 2
    assert relight("report", "--since", "0s").exit_code == 2
    assert relight("report", "--checkpoint-write", "slowly").exit_code == 2
    done = relight("report", "--out", tmp_path / "nowhere" / "r.html")
    assert done.exit_code == 2
    assert "no directory" in done.stderr
    assert relight("--cluster", "empty", "report", "--out", tmp_path).exit_code == 1, "a directory is no file"


def test_json_goes_where_out_says(relight: Relight, tmp_path: Path) -> None:
    done = relight("--cluster", "nowhere", "report", "--json", "--out", tmp_path / "report.json")
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    view = ReportView.model_validate_json((tmp_path / "report.json").read_text())
    assert view.cluster == "nowhere"
    assert relight("report", "--json", "--out", tmp_path / "no" / "such").exit_code == 2
    assert relight("--cluster", "nowhere", "report", "--json", "--out", "-").stdout.startswith("{")
