"""How evidence and what is made of it are put for people, alike at the terminal and in the web UI. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from relight.contracts import Cause, Evidence, Source
from relight.policy.ledger import fold

MAX_NAMED = 64
"""Nodes or ranks that one line stands for and that are named; beyond, they are only counted."""

_FILE_PLACE = re.compile(r"(?P<file>.+):(?P<offset>\d{1,18})", re.DOTALL)
_KERNEL_FILE = re.compile(r"(?P<file>.+):\d+:\d+:(?P<offset>\d{1,18})", re.DOTALL)
_KMSG = re.compile(r"kmsg:(?P<boot>[0-9a-f]*):(?P<number>\d{1,20})")
_NVML = re.compile(r"nvml:[\w.-]+:\d{4}-\S+")

_STAMP = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"
)
_CHANGING = re.compile(r"0x[0-9a-fA-F]+|\d+\.\d+|\d{4,}|(?<=\[)\d{1,2}(?=\] NCCL)")
"""Addresses, measured values, process ids and ports, and which of a node's GPUs NCCL speaks of."""
_RANK = re.compile(r"(\brank[ :=_-]?|^\[|^)(\d+)\b(?=[\]:, ]|$)", re.IGNORECASE)


def moment(at: datetime) -> str:
    """A time, for people."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def certainty(cause: Cause, confidence: float) -> str:
    """How sure relight is of a cause, to follow its name in brackets; empty for one that is not known.

    Args:
        cause: what it says.
        confidence: from 0 to 1.
    """
    return "" if cause is Cause.UNKNOWN else f"{confidence:.0%} sure"


def cause_of(cause: Cause, confidence: float) -> str:
    """`cause storage (70% sure)`, `cause unknown`."""
    sure = certainty(cause, confidence)
    return f"cause {cause.value}" + (f" ({sure})" if sure else "")


def place(evidence: Evidence) -> str:
    """Where to see a piece of evidence again: `file:line`, or what stands for it elsewhere; may be empty."""
    where = evidence.where
    if evidence.source is Source.KERNEL and (m := _KMSG.fullmatch(where)):
        return f"kernel message {m['number']} of {moment(evidence.observed_at)}, read from /dev/kmsg"
    if evidence.source is Source.NVML and _NVML.fullmatch(where):
        return f"NVML, at {moment(evidence.observed_at)}"
    if (found := file_of(evidence)) is None:
        return where
    file, offset = found
    return f"{file}:{evidence.line}" if evidence.line is not None else f"{file}, byte {offset}"


def file_of(evidence: Evidence) -> tuple[str, int] | None:
    """The file and the byte at which the line begins; None for evidence that is in no file."""
    m = None
    if evidence.source is Source.KERNEL and not _KMSG.fullmatch(evidence.where):
        m = _KERNEL_FILE.fullmatch(evidence.where)
    if m is None and (evidence.source is Source.JOB_LOG or evidence.line is not None):
        m = _FILE_PLACE.fullmatch(evidence.where)
    return (m["file"], int(m["offset"])) if m is not None else None


class Quoted(Protocol):
    """What can be quoted: evidence, and its like."""

    @property
    def text(self) -> str:
        """Its words."""

    @property
    def signature(self) -> str:
        """Of the catalogue; empty: none."""

    @property
    def node(self) -> str | None:
        """Which it is about."""

    @property
    def rank(self) -> int | None:
        """Which says it."""


Q = TypeVar("Q", bound=Quoted)


@dataclass(frozen=True)
class Alike(Generic[Q]):
    """Pieces of evidence that say the same."""

    first: Q
    others: tuple[Q, ...]

    @property
    def more(self) -> str:
        """`and 7 alike on ranks 1-7`; empty where there is only the first."""
        if not self.others:
            return ""
        return f"and {len(self.others)} alike{_who(self.others)}"


def collapse(evidence: Iterable[Q]) -> list[Alike[Q]]:
    """Puts together what differs only in rank, node, time, address or process; in the order of the firsts.

    Ranks that meet the same error print the same line: people read it once. Small numbers count, since
    codes of errors are such.
    """
    groups: dict[tuple[object, ...], list[Q]] = {}
    for one in evidence:
        groups.setdefault(_sameness(one), []).append(one)
    return [Alike(first, tuple(others)) for first, *others in groups.values()]


def _sameness(one: Quoted) -> tuple[object, ...]:
    text = _STAMP.sub("#", one.text)
    if one.node:
        text = re.sub(rf"(?<![\w-]){re.escape(one.node)}(?![\w-])", "#", text)
    text = _CHANGING.sub("#", text)
    if one.rank is not None:
        rank = str(one.rank)
        text = _RANK.sub(lambda m: f"{m[1]}#" if m[2] == rank else m[0], text)
    return getattr(one, "source", ""), one.signature, " ".join(text.split())


def _who(others: Sequence[Quoted]) -> str:
    ranks = sorted({one.rank for one in others if one.rank is not None})
    if len(ranks) == len(others):
        return f" on rank {ranks[0]}" if len(ranks) == 1 else f" on ranks {_spans(ranks)}"
    nodes = sorted({one.node for one in others if one.node})
    if nodes and all(one.node for one in others) and len(nodes) <= MAX_NAMED:
        return f" on {fold(nodes)}"
    return ""


def _spans(numbers: Sequence[int]) -> str:
    """`1-7`, `1-3,9`; of very many pieces only the first."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [f"{a}-{b}" if b > a else f"{a}" for a, b in spans[:MAX_NAMED]]
    return ",".join(shown) + (",..." if len(spans) > MAX_NAMED else "")


def counted(number: int, one: str, many: str) -> str:
    """A number with what is counted: 1 record, 2 records."""
    return f"{number} {one if number == 1 else many}"
