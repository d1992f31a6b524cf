"""A person's word on a plan: what is asked, until when, and which answers count. Pure."""

from datetime import datetime

from relight.contracts import Plan
from relight.contracts.messages import Decision


class Approval:
    """One recovery's question to people. Only the plan that is shown can be decided on, and only once."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        """The plan that waits for a decision; None when nothing is asked."""
        self.deadline: datetime | None = None
        self.decision: Decision | None = None
        """The answer to the present question, with the digest filled in."""
        self.approved_digest = ""
        self.approved_by = ""

    @property
    def is_asked(self) -> bool:
        """A plan waits for a person."""
        return self.plan is not None

    def covers(self, plan: Plan) -> bool:
        """A person approved exactly this plan."""
        return self.approved_digest == plan.digest

    def ask(self, plan: Plan, deadline: datetime) -> None:
        """Shows a plan."""
        self.plan, self.deadline, self.decision = plan, deadline, None

    def close(self) -> Decision | None:
        """Ends the question and returns the answer, if there was one; an approval is remembered."""
        decision, self.plan, self.deadline, self.decision = self.decision, None, None, None
        if decision is not None and decision.approved:
            self.approved_digest, self.approved_by = decision.plan_digest, decision.by or "somebody"
        return decision

    def refusal(self, decision: Decision) -> str:
        """Why a decision cannot be taken now; empty when it can."""
        if self.plan is None:
            return "no plan is waiting for a decision"
        digest = self.plan.digest
        if decision.plan_digest and decision.plan_digest != digest:
            return f"the decision is about plan {decision.plan_digest}, but plan {digest} is shown"
        if self.decision is not None:
            word = "approved" if self.decision.approved else "rejected"
            return f"plan {digest} has been {word} by {self.decision.by or 'somebody'} already"
        return ""

    def take(self, decision: Decision) -> str:
        """Records a decision. Returns why it was refused; empty when it counts."""
        refusal = self.refusal(decision)
        if not refusal and self.plan is not None:
            self.decision = decision.model_copy(update={"plan_digest": self.plan.digest})
        return refusal
