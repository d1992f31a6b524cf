"""How attempts relate, and when a recovery steps back."""

from datetime import timedelta

import pytest

from relight.contracts import Attempt
from relight.policy.attempts import Relation, relation, same_execution, step_back
from tests.workflows.samples import T0, attempt, report

FIRST = attempt(0)
SECOND = attempt(1)


@pytest.mark.parametrize(
    ("known", "seen", "expected"),
    [
        (FIRST, FIRST, Relation.SAME),
        (FIRST, SECOND, Relation.NEWER),
        (SECOND, FIRST, Relation.OLDER),
        (FIRST, attempt(0, submitted=T0 + timedelta(seconds=9)), Relation.OTHER),
        (SECOND, attempt(1, submitted=SECOND.submit_time + timedelta(seconds=9)), Relation.SAME),
        # Read while the first attempt, submitted days ago, was completing; then settled. Or the other way.
        (SECOND, attempt(1, submitted=SECOND.submit_time + timedelta(days=9)), Relation.SAME),
        (attempt(1, submitted=SECOND.submit_time + timedelta(days=9)), SECOND, Relation.SAME),
        (FIRST, attempt(0, job_id="1"), Relation.OTHER),
        (FIRST, FIRST.model_copy(update={"cluster": "elsewhere"}), Relation.OTHER),
        # A requeue always has a later submit time too, but the count alone says that it is the same job.
        (FIRST, attempt(1, submitted=T0), Relation.NEWER),
    ],
)
def test_relation(known: Attempt, seen: Attempt, expected: Relation) -> None:
    assert relation(known, seen) is expected
    assert same_execution(known, seen) is (expected is Relation.SAME)


@pytest.mark.parametrize(
    ("told", "adopt", "why"),
    [
        (report("ended", state="COMPLETED"), False, "completed"),
        (report("ended", state="CANCELLED"), False, "cancelled"),
        (report("ended", state="TIMEOUT"), False, "time limit"),
        (report("ended", state="DEADLINE"), False, "deadline"),
        (report("ended", state="PREEMPTED"), False, "preempted"),
        (report("ended", state="CANCELLED"), True, "cancelled"),
        (report("ended", state="FAILED"), False, ""),
        (report("ended", state="NODE_FAIL"), False, ""),
        (report("ended"), False, ""),
        (report("started"), False, ""),
        (report("progress", step=5), False, ""),
        (report("started", restart=1), False, "restarted by somebody else"),
        (report("progress", restart=1, step=5), False, "restarted by somebody else"),
        (report("ended", restart=1, state="FAILED"), False, "has ended"),
        (report("started", restart=1), True, ""),
        (report("ended", restart=1, state="COMPLETED"), True, ""),
        (report("ended", attempt=attempt(0, job_id="1"), state="CANCELLED"), False, ""),
    ],
)
def test_step_back(told: object, adopt: bool, why: str) -> None:
    reason = step_back(told, FIRST, adopt=adopt)  # type: ignore[arg-type]
    assert (why in reason) if why else reason == ""


def test_what_is_told_of_the_attempt_before_ones_own_is_ones_own_doing() -> None:
    assert step_back(report("ended", state="CANCELLED"), SECOND) == ""
