"""What a person reads of a plan before deciding."""

from datetime import UTC, datetime, timedelta

import pytest

from relight.cli.recovery_view import plan_lines, what_happened
from relight.contracts import Action, Cause, Evidence, Plan, Source
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


def test_what_happened_is_told_with_lines_and_zone_and_without_a_percentage_of_nothing() -> None:
    evidence = tuple(
        Evidence(
            source=Source.JOB_LOG, observed_at=samples.T0, text=f"[rank{n}]: RuntimeError: boom", rank=n,
            where=f"/logs/a.log:{n * 100}", line=n + 1, signature="python.exception",
        )
        for n in range(8)
    )  # fmt: skip
    diagnosis = samples.diagnosis(cause=Cause.UNKNOWN, evidence=evidence)
    status = RecoveryStatus(recovery_id="recover:1", state="confirming", diagnosis=diagnosis)
    text = "\n".join(what_happened(status))
    assert "cause unknown, at " in text
    assert f"at {samples.T0:%Y-%m-%d %H:%M:%S} UTC" in text
    assert text.count("boom") == 1
    assert "[dim]/logs/a.log:1, and 7 alike on ranks 1-7[/]" in text
    sure = diagnosis.model_copy(update={"cause": Cause.STORAGE, "confidence": 0.7})
    assert "cause storage (70% sure), at" in what_happened(status.model_copy(update={"diagnosis": sure}))[0]
