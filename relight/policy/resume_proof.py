"""Did training resume, and from where? The verdict on what the new attempt's log tells. Pure.

Steps alone do not prove it: a counter can go on while the weights are new. So the numbers of the first steps
are held against those before the fault.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from relight.contracts import Model, Policy
from relight.contracts.policy import Then
from relight.contracts.steps import VerifyResult
from relight.diagnosis.findings import StepLine

IN_A_ROW = 3
"""Steps in a row that must be bad before training is said to diverge: one spike is none."""
KEPT = 8
"""Samples kept of the begin, and of the end, of what the new attempt printed."""
KEPT_BEFORE = 16
"""Samples kept of the failed attempt: from the checkpoint on, and at its end."""


class Sample(Model):
    """The numbers of one step."""

    step: int
    loss: float | None = None
    """Finite; None where none was printed, or it was no number."""
    grad_norm: float | None = None
    bad: bool = False
    """Its loss or gradient norm is no number, and it was not skipped for that."""


class Seen(Model):
    """What was seen of the new attempt until now, and of the failed one before."""

    first: int | None = None
    second: int | None = None
    """The step after the first, which tells how often steps are printed."""
    furthest: int | None = None
    loaded: str = ""
    """The checkpoint that it says it loaded."""
    loaded_step: int | None = None
    samples: tuple[Sample, ...] = ()
    """The first and the last steps of the new attempt, in order."""
    before: tuple[Sample, ...] = ()
    """Steps of the failed attempt: some after the checkpoint, and its last ones."""


@dataclass(frozen=True)
class Goal:
    """What the new attempt has to show."""

    failed_at: int | None = None
    """The step to pass; None: any step does."""
    resumable_from: int | None = None
    """The step of the newest usable checkpoint."""
    loss_jump: float = 0.0
    grad_norm_jump: float = 0.0
    """As in `Policy`."""
    older_is_final: bool = False
    """An older checkpoint is told at once, not only when the failed step is passed."""

    @staticmethod
    def of(policy: Policy, failed_at: int | None, resumable_from: int | None) -> "Goal":
        """The goal for a job with this policy."""
        return Goal(
            failed_at=failed_at,
            resumable_from=resumable_from,
            loss_jump=policy.loss_jump,
            grad_norm_jump=policy.grad_norm_jump,
            older_is_final=policy.on_older_checkpoint is not Then.ACCEPT,
        )


def sample(line: StepLine) -> Sample:
    """The numbers of a step line."""
    values = (line.loss, line.grad_norm)
    bad = line.no_loss or any(v is not None and not math.isfinite(v) for v in values)
    return Sample(
        step=line.step,
        loss=_finite(line.loss),
        grad_norm=_finite(line.grad_norm),
        bad=bad and not line.skipped,
    )


def add_steps(seen: Seen, lines: Sequence[StepLine]) -> Seen:
    """What has been seen after more step lines of the new attempt."""
    steps = [line.step for line in lines]
    first, second = seen.first, seen.second
    if first is None and steps:
        first = steps[0]
    if second is None and first is not None:
        second = next((step for step in steps if step > first), None)
    furthest = max([*steps, *([] if seen.furthest is None else [seen.furthest])], default=None)
    samples = _ends(_merged((*seen.samples, *map(sample, lines))), KEPT, KEPT)
    return seen.model_copy(
        update={"first": first, "second": second, "furthest": furthest, "samples": samples}
    )


def baseline(lines: Iterable[StepLine], resumable_from: int | None) -> tuple[Sample, ...]:
    """What to keep of the failed attempt's steps: those that are trained again first, and the last ones."""
    samples = _merged(map(sample, lines))
    if resumable_from is None:
        return samples[-KEPT_BEFORE:]
    again = [s for s in samples if s.step >= resumable_from - 1]
    return _merged((*again[:KEPT_BEFORE], *samples[-KEPT_BEFORE:]))


def judge(seen: Seen, goal: Goal) -> VerifyResult | None:
    """The verdict on what was seen; None while it is open.

    A training that starts from scratch prints its first step within one printing interval of 0; it is told
    from one that loaded an older checkpoint by its first two steps. A step less than the checkpoint's own is
    no difference: some count from 0.
    """
    if seen.first is None or seen.furthest is None:
        return None
    resumable = goal.resumable_from
    early = resumable is not None and seen.first < resumable - 1
    if early and seen.second is not None and seen.first <= seen.second - seen.first:
        text = f"training started from scratch (step {seen.first}), not from the checkpoint at {resumable}"
        if seen.loaded_step:
            text += f", although its log says that it loaded step {seen.loaded_step}"
        return _verdict("from_scratch", seen, text)
    if why := divergence(seen, goal):
        return diverged(seen, why)

    older = early or (resumable is not None and (seen.loaded_step or resumable) < resumable - 1)
    resumed_at = f"having resumed at step {seen.first}"
    note = f", although the checkpoint at {resumable} can be used"
    if older and goal.older_is_final and (seen.second is not None or not early):
        return _verdict("older_checkpoint", seen, f"training goes on, {resumed_at}{note}")
    if goal.failed_at is not None and seen.furthest <= goal.failed_at:
        return None
    if in_doubt(seen, goal):
        return None
    passed = (
        f"training passed step {goal.failed_at}" if goal.failed_at is not None else "training makes steps"
    )
    text = f"{passed}: step {seen.furthest}, {resumed_at}"
    return _verdict("older_checkpoint", seen, text + note) if older else _verdict("resumed", seen, text)


