"""Retry ledgers: how often one root cause was retried with no step gained. Progress resets them."""

from relight.contracts import Cause, Diagnosis, Policy
from relight.contracts.messages import RetryLedger

MAX_LEDGERS = 20

FREE_CAUSES = frozenset({Cause.PREEMPTION, Cause.NODE_FAILURE})
"""Not the job's doing, and restarting elsewhere helps: they use up no budget."""

REPLAY_STABLE_CAUSES = frozenset(
    {Cause.USER_CODE, Cause.NUMERICAL, Cause.CHECKPOINT_CORRUPT, Cause.DATA_LOADER}
)
"""A replay meets the same thing again: the same code line, the same data, the same file."""


def ledger_key(root_key: str, cause: Cause) -> str:
    """Under which key retries of this root are counted."""
    return root_key or cause.value


def tried_without_progress(ledger: RetryLedger, step: int | None) -> int:
    """The tries that still count when the job now failed at `step`: none of them if a step was gained."""
    gained = step is not None and (ledger.step is None or step > ledger.step)
    return 0 if gained else ledger.tried


def spent(ledgers: tuple[RetryLedger, ...], policy: Policy, diagnosis: Diagnosis) -> str:
    """Why the retry budget for this diagnosis is used up; empty while a restart may still be tried.

    A replay-stable root has `retries_confirmation` tries under its own key; every cause has
    `retries_general` tries in all, under whatever key, so that a key that changes each time ends too.
    """
    if diagnosis.cause in FREE_CAUSES:
        return ""
    step = diagnosis.progress.step if diagnosis.progress else None
    tried = {
        ledger.root_key: tried_without_progress(ledger, step)
        for ledger in ledgers
        if ledger.cause is diagnosis.cause
    }
    at = "before its first step" if step is None else f"at step {step}"
    same = tried.get(ledger_key(diagnosis.root_key, diagnosis.cause), 0)
    if diagnosis.root_key and diagnosis.cause in REPLAY_STABLE_CAUSES and same >= policy.retries_confirmation:
        return f"the same failure ({diagnosis.root_key}) came back {at} after {_times(same)}, no step gained"
    total = sum(tried.values())
    if total >= policy.retries_general:
        return f"{diagnosis.cause.value} came back {at} after {_times(total)}, no step gained"
    return ""


def count_try(
    ledgers: tuple[RetryLedger, ...], root_key: str, cause: Cause, step: int | None
) -> tuple[RetryLedger, ...]:
    """The ledgers after one more restart because of this root, which failed at `step`."""
    if cause in FREE_CAUSES:
        return ledgers
    key = ledger_key(root_key, cause)
    known = next((x for x in ledgers if x.root_key == key and x.cause is cause), None)
    if known is None:
        counted = RetryLedger(root_key=key, cause=cause, tried=1, step=step)
    else:
        steps = [s for s in (known.step, step) if s is not None]
        counted = known.model_copy(
            update={"tried": tried_without_progress(known, step) + 1, "step": max(steps, default=None)}
        )
    others = tuple(x for x in ledgers if x is not known)
    return (*others, counted)[-MAX_LEDGERS:]


def _times(n: int) -> str:
    return "1 restart" if n == 1 else f"{n} restarts"
