"""People's word on a plan: what is asked, until when, who may answer, and which answers count. Pure."""

from datetime import datetime

from relight.contracts import Plan
from relight.contracts.messages import Decision
from relight.contracts.policy import Policy


class Approval:
    """One recovery's question to people. Only the plan that is shown can be decided on, and only once.

    A policy may want two people: then the plan waits until a second, different one has approved it too. One
    rejection is enough.
    """

    def __init__(self, policy: Policy | None = None) -> None:
        policy = policy or Policy()
        self.needed = policy.approvals
        """So many different people must approve."""
        self._approvers = {_person(name): name for name in policy.approvers}
        self.plan: Plan | None = None
        """The plan that waits for a decision; None when nothing is asked."""
        self.deadline: datetime | None = None
        self.approvals: tuple[str, ...] = ()
        """Who approved the present plan so far, in order."""
        self.decision: Decision | None = None
        """The answer to the present question, with the digest filled in; None while it is not complete."""
        self.last_decision = ""
        """The last complete decision, in words; empty: there was none."""
        self.approved_digest = ""
        self.approved_by = ""

    @property
    def is_asked(self) -> bool:
        """A plan waits for a person."""
        return self.plan is not None

    def covers(self, plan: Plan) -> bool:
        """People approved exactly this plan."""
        return self.approved_digest == plan.digest

    def ask(self, plan: Plan, deadline: datetime) -> None:
        """Shows a plan. Approvals of an earlier one do not count for it."""
        self.plan, self.deadline, self.decision, self.approvals = plan, deadline, None, ()

    def close(self) -> Decision | None:
        """Ends the question and returns the answer, if there was one; an approval is remembered."""
        decision, self.plan, self.deadline, self.decision = self.decision, None, None, None
        if decision is not None and decision.approved:
            self.approved_digest, self.approved_by = decision.plan_digest, " and ".join(self.approvals)
        self.approvals = ()
        return decision

    def consent(self, by: str) -> None:
        """The time ran out, and the policy takes silence for an approval: `by` says so for the record."""
        if self.plan is not None:
            self.approvals = (by,)
            self.decision = Decision(approved=True, by=by, plan_digest=self.plan.digest)

    def refusal(self, decision: Decision) -> str:
        """Why a decision cannot be taken now; empty when it can."""
        if self.plan is None:
            late = f": {self.last_decision}" if self.last_decision else ""
            return f"no plan is waiting for a decision{late}"
        digest = self.plan.digest
        if decision.plan_digest and decision.plan_digest != digest:
            return f"the decision is about plan {decision.plan_digest}, but plan {digest} is shown"
        if self.decision is not None:
            return f"{self.last_decision or f'plan {digest} was decided on'} already"
        return self._wrong_person(decision)

    def _wrong_person(self, decision: Decision) -> str:
        person = _person(decision.by)
        if self._approvers and person not in self._approvers:
            allowed = ", ".join(self._approvers.values())
            return f"{decision.by or 'somebody'} may not decide: the policy names {allowed}"
        if self.needed > 1 and not person:
            return f"a decision needs a name in `by`: {self.needed} different people must approve"
        if decision.approved and person in {_person(name) for name in self.approvals}:
            return f"{decision.by} has approved it already: somebody else must approve too"
        return ""

    def take(self, decision: Decision, at: datetime) -> str:
        """Records a decision of this time. Returns why it was refused; empty when it counts."""
        refusal = self.refusal(decision)
        if refusal or self.plan is None:
            return refusal
        named = decision.model_copy(update={"plan_digest": self.plan.digest})
        who, word = decision.by or "somebody", "rejected"
        if decision.approved:
            self.approvals = (*self.approvals, who)
            who, word = " and ".join(self.approvals), "approved"
            if len(self.approvals) < self.needed:
                return ""
        self.decision = named
        self.last_decision = f"plan {named.plan_digest} was {word} by {who} at {at:%Y-%m-%d %H:%M:%S} UTC"
        return ""

    def still_wanted(self) -> str:
        """What an incomplete approval waits for, to be put behind a sentence; empty when it is complete."""
        if self.plan is None or self.decision is not None or not self.approvals:
            return ""
        so_far = f"{len(self.approvals)} of {self.needed}, by {', '.join(self.approvals)}"
        return f": {so_far}; another person must approve too"


def _person(name: str) -> str:
    """Who a name stands for: `Anna@head1` and `anna@head2` are one person."""
    return name.partition("@")[0].strip().casefold()
