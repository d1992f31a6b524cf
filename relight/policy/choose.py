"""Which policy and mode a job gets, and why: from the policy file, the job, and what was asked for. Pure."""

from dataclasses import dataclass

from pydantic import ValidationError

from relight.contracts import Mode, Model, Policy, TrainingJob
from relight.policy.file import DEFAULT, NEVER, PolicyFile, apply
from relight.policy.sense import conflicts

MODE = "mode of the policy file"
PARTITION = "partition"
OVERRIDE = "override"
IMPOSSIBLE = "impossible policy"
_MEND = "mend the overrides in the policy file (`relight policy show --job JOB` names them)"


class Cap(Model):
    """What keeps a job from acting: a gate of the policy file, why it is closed, and how to open it."""

    gate: str
    why: str
    opens: str


class Chosen(Model):
    """What a job gets."""

    policy: Policy
    mode: Mode
    """The mode that was asked for, or a lower one."""
    reasons: tuple[str, ...] = ()
    """How it came to that, in words, in order."""
    caps: tuple[Cap, ...] = ()
    """What keeps a job like this from acting, in order, whatever mode was asked for."""


class NotAllowed(ValueError):
    """The policy that was asked for does not exist, or jobs may not choose it; the message lists others."""


@dataclass(frozen=True)
class JobFacts:
    """What overrides look at."""

    partition: str = ""
    user: str = ""
    account: str = ""

    @classmethod
    def of(cls, job: TrainingJob) -> "JobFacts":
        """Those of a job that is watched."""
        return cls(job.partition, job.user, job.account)


def check_allowed(file: PolicyFile, asked: str) -> None:
    """Refuses a policy that cannot be had; an empty name asks for none.

    Raises:
        NotAllowed: there is no such policy, or jobs may not choose it.
    """
    if asked and asked not in file.names:
        raise NotAllowed(f"there is no policy {asked!r}; known policies: {', '.join(file.allowed)}")
    if asked and asked not in file.allowed:
        raise NotAllowed(f"jobs may not choose policy {asked!r}; they may choose: {', '.join(file.allowed)}")


def choose(file: PolicyFile, facts: JobFacts, mode: Mode, asked: str = "") -> Chosen:
    """Chooses.

    Args:
        file: the policy file; an empty one where there is none.
        facts: whose job it is, and where it runs.
        mode: the mode that was asked for, or the one of the settings.
        asked: the policy that was asked for; empty: none.

    Raises:
        NotAllowed: that policy cannot be had.
    """
    check_allowed(file, asked)
    matching = [(n, o) for n, o in enumerate(file.overrides, 1) if o.matches(*_key(facts))]
    name, reasons = (asked, [f"policy {asked}: asked for"]) if asked else (DEFAULT, [])
    for n, override in matching:
        if override.policy and (not asked or override.policy == NEVER):
            name = override.policy
            reasons = [f"policy {name}: override {n} ({override.label()})"]
        if name == NEVER:
            break
    policy = file.policy(name)
    reasons = reasons or [f"policy {name}: nothing else was asked for"]
    if name != NEVER:  # it leaves the job alone, whatever else is said
        for n, override in matching:
            if override.set:
                policy = apply(policy, override.set)
                reasons.append(f"{', '.join(sorted(override.set))}: override {n} ({override.label()})")
    caps = caps_of(file, facts, policy)
    if wrong := _impossible(policy):
        # Each override is fine by itself: only a job that several match meets this.
        caps = (Cap(gate=IMPOSSIBLE, why=f"its overrides contradict each other: {wrong}", opens=_MEND), *caps)
        policy = file.policy(name)
        reasons.append("overrides are left out, since together they cannot be")
    if mode is Mode.ACT and caps:
        mode = Mode.OBSERVE
        reasons.append(f"mode observe, not act: {caps[0].why}")
    return Chosen(policy=policy, mode=mode, reasons=tuple(reasons), caps=caps)


def _impossible(policy: Policy) -> str:
    """Why there can be no such policy; empty: there can."""
    try:
        Policy.model_validate(policy.model_dump())
    except ValidationError as error:
        return "; ".join(str(e["msg"]).removeprefix("Value error, ") for e in error.errors())
    return ""


def caps_of(file: PolicyFile, facts: JobFacts, policy: Policy) -> tuple[Cap, ...]:
    """What keeps such a job from acting with this policy, in order; empty: the policy file lets it act."""
    caps = []
    if file.mode is Mode.OBSERVE:
        why, opens = "the policy file lets no job act", "set `mode: act` in the policy file"
        caps.append(Cap(gate=MODE, why=why, opens=opens))
    if file.act_in is not None and facts.partition not in file.act_in:
        where = f"partition {facts.partition}" if facts.partition else "a job without a partition"
        caps.append(
            Cap(
                gate=PARTITION,
                why=f"{where} only observes: jobs act in {', '.join(file.act_in) or 'none'}",
                opens=f"add {facts.partition or 'its partition'} to `act_in` in the policy file",
            )
        )
    for n, override in enumerate(file.overrides, 1):
        if override.mode is Mode.OBSERVE and override.matches(*_key(facts)):
            why = f"override {n} ({override.label()}) only observes"
            caps.append(Cap(gate=OVERRIDE, why=why, opens=f"take `mode` out of override {n}"))
    if wrong := conflicts(policy):
        key, what = wrong[0]
        why = f"this policy cannot be used ({'.'.join(key)}: {what})"
        caps.append(Cap(gate=IMPOSSIBLE, why=why, opens="mend the policy, or the overrides that made it so"))
    return tuple(caps)


def _key(facts: JobFacts) -> tuple[str, str, str]:
    return facts.partition, facts.user, facts.account
