"""`relight audit` and `relight quality` against a real Temporal and a real archive."""

import csv
import io
import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from relight.audit.archive import open_archive
from relight.audit.record import RecoveryAudit
from relight.cli.watch import start_monitor
from relight.config import Settings
from relight.contracts import Cause, Evidence, Outcome, Source, TrainingJob
from relight.contracts.ids import monitor_id, recovery_id
from tests.relight.audit.making import an_audit
from tests.relight.cli.conftest import Relight, Temporal
from tests.relight.cli.stand_ins import HOSTILE, PLAN, T0, a_job

pytestmark = [pytest.mark.temporal, pytest.mark.usefixtures("stand_ins")]
NOW = datetime.now(UTC)


@pytest.fixture
def approved(temporal: Temporal, relight: Relight, job_id: str) -> TrainingJob:
    """A watched job whose recovery was approved by anna, and ended."""
    job = a_job(job_id)
    temporal(lambda client: start_monitor(client, Settings(), job))
    temporal(lambda client: client.get_workflow_handle(monitor_id(job.attempt)).signal("recover"))
    end = time.monotonic() + 30
    while relight("approve", job_id, "--yes", "--by", "anna", "--reason", "seen").exit_code:
        assert time.monotonic() < end
        time.sleep(0.1)
    temporal(lambda client: client.get_workflow_handle(recovery_id(job.attempt, "anomaly1")).result())
    return job


def test_a_job_from_watch_to_end(relight: Relight, approved: TrainingJob) -> None:
    view = json.loads(relight("audit", approved.attempt.job_id, "--json").stdout)
    assert view["monitor_id"] == monitor_id(approved.attempt)
    assert view["monitor"][0]["what"] == "watch"
    [recovery] = view["recoveries"]
    words = [(r["who"], r["what"], r["name"]) for r in recovery["records"]]
    assert words == [
        ("relight", "diagnosed", ""),
        ("person", "approved", "anna"),
        ("relight", "took", ""),
        ("relight", "ended", ""),
    ]
    assert recovery["records"][1]["plan_digest"] == PLAN.digest
    [evidence] = recovery["records"][0]["evidence"]
    assert (evidence["text"], evidence["where"]) == (HOSTILE, "train.log:77")


def test_all_watches_of_a_job_are_told(
    temporal: Temporal, relight: Relight, approved: TrainingJob, settings_file: Path, tmp_path: Path
) -> None:
    def ended(monitor: str) -> None:
        assert relight("unwatch", monitor).exit_code == 0
        temporal(lambda client: client.get_workflow_handle(monitor).result())

    # Watched again, then submitted anew, and watched under its new id.
    old, first = approved.attempt.job_id, monitor_id(approved.attempt)
    ended(first)
    temporal(lambda client: start_monitor(client, Settings(), approved))
    temporal(lambda client: client.get_workflow_handle(first).signal("resubmitted", f"{old}9"))
    ended(first)
    later = a_job(f"{old}9")
    temporal(lambda client: start_monitor(client, Settings(), later))
    forgotten = an_audit(77101, recovery_id="recover:here:9:0:z", monitor_id="job:here:9:1", job=later)
    archived(settings_file, tmp_path, forgotten)
    second = monitor_id(later.attempt)
    deadline = time.monotonic() + 20
    while True:  # Temporal's lists lag behind
        view = json.loads(relight("audit", f"{old}9", "--json").stdout)
        if (len(view["recoveries"]) == 2 and len(view["monitor_ids"]) == 2) or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert (view["monitor_id"], view["monitor_ids"]) == (second, [first, second])
    told = [(one["workflow_id"], one["what"]) for one in view["monitor"] if one["what"] in ("watch", "ended")]
    once = [(first, "watch"), (first, "ended")]
    assert told == [*once, *once, (second, "watch")]
    assert [one["at"] for one in view["monitor"]] == sorted(one["at"] for one in view["monitor"])
    ids = {one["recovery_id"] for one in view["recoveries"]}
    assert ids == {recovery_id(approved.attempt, "anomaly1"), forgotten.recovery_id}
    assert view["from_archive"] == [forgotten.recovery_id]
    alone = json.loads(relight("audit", first, "--json").stdout)
    assert alone["monitor_ids"] == [first]
    assert [one["what"] for one in alone["monitor"]].count("watch") == 2
    page = relight("audit", f"{old}9", "--format", "html").stdout
    assert page.index(f"<h2>monitor {first}</h2>") < page.index(f"<h2>monitor {second}</h2>")


