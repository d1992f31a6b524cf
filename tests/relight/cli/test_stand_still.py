"""A hang that nobody is asked about again is told as one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relight.cli.last_step import TOLD, step_cell, step_line
from relight.cli.stand_still import in_words, stand_still
from relight.cli.why import closed_gates
from relight.contracts import Outcome, Progress, RecoveryOutcome, Symptom, Timeline
from relight.contracts.messages import MonitorStatus
from tests.workflows import samples

T0 = datetime(2026, 12, 2, 3, tzinfo=UTC)
JOB = samples.job()
NEXT = JOB.attempt.model_copy(
    update={"restart_count": 1, "submit_time": JOB.attempt.submit_time + timedelta(hours=1)}
)


def ended(outcome: Outcome = Outcome.REJECTED, **fields: Any) -> RecoveryOutcome:
    known: dict[str, Any] = {
        "recovery_id": "recover:1", "reason": "anna: it compiles", "symptom": Symptom.HANG,
        "attempt": JOB.attempt, "lost_from_step": 6516, "times": Timeline(occurred=T0),
    }  # fmt: skip
    return RecoveryOutcome(outcome=outcome, **(known | fields))


def at(step: int) -> Progress:
    return Progress(step=step, at=T0)


@pytest.mark.parametrize(
    ("outcomes", "progress", "still"),
    [
        ([], at(6516), False),
        ([ended()], at(6516), True),
        ([ended(Outcome.EXPIRED)], at(6516), True),
        ([ended(Outcome.REFUTED)], at(6516), False),
        ([ended(Outcome.RESUMED)], at(6516), False),
        ([ended(symptom=Symptom.CRASH)], at(6516), False),
        ([ended()], at(6517), False),
        ([ended(attempt=NEXT)], at(6516), False),
        ([ended(lost_from_step=None)], None, True),
        ([ended(lost_from_step=None)], at(1), False),
        ([ended(), ended(Outcome.REFUTED)], at(6516), True),
        ([ended(lost_from_step=100), ended()], at(6516), True),
    ],
)
def test_whether_it_stands_still(
    outcomes: list[RecoveryOutcome], progress: Progress | None, still: bool
) -> None:
    assert (stand_still(JOB.attempt, progress, outcomes) is not None) == still


def test_it_is_said_wherever_its_step_is_shown() -> None:
    found = stand_still(JOB.attempt, at(6516), [ended()])
    assert found is not None
    words = "stands still since 2026-12-02 03:00:00 UTC, its plan was rejected (anna: it compiles)"
    assert in_words(found) == words
    now = T0 + timedelta(seconds=109)
    line = step_line(at(6516), now, watching=True, still=found)
    assert line == f"step 6516, 1m49s ago; {words}"
    assert TOLD not in line
    assert step_cell(at(6516), now, found) == "6516 (1m49s ago), stands still: rejected"
    monitor = MonitorStatus(job=JOB, state="watching")
    first, *_ = closed_gates(JOB, monitor, None, None, now=now, still=found)
    assert (first.gate, first.why) == ("declined", f"it {words}")
    assert "requeue or cancel it yourself" in first.opens
