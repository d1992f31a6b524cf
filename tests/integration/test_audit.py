"""The audit trail against slurmctld's own log, the archive, and the verdicts decided again."""

import json
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from relight.contracts import Outcome
from tests.integration.lab import Lab

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(240)]

RECEIVED = {
    "requeue_hold": "REQUEST_JOB_REQUEUE",
    "set_comment": "REQUEST_UPDATE_JOB",
    "exclude_nodes": "REQUEST_UPDATE_JOB",
    "hold": "REQUEST_UPDATE_JOB",
    "release": "REQUEST_UPDATE_JOB",
    "cancel": "REQUEST_KILL_JOB",
    "submit": "REQUEST_SUBMIT_BATCH_JOB",
}
"""What slurmctld receives of each operation."""


def commands(view: dict[str, Any]) -> list[dict[str, Any]]:
    return [r["command"] for recovery in view["recoveries"] for r in recovery["records"] if r["command"]]


async def test_the_audit_tells_exactly_what_slurmctld_was_told(lab: Lab) -> None:
    training = lab.train(mode="act", wait_step=25)
    before = len(lab.slurm.mutations())
    training.fault("exception")
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED
    received = lab.slurm.mutations()[before:]

    view = json.loads(lab.cli("audit", training.job_id, "--json").stdout)
    given = commands(view)
    assert [c["operation"] for c in given][:1] == ["requeue_hold"]
    assert "release" in [c["operation"] for c in given]
    assert all(c["accepted"] for c in given)
    expected: Counter[str] = Counter()
    for command in given:
        expected[RECEIVED[command["operation"]]] += 1
        if command["operation"] == "release":  # StartTime=now goes before it, in an update of its own
            expected["REQUEST_UPDATE_JOB"] += 1
    assert Counter(line.split()[1] for line in received) == expected, (received, given)
    times = [datetime.fromisoformat(line.split()[0]).timestamp() for line in received]
    told = [datetime.fromisoformat(c["at"]).timestamp() for c in given]
    assert abs(times[0] - told[0]) < 2
    assert abs(times[-1] - told[-1]) < 2

    whole = view["recoveries"][0]
    assert any(r["who"] == "sensor" and r["evidence"] for r in whole["records"])
    verified = lab.cli("audit", "verify", whole["recovery_id"], "--json")
    assert json.loads(verified.stdout)["same"] is True

    page = lab.cli("audit", whole["recovery_id"], "--format", "html").stdout
    assert "requeue_hold" in page

    # Its record is in the archive, and says the same without Temporal.
    lab.until("it is archived", lambda: whole["recovery_id"] in archived(lab))
    kept = json.loads(lab.cli("audit", whole["recovery_id"], "--json", TEMPORAL_ADDRESS="127.0.0.1:9").stdout)
    assert kept["from_archive"] == [whole["recovery_id"]]
    assert commands(kept) == given
    assert kept["recoveries"][0]["outcome"] == whole["outcome"]
    assert lab.cli("audit", "check-archive").returncode == 0


def archived(lab: Lab) -> str:
    """All files of the archive."""
    return "".join(file.read_text() for file in (lab.root / "state" / "archive").glob("*/*.jsonl"))


async def test_quality_counts_what_people_and_the_job_said(lab: Lab) -> None:
    approved = lab.train(wait_step=25)
    approved.fault("exception")
    await lab.recovery_in(approved, "awaiting-approval")
    lab.cli("approve", approved.job_id, "--yes", "--reason", "seen")
    rejected = lab.train(wait_step=25)
    rejected.fault("exception")
    await lab.recovery_in(rejected, "awaiting-approval")
    lab.cli("reject", rejected.job_id, "--yes", "--reason", "a known bug")
    ids = [(await lab.outcome(one)).recovery_id for one in (approved, rejected)]

    view = json.loads(lab.cli("quality", "--since", "1h", "--json").stdout)
    cases = {case["recovery_id"]: case for case in view["cases"]}
    mine = [cases[one] for one in ids]
    assert [case["truth"] for case in mine] == ["right", "wrong"]
    assert all(case["would_act"] and not case["missed"] for case in mine)
    assert all(case["detector"] not in ("", "unknown", "poll") for case in mine)
    shown = datetime.fromisoformat(mine[0]["would_act_at"])
    assert datetime.fromisoformat(mine[0]["happened_at"]) > shown
    [group] = [one for one in view["groups"] if one["group"] == [mine[0]["cause"]]]
    assert group["right"] >= 1
    assert group["wrong"] >= 1
    assert group["false_alarms_per_day"] > 0


async def test_the_doctor_finds_nothing_broken_and_then_the_first_thing(lab: Lab) -> None:
    training = lab.train(wait_step=15)
    found = json.loads(lab.cli("doctor", training.job_id, "--json").stdout)
    assert found["broken"] == ""
    assert {"permissions", "guard", "sensor", "watch", "steps"} <= {one["stage"] for one in found["stages"]}
    away = lab.cli("doctor", "--json", check=False, SLURM_CONF="/nowhere/slurm.conf")
    assert json.loads(away.stdout)["broken"] == "scheduler"
    assert away.returncode == 4