def diverged(seen: Seen, why: str) -> VerifyResult:
    """The verdict that the numbers are wrong; it tells the last step at which they were not."""
    text = f"training diverged after it resumed at step {seen.first}: {why}"
    return _verdict("diverged", seen, text).model_copy(update={"passed_step": last_good(seen)})


def divergence(seen: Seen, goal: Goal) -> str:
    """In what way training goes wrong by its last steps; empty while it does not, or it may be a spike."""
    bad, jumped = _trouble(seen, goal)
    if bad >= IN_A_ROW:
        return f"the loss is not a number since step {seen.samples[-bad].step}"
    for name, tail, usual in jumped:
        if tail >= IN_A_ROW:
            last = seen.samples[-1]
            value = last.loss if name == "loss" else last.grad_norm
            return f"the {name} is {value:.4g} at step {last.step}, and was {usual:.4g} before the fault"
    return ""


def in_doubt(seen: Seen, goal: Goal) -> bool:
    """The last step looks wrong: only more steps can tell."""
    bad, jumped = _trouble(seen, goal)
    return bad > 0 or any(tail > 0 for _, tail, _ in jumped)


def then(verdict: str, policy: Policy) -> Then:
    """What policy wants done after this verdict."""
    return {
        "resumed": Then.ACCEPT,
        "older_checkpoint": policy.on_older_checkpoint,
        "from_scratch": policy.on_from_scratch,
        "diverged": policy.on_divergence,
        "too_slow": policy.on_unproductive,
    }.get(verdict, Then.REPORT)


def ended_wrong(seen: Seen) -> str:
    """What was wrong with the last steps of an attempt that ended; empty if nothing was."""
    bad = _tail(seen.samples, lambda s: s.bad)
    return f"the loss was not a number since step {seen.samples[-bad].step}" if bad else ""


def last_good(seen: Seen) -> int | None:
    """The last step whose numbers are numbers."""
    return max((s.step for s in seen.samples if not s.bad), default=None)


def gpu_hours(
    lost_seconds: float, steps_left: int, step_seconds: float | None, gpus: int | None
) -> float | None:
    """GPU hours that a fault cost: the time without a new step, and what is still to be trained again.

    Args:
        lost_seconds: from the fault until training was past the failed step, or until now.
        steps_left: steps that are still to be trained again.
        step_seconds: the time of one step.
        gpus: GPUs of the job.

    Returns:
        None where the number of GPUs is not known, or steps are left and their time is not known.
    """
    if gpus is None or (steps_left > 0 and step_seconds is None):
        return None
    return gpus * (max(0.0, lost_seconds) + max(0, steps_left) * (step_seconds or 0.0)) / 3600


_Jump = tuple[str, int, float]
"""What jumped, for how many of the last steps, and what was usual."""


def _trouble(seen: Seen, goal: Goal) -> tuple[int, list[_Jump]]:
    bad = _tail(seen.samples, lambda s: s.bad)
    jumps = [
        _jump("loss", seen, goal.loss_jump, lambda s: s.loss),
        _jump("gradient norm", seen, goal.grad_norm_jump, lambda s: s.grad_norm),
    ]
    return bad, [j for j in jumps if j is not None]


def _jump(name: str, seen: Seen, limit: float, value: Callable[[Sample], float | None]) -> _Jump | None:
    """How long the tail is in which every value is far above the same step's before, or the usual one."""
    known = {s.step: v for s in seen.before if (v := value(s)) is not None}
    if limit <= 1 or not known:
        return None
    last = [v for _, v in sorted(known.items())][-KEPT_BEFORE:]
    usual, highest = median(last), max(last)

    def is_high(one: Sample) -> bool:
        now = value(one)
        if now is None or one.step < min(known):  # a loss is higher the earlier it is
            return False
        if one.step in known:
            return 0 < known[one.step] * limit < now
        return usual > 0 and now > limit * usual and now > highest

    tail = _tail(seen.samples, is_high)
    return name, tail, known.get(seen.samples[-1].step, usual) if seen.samples else usual


def _tail(samples: Sequence[Sample], holds: Callable[[Sample], bool]) -> int:
    count = 0
    for one in reversed(samples):
        if not holds(one):
            break
        count += 1
    return count


def _merged(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """One sample for each step, in order: several ranks print a step, or several lines tell of it."""
    by_step: dict[int, Sample] = {}
    for one in samples:
        known = by_step.get(one.step)
        if known is not None:
            one = Sample(
                step=one.step,
                loss=known.loss if known.loss is not None else one.loss,
                grad_norm=known.grad_norm if known.grad_norm is not None else one.grad_norm,
                bad=known.bad or one.bad,
            )
        by_step[one.step] = one
    return tuple(by_step[step] for step in sorted(by_step))


def _ends(samples: tuple[Sample, ...], begin: int, end: int) -> tuple[Sample, ...]:
    return samples if len(samples) <= begin + end else (*samples[:begin], *samples[-end:])


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _verdict(verdict: str, seen: Seen, text: str) -> VerifyResult:
    return VerifyResult(
        verdict=verdict,
        first_step=seen.first,
        passed_step=seen.furthest,
        loaded=seen.loaded,
        loaded_step=seen.loaded_step,
        summary=text,
    )
