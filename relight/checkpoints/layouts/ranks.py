"""Sets of ranks: files or directories that are numbered by rank, all of which must be there."""

import itertools
import re
from collections.abc import Iterable, Set
from math import prod

_LIMIT = 1_000_000
"""A grid with more places is no grid of ranks."""


def absent(names: Iterable[str], pattern: re.Pattern[str], *, gaps: Set[int] = frozenset()) -> set[str]:
    """Names that a full grid of ranks would have and that are not there.

    Args:
        names: what is there; names that do not match are passed over.
        pattern: its groups are the ranks, each counted from 0 without a gap.
        gaps: groups (from 0) that may have gaps: there, only numbers seen count.
    """
    found: dict[tuple[int, ...], re.Match[str]] = {}
    for name in names:
        if match := pattern.fullmatch(name):
            found.setdefault(tuple(int(g) for g in match.groups() if g is not None), match)
    missing: set[str] = set()
    for width in {len(ranks) for ranks in found if max(ranks) < _LIMIT}:
        seen = {r: match for r, match in found.items() if len(r) == width and max(r) < _LIMIT}
        axes = [
            sorted({r[i] for r in seen}) if i in gaps else range(max(r[i] for r in seen) + 1)
            for i in range(width)
        ]
        if prod(map(len, axes)) > _LIMIT:
            continue
        sample = next(iter(seen.values()))
        missing |= {_rename(sample, ranks) for ranks in itertools.product(*axes) if ranks not in seen}
    return missing


def _rename(sample: re.Match[str], ranks: tuple[int, ...]) -> str:
    """The sample's text with other ranks, written as wide as the sample's are."""
    text, at, result = sample.string, 0, ""
    groups = [i for i in range(1, len(sample.groups()) + 1) if sample[i] is not None]
    for group, rank in zip(groups, ranks, strict=True):
        start, end = sample.span(group)
        result += text[at:start] + str(rank).zfill(
            end - start if text[start] == "0" and end - start > 1 else 1
        )
        at = end
    return result + text[at:]
