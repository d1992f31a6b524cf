"""Precision, recall and the verdict, from cases. Pure, and exact: counts and fractions.

Precision: of the actions that relight would have taken and whose truth is known, how many were right. Recall:
of the real faults, how many sensors told of (the others were found by the monitor's own look only).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from math import sqrt
from statistics import NormalDist

from relight.contracts import Model
from relight.quality.case import Case, Truth

MIN_PRECISION = 0.95
"""What the lower end of the interval must reach before relight may act alone."""
Z = NormalDist().inv_cdf(0.975)
"""Of a 95 % interval, two-sided."""
_MOST = 100_000

BY: Mapping[str, Callable[[Case], str]] = {
    "cause": lambda case: case.cause.value,
    "detector": lambda case: case.detector,
    "partition": lambda case: case.partition or "-",
    "symptom": lambda case: case.symptom.value,
}
"""What cases can be told apart by."""


class Verdict(StrEnum):
    """Whether relight may act alone."""

    READY = "ready to act"
    NOT_YET = "not yet"
    NOT_SAFE = "not safe"


class Rate(Model):
    """A fraction with its 95 % Wilson interval. All None: there is nothing to count."""

    of: int
    value: float | None = None
    low: float | None = None
    high: float | None = None


class Figures(Model):
    """Of one group of cases."""

    group: tuple[str, ...]
    detected: int
    """All cases, those that were withdrawn before any plan included."""
    would_act: int
    right: int
    wrong: int
    open: int
    """Of those where relight would have acted."""
    withdrawn: int
    """Detections that relight itself found to be none, before any plan was shown."""
    missed: int
    """Real faults that no sensor told of."""
    precision: Rate
    recall: Rate
    gained: timedelta = timedelta(0)
    """How much earlier relight would have acted than somebody did, in all, where that is known."""
    gained_cases: int = 0
    false_alarms_per_day: float | None = None
    verdict: Verdict
    needs: int | None = None
    """How many more right actions in a row make it ready; None: it is, or so many that it makes no sense."""


def wilson(successes: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a proportion.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the
    American Statistical Association 22 (1927), 209-212.
    Unlike the normal approximation it holds for few cases, and for none that failed.

    Raises:
        ValueError: `total` is not positive, or `successes` is not between 0 and it.
    """
    if not 0 <= successes <= total or total < 1:
        raise ValueError(f"{successes} of {total} is no proportion")
    p, zz = successes / total, Z * Z
    middle = p + zz / (2 * total)
    half = Z * sqrt(p * (1 - p) / total + zz / (4 * total * total))
    return max(0.0, (middle - half) / (1 + zz / total)), min(1.0, (middle + half) / (1 + zz / total))


def rate(successes: int, total: int) -> Rate:
    """A fraction with its interval."""
    if not total:
        return Rate(of=0)
    low, high = wilson(successes, total)
    return Rate(of=total, value=successes / total, low=low, high=high)


def judge_precision(right: int, wrong: int, minimum: float = MIN_PRECISION) -> tuple[Verdict, int | None]:
    """Ready, not yet (and how many more right ones in a row it takes), or not safe.

    Ready: the lower end of the interval reaches the minimum. Not safe: not even the upper end does.
    """
    total = right + wrong
    if total and wilson(right, total)[0] >= minimum:
        return Verdict.READY, None
    if total and wilson(right, total)[1] < minimum:
        return Verdict.NOT_SAFE, None
    few, many = 0, _MOST  # more right ones never lower the bound
    if wilson(right + many, total + many)[0] < minimum:
        return Verdict.NOT_YET, None
    while many - few > 1:
        middle = (few + many) // 2
        if wilson(right + middle, total + middle)[0] >= minimum:
            many = middle
        else:
            few = middle
    return Verdict.NOT_YET, many


def figures(
    cases: Iterable[Case], by: Sequence[str] = ("cause",), *, days: float, minimum: float = MIN_PRECISION
) -> list[Figures]:
    """The figures of each group, in the order of the groups' names.

    Args:
        cases: all of them.
        by: what tells groups apart, of `BY`.
        days: how long was observed.
        minimum: the precision that is wanted, between 0 and 1.
    """
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(tuple(BY[name](case) for name in by), []).append(case)
    return [_of_group(group, groups[group], days, minimum) for group in sorted(groups)]


def _of_group(group: tuple[str, ...], cases: Sequence[Case], days: float, minimum: float) -> Figures:
    acting = [case for case in cases if case.would_act]
    right = sum(case.truth is Truth.RIGHT for case in acting)
    wrong = sum(case.truth is Truth.WRONG for case in acting)
    real = [case for case in cases if case.truth is Truth.RIGHT]
    missed = sum(case.missed for case in real)
    gains = [gain for case in acting if (gain := _gain(case)) is not None]
    verdict, needs = judge_precision(right, wrong, minimum)
    return Figures(
        group=group,
        detected=len(cases),
        would_act=len(acting),
        right=right,
        wrong=wrong,
        open=len(acting) - right - wrong,
        withdrawn=sum(case.truth is Truth.WRONG and not case.would_act for case in cases),
        missed=missed,
        precision=rate(right, right + wrong),
        recall=rate(len(real) - missed, len(real)),
        gained=sum(gains, timedelta(0)),
        gained_cases=len(gains),
        false_alarms_per_day=wrong / days if days > 0 else None,
        verdict=verdict,
        needs=needs,
    )


def _gain(case: Case) -> timedelta | None:
    """How much earlier relight would have acted; None where it is not known, or there was nothing to do."""
    if case.truth is not Truth.RIGHT or case.would_act_at is None or case.happened_at is None:
        return None
    return max(case.happened_at - case.would_act_at, timedelta(0))
