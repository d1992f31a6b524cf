"""Recorded histories as audits: everything that matters is there, with the event that says so."""

import json
from typing import Any

import pytest
from temporalio.client import WorkflowHistory

from relight.audit.drain import drain_records
from relight.audit.events import UnreadableHistory
from relight.audit.monitor import monitor_records
from relight.audit.record import RecoveryAudit, Who
from relight.audit.recovery import commands_of, recovery_audit
from relight.contracts.outcome import Outcome
from tests.relight.audit.making import HISTORIES, recorded


def audit_of(name: str) -> RecoveryAudit:
    return recovery_audit(name, recorded(name).events)


def what(audit: RecoveryAudit) -> list[str]:
    return [f"{r.what} {r.step}".strip() for r in audit.records]


def test_an_approved_recovery_from_the_fault_to_its_end() -> None:
    audit = audit_of("approved_by_update.0.recovery")
    assert what(audit) == [
        "diagnosed", "confirmed confirm_fault", "did locate_checkpoint", "asked", "approved", "took",
        "did drain_job", "did wait_nodes_free", "did locate_checkpoint", "did resubmit", "did verify_running",
        "did verify_resume", "ended",
    ]  # fmt: skip
    approved = audit.records[4]
    assert (approved.who, approved.name, approved.text) == (Who.PERSON, "ada", "go")
    assert approved.plan_digest == audit.records[3].plan_digest == "456e3985"
    assert [r.event_id for r in audit.records] == sorted(r.event_id for r in audit.records)
    assert audit.asked == audit.records[3].at
    assert audit.outcome is not None
    assert audit.outcome.outcome is Outcome.RESUMED
    assert audit.ended == audit.records[-1].at


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rejected.0.recovery", {"rejected", "asked"}),
        ("expired.0.recovery", {"expired", "asked"}),
        ("unreachable.0.recovery", {"failed drain_job", "did drain_job"}),
        ("cluster_paused_in_flight.1.recovery", {"permit"}),
        ("late_evidence.1.recovery", {"reported"}),
        ("mode_revoked.0.recovery", {"set mode"}),
        ("held.0.recovery", {"did hold_job"}),
    ],
)
def test_other_ends_tell_what_was_special(name: str, words: set[str]) -> None:
    assert words <= set(what(audit_of(name)))


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.recovery.json")), ids=lambda path: path.stem)
def test_every_recorded_recovery_can_be_read(path: Any) -> None:
    audit = audit_of(path.stem)
    assert audit.records[-1].at >= audit.started
    assert RecoveryAudit.model_validate_json(audit.model_dump_json()) == audit, "an archive keeps it"
    if audit.outcome is not None:
        assert audit.records[-1].what == "ended"


def test_a_look_that_was_repeated_says_how_often() -> None:
    told = json.loads((HISTORIES / "crash.0.recovery.json").read_text())
    started = next(e for e in told["events"] if "activityTaskStartedEventAttributes" in e)
    started["activityTaskStartedEventAttributes"]["attempt"] = 7
    audit = recovery_audit("x", WorkflowHistory.from_json("x", json.dumps(told)).events)
    [confirmed] = [r for r in audit.records if r.what == "confirmed"]
    assert confirmed.text.endswith("(look 7)")


def test_the_outcome_that_history_does_not_hold_yet_can_be_given() -> None:
    name = "approved_by_update.0.recovery"
    whole = audit_of(name)
    events = list(recorded(name).events)[:-1]
    assert recovery_audit(name, events).outcome is None
    given = recovery_audit(name, events, outcome=whole.outcome, ended=whole.ended)
    assert (given.outcome, given.ended) == (whole.outcome, whole.ended)
    assert what(given) == what(whole)


def _with_result(name: str, step: str, change: Any) -> WorkflowHistory:
    """A recorded history in which a step answered something else."""
    from base64 import b64decode, b64encode

    told = json.loads((HISTORIES / f"{name}.json").read_text())
    scheduled = {
        e["eventId"]: e["activityTaskScheduledEventAttributes"]["activityType"]["name"]
        for e in told["events"]
        if "activityTaskScheduledEventAttributes" in e
    }
    for event in told["events"]:
        done = event.get("activityTaskCompletedEventAttributes")
        if done and scheduled[done["scheduledEventId"]] == step:
            payload = done["result"]["payloads"][0]
            value = change(json.loads(b64decode(payload["data"])))
            payload["data"] = b64encode(json.dumps(value).encode()).decode()
    return WorkflowHistory.from_json(name, json.dumps(told))


def test_commands_are_told_with_their_answers() -> None:
    commands = [
        {"operation": "requeue_hold", "arguments": ["42"], "at": "2026-12-02T03:00:00Z", "accepted": True},
        {
            "operation": "set_comment",
            "arguments": ["42", "c"],
            "at": "2026-12-02T03:00:01Z",
            "accepted": None,
        },
    ]
    name = "crash.0.recovery"
    history = _with_result(name, "drain_job", lambda result: {**result, "commands": commands})
    audit = recovery_audit(name, history.events)
    assert [c.operation for c in commands_of(audit)] == ["requeue_hold", "set_comment"]
    texts = [r.text for r in audit.records if r.what == "command"]
    assert texts == ["requeue_hold 42: accepted", "set_comment 42 c: no answer"]


def test_a_history_of_something_else_is_refused() -> None:
    with pytest.raises(UnreadableHistory, match=r"crash\.0\.monitor"):
        audit_of("crash.0.monitor")
    with pytest.raises(UnreadableHistory, match="no history"):
        recovery_audit("x", [])


def test_a_monitor_tells_what_was_heard_and_begun() -> None:
    records = monitor_records("m", recorded("missed.0.monitor").events)
    words = [r.what for r in records]
    assert words[0] == "watch"
    assert "missed by sensors" in words
    assert words[-1] == "ended"
    rejected = monitor_records("m", recorded("rejected.0.monitor").events)
    assert any(r.who is Who.SENSOR and r.what == "reported" for r in rejected)


def test_a_drained_node_is_followed_beyond_the_recovery() -> None:
    audit = audit_of("drained.0.recovery")
    [drain] = audit.drains
    assert drain.startswith("drain:")
    assert "drain" in what(audit)
    records = drain_records(drain, recorded("drained.2.drain").events)
    words = [f"{r.what} {r.step}".strip() for r in records]
    assert words[0] == "drain"
    assert records[0].text.startswith("to drain n2 for everyone")
    assert [word for word in words if word.startswith("did")] == [
        "did drain_node", "did check_node", "did release_node",
    ]  # fmt: skip
    [said] = [r for r in records if r.who is Who.PERSON]
    assert (said.what, said.name, said.text) == ("release", "ada", "new board")
    assert records[-1].text.startswith("released")
