"""What becomes of holds that nobody ended."""

from datetime import timedelta
from typing import Any

import pytest

from relight.contracts import JobState, Policy
from relight.policy.holds import Overdue, Tag, hold_deadline, overdue
from tests.activities.double import T0, running

NOW = T0 + timedelta(days=1)
OURS = "recover:lab:42:0:abcd"
PAST = NOW - timedelta(seconds=1)


def held(**fields: Any) -> Any:
    return running(
        **{
            "state": JobState.PENDING,
            "held": True,
            "restart_count": 1,
            "reason": "job_requeued_in_held_state",
        }
        | fields
    )


def tag(**fields: Any) -> Tag:
    return Tag(**{"recovery_id": OURS, "held": "why", "until": PAST} | fields)


@pytest.mark.parametrize(
    ("info", "mark", "verdict", "says"),
    [
        (held(), tag(), Overdue.RELEASE, "did not come back"),
        (held(), tag(until=NOW), Overdue.RELEASE, "did not come back"),
        (held(), tag(until=NOW + timedelta(seconds=1)), None, ""),
        (held(held=False), tag(), None, ""),
        (held(state=JobState.RUNNING), tag(), None, ""),
        (held(), tag(person=True), Overdue.REPORT, "waits for a person"),
        (held(), tag(person=True, until=NOW + timedelta(days=1)), None, ""),
        (held(), tag(until=None), Overdue.REPORT, "no deadline"),
        (held(reason="JobHeldUser"), tag(), Overdue.REPORT, "JobHeldUser: somebody else"),
        (held(reason="JobHeldAdmin"), tag(), Overdue.REPORT, "JobHeldAdmin: somebody else"),
        (held(reason=""), tag(), Overdue.REPORT, "not known"),
        (held(job_id="43"), tag(), Overdue.REPORT, "another job or attempt"),
        (held(restart_count=2), tag(), Overdue.REPORT, "another job or attempt"),
        (held(), tag(recovery_id="recover:"), Overdue.REPORT, "another job or attempt"),
    ],
)
def test_what_to_do(info: Any, mark: Tag, verdict: Overdue | None, says: str) -> None:
    found = overdue(info, mark, NOW)
    assert (found[0] if found else None) is verdict
    assert says in (found[1] if found else "")


def test_the_deadline_is_later_than_any_wait_of_a_recovery() -> None:
    policy = Policy(drain_window=timedelta(minutes=20), approval_deadline=timedelta(hours=2))
    assert hold_deadline(policy, T0) - T0 == timedelta(hours=8, minutes=20)
    assert hold_deadline(policy, T0 + timedelta(milliseconds=300)).microsecond == 0
