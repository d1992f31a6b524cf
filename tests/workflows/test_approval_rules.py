"""Which decisions on a plan count: the table of who says what, and what becomes of it."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from relight.contracts import Action, Plan
from relight.contracts.messages import Decision
from relight.contracts.policy import OnExpiry, Policy
from tests.workflows import samples
from workflows.approval import Approval

PLAN = Plan(action=Action.RESTART, because="a crash")
OTHER = Plan(action=Action.RESTART, because="another crash")


def asked(**rules: object) -> Approval:
    approval = Approval(Policy.model_validate(rules))
    approval.ask(PLAN, samples.T0 + timedelta(hours=1))
    return approval


@pytest.mark.parametrize(
    ("rules", "says", "refused", "wanted", "complete"),
    [
        ({}, [("ada", True)], [""], "", True),
        ({}, [("", True)], [""], "", True),
        ({}, [("ada", True), ("bob", True)], ["", "was approved by ada at 20"], "", True),
        ({"approvals": 2}, [("ada", True)], [""], "1 of 2, by ada", False),
        ({"approvals": 2}, [("ada", True), ("bob", True)], ["", ""], "", True),
        ({"approvals": 2}, [("ada", True), ("ada", True)], ["", "somebody else"], "1 of 2", False),
        ({"approvals": 2}, [("ada@a", True), ("Ada@b", True)], ["", "somebody else"], "1 of 2", False),
        ({"approvals": 2}, [("", True)], ["needs a name"], "", False),
        ({"approvals": 2}, [("ada", True), ("", True)], ["", "needs a name"], "1 of 2", False),
        ({"approvals": 2}, [("ada", True), ("bob", False)], ["", ""], "", True),
        ({"approvals": 2}, [("ada", True), ("ada", False)], ["", ""], "", True),
        ({"approvers": ["ada"]}, [("eve", True)], ["eve may not decide: the policy names ada"], "", False),
        ({"approvers": ["ada"]}, [("eve", False)], ["may not decide"], "", False),
        ({"approvers": ["ada"]}, [("", True)], ["somebody may not decide"], "", False),
        ({"approvers": ["ada"]}, [("ada@head1", True)], [""], "", True),
        ({"approvers": ["ada", "bob"], "approvals": 2}, [("ada", True), ("eve", True)], ["", "may not"],
         "1 of 2", False),
    ],
)  # fmt: skip
def test_who_says_what(
    rules: dict[str, object], says: list[tuple[str, bool]], refused: list[str], wanted: str, complete: bool
) -> None:
    approval = asked(**rules)
    for (by, approved), refusal in zip(says, refused, strict=True):
        said = approval.take(Decision(by=by, approved=approved), samples.T0)
        assert refusal in said
        assert bool(said) is bool(refusal)
    assert wanted in approval.still_wanted()
    assert bool(approval.still_wanted()) is bool(wanted)
    assert (approval.decision is not None) is complete


def test_both_names_are_kept() -> None:
    approval = asked(approvals=2)
    approval.take(Decision(by="ada"), samples.T0)
    approval.take(Decision(by="bob", reason="seen"), samples.T0)
    answer = approval.close()
    assert answer is not None
    assert answer.approved
    assert approval.approved_by == "ada and bob"
    assert approval.covers(PLAN)
    assert not approval.covers(OTHER)


def test_the_first_word_on_an_old_plan_is_none_on_a_new_one() -> None:
    approval = asked(approvals=2)
    approval.take(Decision(by="ada"), samples.T0)
    approval.ask(OTHER, samples.T0)
    assert approval.approvals == ()
    assert "is shown" in approval.take(Decision(by="bob", plan_digest=PLAN.digest), samples.T0)
    assert approval.take(Decision(by="bob"), samples.T0) == ""
    assert approval.decision is None


def test_rules_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValidationError, match="contradict"):
        Policy(approvals=2, on_expiry=OnExpiry.PROCEED)
    with pytest.raises(ValidationError, match="approvers names 1"):
        Policy(approvals=2, approvers=("ada",))


def test_who_comes_too_late_hears_who_decided_and_when() -> None:
    approval = asked()
    assert approval.refusal(Decision(by="eve")) == ""
    approval.take(Decision(by="ada", approved=False), samples.T0)
    decided = f"plan {PLAN.digest} was rejected by ada at {samples.T0:%Y-%m-%d %H:%M:%S} UTC"
    assert approval.refusal(Decision(by="bob")) == f"{decided} already"
    approval.close()
    assert approval.refusal(Decision(by="bob")) == f"no plan is waiting for a decision: {decided}"