def test_formats_show_log_text_and_do_not_obey_it(relight: Relight, approved: TrainingJob) -> None:
    target = recovery_id(approved.attempt, "anomaly1")
    text = relight("audit", target)
    assert text.exit_code == 0
    assert HOSTILE in text.stdout.replace("\n", " ")
    page = relight("audit", target, "--format", "html").stdout
    assert page.startswith("<!DOCTYPE html>")
    assert "http" not in page.replace("<!DOCTYPE html>", ""), "nothing is fetched"
    assert "anna" in page
    rows = list(csv.DictReader(io.StringIO(relight("audit", "--format", "csv", target).stdout)))
    assert [row["what"] for row in rows] == ["diagnosed", "approved", "took", "ended"]
    assert HOSTILE in rows[0]["evidence"]


def archived(settings_file: Path, directory: Path, *audits: RecoveryAudit) -> None:
    """Writes an archive and names it in the settings."""
    archive = open_archive(str(directory / "archive"), directory)
    for audit in audits:
        assert archive.append(audit, NOW)
    settings_file.write_text(f'{settings_file.read_text()}\n[archive]\nurl = "{directory}/archive"\n')


def test_what_temporal_forgot_comes_from_the_archive(
    relight: Relight, settings_file: Path, tmp_path: Path
) -> None:
    old = an_audit(77001, monitor_id="job:lab:77001:1")
    archived(settings_file, tmp_path, old, an_audit(77002))
    for target in ("77001", old.recovery_id, old.monitor_id):
        view = json.loads(relight("audit", target, "--json").stdout)
        assert view["from_archive"] == [old.recovery_id]
        assert RecoveryAudit.model_validate(view["recoveries"][0]) == old
    told = relight("audit", "77001")
    assert "from the archive" in told.stdout
    unknown = relight("audit", "77003")
    assert unknown.exit_code == 5
    assert "neither Temporal nor the archive" in unknown.stderr


def test_the_archive_answers_without_temporal(alone: Relight, settings_file: Path, tmp_path: Path) -> None:
    assert alone("audit", "77001").exit_code == 3, "no archive: Temporal is needed"
    archived(settings_file, tmp_path, an_audit(77001))
    done = alone("audit", "77001", "--json")
    assert done.exit_code == 0
    assert "only the archive" in done.stderr


def test_hostile_evidence_is_inert_in_html_and_csv(
    alone: Relight, settings_file: Path, tmp_path: Path
) -> None:
    text = "=HYPERLINK(1) <script>alert(1)</script>"
    evidence = Evidence(source=Source.JOB_LOG, observed_at=T0, text=text)
    audit = an_audit(77005)
    record = audit.records[0].model_copy(update={"text": text, "evidence": (evidence,)})
    archived(settings_file, tmp_path, audit.model_copy(update={"records": (record,)}))
    page = alone("audit", "77005", "--format", "html").stdout
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    [row] = csv.DictReader(io.StringIO(alone("audit", "77005", "--format", "csv").stdout))
    assert row["text"] == f"'{text}"


def test_check_archive_names_the_first_broken_record(
    alone: Relight, settings_file: Path, tmp_path: Path
) -> None:
    archived(settings_file, tmp_path, *(an_audit(n) for n in range(1, 5)))
    done = alone("audit", "check-archive")
    assert done.exit_code == 0
    assert "4 records, whole" in done.stdout
    head = done.stdout.split("head to note: ")[1].strip()
    assert alone("audit", "check-archive", "--expect", head).exit_code == 0
    [file] = (tmp_path / "archive").glob("*/*.jsonl")
    whole = file.read_text()
    file.write_text(whole.replace('"job_id":"3"', '"job_id":"9"', 1))
    done = alone("audit", "check-archive")
    assert done.exit_code == 1
    assert "line 3: it was changed" in done.stdout

    # Whoever rewrites all of it is found by a head that was noted elsewhere.
    for path in (tmp_path / "archive").glob("*/*"):
        path.unlink()
    archive = open_archive(str(tmp_path / "archive"), tmp_path)
    for number in range(5, 9):
        archive.append(an_audit(number), NOW)
    assert alone("audit", "check-archive").exit_code == 0
    done = alone("audit", "check-archive", "--expect", head)
    assert done.exit_code == 1
    assert "since it was noted" in done.stdout
    assert alone("audit", "check-archive", "--expect", "nonsense").exit_code == 2


def test_help_of_the_group_tells_of_formats(alone: Relight) -> None:
    assert "relight audit 4243 --format csv" in alone("audit", "--help").stdout


def test_no_archive_is_said(alone: Relight) -> None:
    done = alone("audit", "check-archive")
    assert done.exit_code == 2
    assert "archive.url" in done.stderr


