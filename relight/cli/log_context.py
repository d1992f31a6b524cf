"""Evidence lines where they were found: the lines around them in a job's log, cleaned and bounded.

A log is somebody else's text and may be of any size: only a window of bytes around each line is read, each
line goes through `clean_text`, and a file that is no regular file, or of another user than it should be, is
left alone.
"""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from relight.cli.shapes import LogExcerpt, LogLine, LogQuote
from relight.contracts import Evidence, Source, clean_text
from relight.wording import file_of, place

WINDOW = 64 * 1024
"""Bytes that are read before, and after, the begin of an evidence line."""
COUNTED = 1 << 30
"""The furthest into a file that newlines are counted, to give a line's number."""
_PIECE = 1 << 20


@dataclass(frozen=True)
class _Seen:
    """One line of a file."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Looked:
    """Quotations with where they are now, and what is around them."""

    quotes: tuple[LogQuote, ...]
    excerpts: tuple[LogExcerpt, ...]


def place_of(evidence: Evidence) -> tuple[str, int] | None:
    """The file and byte offset of a line of a log; None for evidence of another kind."""
    found = file_of(evidence) if evidence.source is Source.JOB_LOG else None
    return found if found is not None and found[0].startswith("/") else None


def look(evidence: Iterable[Evidence], around: int, owner: int | None = None) -> Looked:
    """Looks each piece of evidence up in its file.

    Args:
        evidence: what was quoted.
        around: lines wanted before each, and after.
        owner: the only user whose files may be read; None: any that can be.
    """
    quotes: list[LogQuote] = []
    lines: dict[str, dict[int, _Seen]] = {}
    marked: dict[str, set[int]] = {}
    for one in evidence:
        quote = LogQuote(
            source=one.source.value, observed_at=one.observed_at, text=one.text, node=one.node, rank=one.rank,
            signature=one.signature, where=one.where, place=place(one), line=one.line,
        )  # fmt: skip
        if (found := place_of(one)) is None:
            quotes.append(quote)
            continue
        name, offset = found
        try:
            seen, number = _read(name, offset, around, owner)
        except OSError as error:
            problem = f"it cannot be read here: {error.strerror or error}"
            quotes.append(quote.model_copy(update={"file": clean_text(name), "problem": problem}))
            continue
        here = next(line for line in seen if line.start == offset)
        quotes.append(
            quote.model_copy(
                update={
                    "file": clean_text(name),
                    "line": number or one.line,
                    "place": place(one.model_copy(update={"line": number or one.line})),
                    "verbatim": here.text == one.text,
                }
            )
        )
        lines.setdefault(name, {}).update({line.start: line for line in seen})
        marked.setdefault(name, set()).add(offset)
    numbers = {(quote.file, quote.where): quote.line for quote in quotes}
    return Looked(tuple(quotes), tuple(_excerpts(lines, marked, numbers)))


def _excerpts(
    lines: Mapping[str, Mapping[int, _Seen]],
    marked: Mapping[str, set[int]],
    numbers: Mapping[tuple[str, str], int | None],
) -> Iterable[LogExcerpt]:
    """Lines that follow each other belong to one excerpt, also where two windows overlap."""
    for name, known in lines.items():
        run: list[_Seen] = []
        for start in [*sorted(known), -1]:
            if run and run[-1].end != start:
                yield _excerpt(name, run, marked[name], numbers)
                run = []
            if start >= 0:
                run.append(known[start])


def _excerpt(
    name: str, run: Sequence[_Seen], marked: set[int], numbers: Mapping[tuple[str, str], int | None]
) -> LogExcerpt:
    """Numbers its lines from one evidence line whose number is known."""
    first: int | None = None
    for at, line in enumerate(run):
        number = numbers.get((clean_text(name), clean_text(f"{name}:{line.start}")))
        if line.start in marked and number is not None:
            first = number - at
            break
    return LogExcerpt(
        file=clean_text(name),
        lines=tuple(
            LogLine(
                line=None if first is None else first + at,
                offset=line.start,
                text=line.text,
                evidence=line.start in marked,
            )
            for at, line in enumerate(run)
        ),
    )


def _read(name: str, offset: int, around: int, owner: int | None) -> tuple[list[_Seen], int | None]:
    """The line that begins at an offset, with those around it; and its number, if that can be told.

    Raises:
        OSError: the file is gone, out of reach, not to be read, or has no such line any more; in words.
    """
    # Without O_NONBLOCK, opening a named pipe waits for somebody who writes into it.
    with open(os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is no regular file")
        if owner is not None and found.st_uid != owner:
            raise OSError("it belongs to another user than the job")
        if offset >= found.st_size:
            raise OSError(f"it is shorter now ({found.st_size} bytes): it was cut off, or written anew")
        start = max(0, offset - WINDOW)
        file.seek(start)
        before, after = file.read(offset - start), file.read(WINDOW)
        number = _newlines(name, offset) + 1 if offset <= COUNTED else None
    # A line that begins before the window is not whole: only what follows the first newline counts.
    whole = before if start == 0 else before[before.find(b"\n") + 1 :] if b"\n" in before else b""
    earlier = _split(whole, offset - len(whole))
    if earlier and not whole.endswith(b"\n"):
        # The line begins after a carriage return, within what counts as a line: what is before it there (a
        # progress bar, as a rule) is left out, and the lines still follow each other.
        earlier = [*earlier[:-2], *(replace(line, end=offset) for line in earlier[-2:-1])]
    later = _split(after, offset)
    return [*(earlier[-around:] if around else []), *later[: around + 1]], number


def _split(content: bytes, offset: int) -> list[_Seen]:
    found = []
    *lines, rest = content.split(b"\n")
    for line in [*(line + b"\n" for line in lines), *([rest] if rest else [])]:
        found.append(_Seen(offset, offset + len(line), clean_text(line.decode("utf-8", "replace"))))
        offset += len(line)
    return found


def _newlines(name: str, upto: int) -> int:
    count = 0
    with Path(name).open("rb") as file:
        while upto > 0 and (piece := file.read(min(_PIECE, upto))):
            count += piece.count(b"\n")
            upto -= len(piece)
    return count
