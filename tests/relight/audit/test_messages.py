"""What signals say, in words."""

from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter

from relight.audit.messages import heard
from relight.audit.record import Who
from relight.contracts.guard import PermitDecision, PermitKind

UNTIL = datetime(2026, 12, 3, 5, 10, 11, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"granted": True, "lease_until": UNTIL}, "may change the job, until 2026-12-03 05:10:11 UTC"),
        (
            {"granted": True, "kind": PermitKind.DRAIN, "paused": True},
            "may drain the node; nothing may be changed now",
        ),
        (
            {"waits": True, "gate": "budget", "reason": "3 of 3 at once"},
            "must wait to change the job: budget: 3 of 3 at once",
        ),
        ({"kind": PermitKind.DRAIN, "reason": "too old"}, "refused to drain the node: too old"),
        (
            {"granted": True, "observe": True},
            "may change the job; the cluster observes: a person must have approved the plan",
        ),
    ],
)
def test_a_permit_is_told_in_words(fields: dict[str, Any], words: str) -> None:
    permit = PermitDecision(holder="recover:lab:1:0:a", **fields)
    told = heard("permit_decided", pydantic_data_converter.payload_converter.to_payloads([permit]))
    assert (told.who, told.what, told.name, told.text) == (Who.RELIGHT, "permit", "guard", words)


def test_a_signal_without_a_meaning_is_told_as_such() -> None:
    told = heard("aprove\x1b[31m", [])
    assert (told.who, told.what) == (Who.TEMPORAL, "signal")
    assert told.text == "aprove: relight does not know it, or cannot read its payload"
