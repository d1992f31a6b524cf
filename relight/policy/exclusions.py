"""Which nodes relight keeps a job off, and for how long. Pure.

A scheduler's exclusion list stays with the job for good. So relight remembers what it put there itself, and
takes it off again at a restart; what the job's owner excluded is never touched.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from relight.contracts import RecoveryOutcome

MAX_EXCLUDED = 500
"""Of one job. Beyond it the oldest are no longer known as relight's own, and stay excluded."""


def after(excluded: Mapping[str, datetime], outcome: RecoveryOutcome, now: datetime) -> dict[str, datetime]:
    """What relight keeps the job off, and since when, after a recovery; oldest first.

    Args:
        excluded: the same, before it.
        outcome: of the recovery.
        now: the time.
    """
    again = {n for n in outcome.excluded_nodes if n in excluded and n not in outcome.newly_excluded}
    fresh = dict.fromkeys((*sorted(again), *outcome.newly_excluded), now)
    gone = {*outcome.readmitted_nodes, *fresh}
    kept = {node: since for node, since in excluded.items() if node not in gone}
    return dict(list({**kept, **fresh}.items())[-MAX_EXCLUDED:])


def expired(excluded: Mapping[str, datetime], lasts: timedelta, now: datetime) -> tuple[str, ...]:
    """The nodes that were excluded so long ago that the job may run there again, in their order."""
    return tuple(node for node, since in excluded.items() if now - since >= lasts)


def next_list(listed: Iterable[str], readmitted: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """The exclusion list of the next attempt, sorted.

    Args:
        listed: what is on the job's list now.
        readmitted: whom the plan lets in again, unless `more` names it.
        more: which nodes must not be used, either.
    """
    return tuple(sorted({*listed} - {*readmitted} | {*more}))


def newly(excluded: Iterable[str], listed: Iterable[str]) -> tuple[str, ...]:
    """Those of a list that were not on the one before, in their order."""
    before = {*listed}
    return tuple(node for node in excluded if node not in before)
