"""Checks of a catalogue: do its own examples hold, does each pattern work in bounded time?"""

import re
import time
from collections.abc import Iterator, Sequence

from relight.diagnosis.catalogue import Catalogue, Kind, Signature
from relight.diagnosis.findings import Finding
from relight.diagnosis.prefix import speaker
from relight.diagnosis.reader import LogReader

LEAST_POSITIVE = 2
LEAST_NEGATIVE = 1
SLOWEST = 0.05
"""Seconds that one pattern may take on one adversarial line."""
_LENGTH = 20_000


def found_in(catalogue: Catalogue, line: str) -> tuple[str, ...]:
    """The ids of the signatures that a line yields, by the whole engine."""
    reader = LogReader(catalogue, "example")
    events = [*reader.feed(line.encode() + b"\n"), *reader.flush()]
    return tuple(e.signature for e in events if isinstance(e, Finding))


def check_examples(catalogue: Catalogue, signature: Signature) -> Iterator[str]:
    """What is wrong with the examples of one signature."""
    if len(signature.positive) < LEAST_POSITIVE or len(signature.negative) < LEAST_NEGATIVE:
        yield f"needs {LEAST_POSITIVE} positive and {LEAST_NEGATIVE} negative example lines"
    for line in signature.positive:
        found = found_in(catalogue, line)
        if signature.role is Kind.BENIGN:
            if found or not re.search(signature.pattern, line):
                yield f"is not taken as benign: {line!r} (found: {', '.join(found) or 'nothing'})"
        elif not any(f == signature.id or f.startswith(f"{signature.id}-") for f in found):
            found_words = f"(found: {', '.join(found) or 'nothing'})"
            yield f"does not win on its own example {line!r} {found_words}{_cut_off(signature, line)}"
    for line in signature.negative:
        if signature.id in found_in(catalogue, line):
            yield f"matches its negative example {line!r}"


def _cut_off(signature: Signature, line: str) -> str:
    """Why the pattern does not see all of the line, if that is what is wrong."""
    says = speaker(line)
    pattern = re.compile(signature.pattern)
    if not says.label or not pattern.search(line) or pattern.search(says.text):
        return ""
    meaning = "a host name" if says.host or says.node else "the rank or process that prints the line"
    return f": the text up to `{says.label}` was taken for {meaning}"


def check_style(signature: Signature) -> Iterator[str]:
    """What a signature lacks."""
    if not signature.says:
        yield "does not say what it means (`says`)"
    if signature.table and "code" not in re.compile(signature.pattern).groupindex:
        yield f"is judged by the table {signature.table!r} and has no group `code`"
    if signature.names.value == "far" and "peer" not in re.compile(signature.pattern).groupindex:
        yield "names the far end and has no group `peer`"


def check_speed(signature: Signature, lines: Sequence[str]) -> Iterator[str]:
    """Adversarial lines on which the pattern takes too long."""
    pattern = re.compile(signature.pattern)
    for line in lines:
        best = min(_time(pattern, line) for _ in range(2))
        if best > SLOWEST:
            yield f"takes {best * 1000:.0f} ms on {line[:40]!r}... ({len(line)} characters)"


def adversarial(signature: Signature) -> list[str]:
    """Long lines that nearly match: pieces of examples, and what patterns repeat over, again and again."""
    lines = [
        "a" * _LENGTH,
        " " * _LENGTH,
        "0" * _LENGTH,
        "a " * (_LENGTH // 2),
        "1," * (_LENGTH // 2),
        ".[(:" * (_LENGTH // 4),
    ]
    for example in signature.positive[:2]:
        half = example[: max(1, len(example) // 2)]
        lines += [half * (_LENGTH // len(half)), (example[:-1] + "\x01") * (_LENGTH // len(example))]
    return [line[:_LENGTH] for line in lines]


def lint(catalogue: Catalogue, *, speed: bool = True) -> dict[str, list[str]]:
    """What is wrong, by signature id; signatures without fault are left out."""
    wrong: dict[str, list[str]] = {}
    for s in catalogue:
        faults = [*check_examples(catalogue, s), *check_style(s)]
        if speed:
            faults += check_speed(s, adversarial(s))
        if faults:
            wrong[s.id] = faults
    return wrong


def _time(pattern: re.Pattern[str], line: str) -> float:
    start = time.perf_counter()
    pattern.search(line)
    return time.perf_counter() - start
