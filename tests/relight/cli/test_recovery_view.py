"""What a person reads of a plan before deciding."""

from datetime import UTC, datetime, timedelta

import pytest

from relight.cli.recovery_view import plan_lines
from relight.contracts import Action, Plan
from relight.contracts.messages import RecoveryStatus
from tests.workflows import samples

PLAN = Plan(action=Action.RESTART, because="a crash", needs_approval_because=("observe mode",))


@pytest.mark.parametrize(
    ("needed", "names", "says"),
    [
        (1, (), None),
        (2, (), "approved by 0 of 2 people"),
        (2, ("ada@[red]head1",), "approved by 1 of 2 people: ada@\\[red]head1"),
    ],
)
def test_how_many_people_are_still_wanted(needed: int, names: tuple[str, ...], says: str | None) -> None:
    status = RecoveryStatus(
        recovery_id="recover:1",
        state="awaiting-approval",
        diagnosis=samples.diagnosis(),
        plan=PLAN,
        plan_digest=PLAN.digest,
        approval_deadline=datetime.now(UTC) + timedelta(hours=1),
        approvals=names,
        approvals_needed=needed,
    )
    lines = plan_lines(status)
    assert [line for line in lines if line.startswith("approved by")] == ([says] if says else [])
    assert any(PLAN.digest in line for line in lines)
