"""The multi-pattern engine (Hyperscan): compiling, and why a pattern cannot be compiled."""

import re
from collections.abc import Sequence

import hyperscan

_ANCHOR = re.compile(r"(?<![\[\\])\^")


def compile_patterns(patterns: Sequence[str]) -> hyperscan.Database:
    """One database for all patterns, numbered in order; matches are reported by line.

    Prefixes stand before the text that `^` means, so the scan must not insist on it: `re` does, later.

    Raises:
        ValueError: a pattern is not supported.
    """
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(
            expressions=[_ANCHOR.sub("", p).encode() for p in patterns],
            ids=list(range(len(patterns))),
            flags=[hyperscan.HS_FLAG_MULTILINE] * len(patterns),
        )
    except hyperscan.HyperscanError as e:
        raise ValueError(f"not supported by the matching engine: {e}") from e
    return database


def why_not(pattern: str) -> str:
    """Why the engine cannot use this pattern; empty if it can."""
    try:
        compile_patterns([pattern])
    except ValueError as e:
        return str(e)
    return ""