def test_ended_recoveries_are_archived_later_and_once(
    relight: Relight, approved: TrainingJob, settings_file: Path, tmp_path: Path
) -> None:
    archived(settings_file, tmp_path)
    first = relight("audit", "archive")
    assert first.exit_code == 0, first.output
    again = relight("audit", "archive")
    assert again.stdout.startswith("0 of ")
    ids = [entry.recovery_id for entry in open_archive(str(tmp_path / "archive"), tmp_path).entries()]
    assert recovery_id(approved.attempt, "anomaly1") in ids
    assert len(set(ids)) == len(ids)


# ---- quality ---------------------------------------------------------------------
def ended(number: int, outcome: Outcome, cause: Cause = Cause.STORAGE, by: str = "") -> RecoveryAudit:
    """A recovery of an hour ago that showed its plan after ten seconds; approved ones after five minutes."""
    began = NOW - timedelta(hours=1)
    audit = an_audit(number, started=began, asked=began + timedelta(seconds=10), detectors=("log_faults",))
    assert audit.outcome is not None
    times = audit.outcome.times.model_copy(update={"acted": began + timedelta(seconds=310)})
    changes: dict[str, Any] = {"outcome": outcome, "cause": cause, "approved_by": by, "times": times}
    return audit.model_copy(update={"outcome": audit.outcome.model_copy(update=changes)})


def test_a_known_history_gives_its_known_quality(
    relight: Relight, settings_file: Path, tmp_path: Path
) -> None:
    archived(
        settings_file,
        tmp_path,
        *(ended(n, Outcome.RESUMED, by="anna") for n in range(88000, 88008)),
        *(ended(n, Outcome.REJECTED) for n in range(88100, 88102)),
        *(ended(n, Outcome.EXPIRED) for n in range(88200, 88203)),
        *(ended(n, Outcome.RESUMED, Cause.NVLINK, "anna") for n in range(88300, 88301)),
        an_audit(88400, started=NOW - timedelta(days=20)),
    )
    done = relight("--cluster", "lab", "quality", "--since", "7d", "--json")
    view = json.loads(done.stdout)
    nvlink, storage = view["groups"]
    assert storage["group"] == ["storage"]
    assert (storage["detected"], storage["right"], storage["wrong"], storage["open"]) == (13, 8, 2, 3)
    assert storage["precision"]["value"] == 0.8
    assert storage["recall"]["value"] == 1.0
    assert storage["gained"] == "PT40M", "eight times five minutes"
    assert storage["verdict"] == "not safe", "8 of 10 cannot be 95 %"
    assert nvlink["verdict"] == "not yet"
    assert nvlink["needs"] == 72
    assert len(view["cases"]) == 14, "none older than the window"
    table = relight("--cluster", "lab", "quality", "--since", "7d", "--by", "detector,cause", "--cases")
    assert "log_faults" in table.stdout
    assert "80.0%" in table.stdout
    assert "approved by anna" in table.stdout


def test_simulated_faults_count_only_if_asked_for(
    relight: Relight, settings_file: Path, tmp_path: Path
) -> None:
    real, broken = ended(88500, Outcome.REJECTED), ended(88501, Outcome.RESUMED, by="anna")
    made = broken.model_copy(update={"job": broken.job.model_copy(update={"simulated": True})})
    archived(settings_file, tmp_path, real, made)
    args = ("--cluster", "lab", "quality", "--since", "7d", "--json")
    done = relight(*args)
    view = json.loads(done.stdout)
    assert [case["recovery_id"] for case in view["cases"]] == [real.recovery_id]
    assert view["simulated_left_out"] == 1
    assert "1 simulated recovery is left out" in relight(*args[:-1]).stderr
    both = json.loads(relight(*args, "--simulated").stdout)
    assert len(both["cases"]) == 2
    assert both["simulated_left_out"] == 0
    report = ("--cluster", "lab", "report", "--since", "7d", "--json")
    view = json.loads(relight(*report).stdout)
    assert view["figures"]["recoveries"] == 1
    assert any("1 simulated recovery is left out" in remark for remark in view["remarks"])
    assert json.loads(relight(*report, "--simulated").stdout)["figures"]["recoveries"] == 2


def test_quality_of_nothing_and_wrong_questions(relight: Relight) -> None:
    empty = relight("--cluster", "empty", "quality")
    assert empty.exit_code == 0
    assert "nothing to judge yet" in empty.stdout
    assert relight("quality", "--by", "moon").exit_code == 2
    assert relight("quality", "--since", "soon").exit_code == 2
    assert relight("quality", "--since", "0s").exit_code == 2
