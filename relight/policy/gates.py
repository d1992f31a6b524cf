"""The gates that a job's policy keeps closed: what must be so before relight acts by itself. Pure.

`relight why` names them, and a plan lists those that a person's approval opens.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from relight.contracts import Diagnosis, MayAct, Policy, TrainingJob
from relight.contracts.messages import PastFailure
from relight.durations import format_duration

POLICY = "policy"
CAUSE = "cause"
COOL_DOWN = "cool-down"
RULE = "rule that only counts"
MAX_COUNTED = 200
"""Rules that one monitor counts."""


class Gate(NamedTuple):
    """A closed gate."""

    name: str
    why: str
    opens: str
    """A command, or what to do."""


def closed_gates(
    job: TrainingJob, diagnosis: Diagnosis | None, restarted: datetime | None, now: datetime
) -> tuple[Gate, ...]:
    """The gates of a job's policy that are closed, in the order in which relight meets them.

    Args:
        job: the job, with its policy.
        diagnosis: what is wrong with it; None: nothing is, or it is not known yet.
        restarted: when the latest restart of the run was ordered; None: there was none.
        now: the time.
    """
    gates = _of_the_policy(job, diagnosis)
    until = _cool_down_until(_policy(job, diagnosis), restarted)
    if until is not None and restarted is not None and now < until:
        gates.append(_cool_down(_policy(job, diagnosis), job, restarted, until))
    if diagnosis is not None and (rules := counting_rules(job.policy, diagnosis)):
        gates.append(_only_counts(job, rules))
    return tuple(gates)


def approval_reasons(
    job: TrainingJob, diagnosis: Diagnosis, ledger: Sequence[PastFailure], now: datetime
) -> list[str]:
    """Why a person must agree although the mode and the evidence would do: cool-down, rules that only count.

    The texts stay the same while time passes, so that a plan's digest does. When the cool-down ends, they
    change: see `cool_down_until`.

    Args:
        job: the job, with its policy.
        diagnosis: what is wrong.
        ledger: earlier failures of the run that a restart followed, oldest first.
        now: the time.
    """
    asked = {COOL_DOWN, RULE}
    gates = closed_gates(job, diagnosis, last_restart(ledger), now)
    return [gate.why for gate in gates if gate.name in asked]


def cool_down_until(job: TrainingJob, diagnosis: Diagnosis, ledger: Sequence[PastFailure]) -> datetime | None:
    """When the cool-down after the latest restart ends; None: there is none. It may be over already."""
    return _cool_down_until(_policy(job, diagnosis), last_restart(ledger))


def last_restart(ledger: Sequence[PastFailure]) -> datetime | None:
    """When the latest restart of the run was ordered; None: there was none, or its time is not known."""
    return max((past.at for past in ledger if past.at is not None), default=None)


def counting_rules(policy: Policy, diagnosis: Diagnosis) -> tuple[str, ...]:
    """The rules that only count and without which there would be no such diagnosis; empty: it stands without.

    An anomaly only counts if its detector does, or if all signatures do that it has. A diagnosis does if all
    anomalies do that say the same.
    """
    listed = frozenset(policy.observe_only)
    if not listed or not diagnosis.rules:
        return ()
    found: list[str] = []
    for detector, *signatures in diagnosis.rules:
        if detector in listed:
            found.append(detector)
            continue
        named = [rule for signature in signatures if (rule := _listed(signature, listed))]
        if not named or len(named) < len(signatures):
            return ()
        found += named
    return tuple(dict.fromkeys(found))


def count_rules(policy: Policy, diagnosis: Diagnosis, before: Mapping[str, int]) -> dict[str, int]:
    """The counts after a recovery for this diagnosis: one more for each rule that alone was the reason."""
    after = dict(before)
    for rule in counting_rules(policy, diagnosis):
        if rule in after or len(after) < MAX_COUNTED:
            after[rule] = after.get(rule, 0) + 1
    return after


def _of_the_policy(job: TrainingJob, diagnosis: Diagnosis | None) -> list[Gate]:
    policy, name = job.policy, job.policy.name
    again = f"`relight unwatch {job.attempt.job_id}`, then watch it with another policy"
    if diagnosis is None:
        if policy.act is MayAct.NEVER:
            return [Gate(POLICY, f"policy {name} never acts{_except(policy)}", again)]
        if policy.act is MayAct.APPROVAL:
            return [Gate(POLICY, f"policy {name} wants an approval of every plan", again)]
        return []
    cause = diagnosis.cause
    ruled = cause in policy.causes and policy.causes[cause].act is not None
    gate, what = (CAUSE, f" for cause {cause.value}") if ruled else (POLICY, "")
    match policy.for_cause(cause).act:
        case MayAct.NEVER:
            return [Gate(gate, f"policy {name} never acts{what}", again)]
        case MayAct.APPROVAL:
            opens = f"relight approve {job.attempt.job_id}"
            return [Gate(gate, f"policy {name} wants an approval{what}", opens)]
    return []


def _except(policy: Policy) -> str:
    causes = [c.value for c, rule in policy.causes.items() if rule.act not in {None, MayAct.NEVER}]
    return f", except for {', '.join(causes)}" if causes else ""


def _policy(job: TrainingJob, diagnosis: Diagnosis | None) -> Policy:
    return job.policy if diagnosis is None else job.policy.for_cause(diagnosis.cause)


def _cool_down_until(policy: Policy, restarted: datetime | None) -> datetime | None:
    return restarted + policy.cool_down if restarted is not None and policy.cool_down else None


def _cool_down(policy: Policy, job: TrainingJob, restarted: datetime, until: datetime) -> Gate:
    length = format_duration(policy.cool_down)
    why = f"cool-down of {length} after the restart at {_clock(restarted)}, until {_clock(until)}"
    return Gate(COOL_DOWN, why, f"wait, or `relight approve {job.attempt.job_id}` when it is asked for")


def _only_counts(job: TrainingJob, rules: Sequence[str]) -> Gate:
    says = f"only {', '.join(rules)} says so, and the policy lets {_them(rules)} count but not act yet"
    opens = (
        f"relight approve {job.attempt.job_id}, or take {_them(rules)} out of `observe` in the policy file"
    )
    return Gate(RULE, says, opens)


def _them(rules: Sequence[str]) -> str:
    return "it" if len(rules) == 1 else "them"


def _clock(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _listed(signature: str, listed: frozenset[str]) -> str:
    """The listed rule that this signature is; a code (`xid-79`) may stand for it whoever told it."""
    if signature in listed:
        return signature
    code = signature.rpartition(".")[2]
    return code if code.startswith(("xid-", "sxid-")) and code in listed else ""
