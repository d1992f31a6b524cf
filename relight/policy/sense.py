"""Policies that make no sense, although each of their values is allowed by itself. Pure."""

from collections.abc import Iterator
from datetime import timedelta

from relight.contracts import Isolation, MayAct, Policy, Source
from relight.contracts.policy import Steer, Then
from relight.policy.plan import NOTHING_TO_RECOVER

ACCUSERS = (Source.KERNEL, Source.NVML, Source.PROMETHEUS, Source.SCHEDULER)
"""The sources that can accuse a node; a job's own log never counts against one."""

_NOT_ZERO = {
    "hang_floor": "every silence between two steps would be a hang",
    "start_floor": "every start that is silent for a moment would be a hang",
    "approval_deadline": "no person could ever decide",
    "confirm_window": "no source could be asked",
    "drain_window": "the old attempt could never leave its nodes",
    "queue_window": "the job could not wait in the queue",
    "verify_window": "no attempt could prove that it resumed",
    "poll": "the scheduler would be asked without a pause",
}
_ENDINGS = ("on_from_scratch", "on_older_checkpoint", "on_divergence", "on_unproductive")


def conflicts(policy: Policy) -> tuple[tuple[tuple[str, ...], str], ...]:
    """What makes a policy impossible: where in it, and why. Empty: it can be used."""
    found = [*_of_all(policy)]
    for cause, rule in policy.causes.items():
        if cause in NOTHING_TO_RECOVER:
            found.append((("causes", cause.value), "relight never recovers from it: a rule would not apply"))
            continue
        given = rule.model_dump(exclude_none=True)
        for key, why in _of_one(policy.for_cause(cause)):
            if key in given:
                found.append((("causes", cause.value, key), why))
        if policy.for_cause(cause).act is MayAct.NEVER and set(given) - {"act"}:
            others = ", ".join(sorted(set(given) - {"act"}))
            found.append((("causes", cause.value), f"it never acts, so that {others} would not apply"))
    return tuple(found)


def may_ever_act(policy: Policy) -> bool:
    """There is a cause for which it may act, with an approval or without one."""
    rules = (rule.act for rule in policy.causes.values() if rule.act is not None)
    return policy.act is not MayAct.NEVER or any(act is not MayAct.NEVER for act in rules)


def _of_all(policy: Policy) -> Iterator[tuple[tuple[str, ...], str]]:
    for key, why in _NOT_ZERO.items():
        if getattr(policy, key) <= timedelta(0):
            yield (key,), f"0 is too short: {why}"
    for key, why in _of_one(policy):
        yield (key,), why
    if both := sorted(set(policy.do_not_requeue) & set(policy.restart_elsewhere)):
        codes = ", ".join(map(str, both))
        yield ("restart_elsewhere",), f"exit code {codes} is in do_not_requeue too: it cannot be both"
    for key in ("loss_jump", "grad_norm_jump"):
        if 0 < getattr(policy, key) <= 1:
            yield (key,), "every value would be a jump; more than 1, or 0 for none"
    if may_ever_act(policy):
        return
    if policy.steer is not Steer.LEAVE:
        yield ("steer",), f"{policy.steer.value} changes checkpoints, and with act never nothing is changed"
    for key in _ENDINGS:
        if getattr(policy, key) is Then.HOLD:
            yield (key,), "hold ends an attempt, and with act never nothing is changed"


def _of_one(policy: Policy) -> Iterator[tuple[str, str]]:
    """What can differ for a cause."""
    asked = "retries_confirmation" in policy.model_fields_set  # else fewer restarts are just fewer
    if asked and policy.retries_confirmation > policy.retries_general:
        yield (
            "retries_general",
            f"{policy.retries_general} is less than retries_confirmation ({policy.retries_confirmation}), "
            "which counts some of the same restarts",
        )
    if policy.isolation is Isolation.DRAIN and policy.signs_to_drain > len(ACCUSERS):
        names = ", ".join(source.value for source in ACCUSERS)
        yield (
            "signs_to_drain",
            f"only {len(ACCUSERS)} sources can accuse a node ({names}): none would ever be drained; "
            "write isolation: exclude instead",
        )
