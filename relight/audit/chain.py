"""The hash chain of an archive: each line's hash covers the line before it and every byte of its own. Pure.

A line is `{"hash":"<64 hex digits>",<rest>}`. Its hash is SHA-256 of the hash before it (empty for the first)
and of `<rest>`, byte for byte. There is no key in it: who can rewrite every line after a change, and the
head, leaves no trace. Note the head elsewhere (`relight audit check-archive` prints it) to detect that too.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pydantic import Field, ValidationError

from relight.audit.record import RecoveryAudit
from relight.contracts import Model, UtcDatetime

_LINE = re.compile(rb'\{"hash":"([0-9a-f]{64})",(.*)\}', re.DOTALL)


class Entry(Model):
    """What a line holds beside its hash."""

    schema_version: int = 1
    number: int = Field(ge=1)
    """From 1, over all files of a chain."""
    previous: str
    """The hash of the line before; empty for the first."""
    recovery_id: str
    archived_at: UtcDatetime
    audit: RecoveryAudit


class Head(Model):
    """The end of a chain: how many lines it has, and the hash of the last."""

    count: int = Field(default=0, ge=0)
    hash: str = ""


@dataclass(frozen=True)
class Problem:
    """Where a chain is broken first."""

    where: str
    """File and line, or the head."""
    text: str

    def __str__(self) -> str:
        """For a person."""
        return f"{self.where}: {self.text}"


class Note(Model):
    """Beside the chains: that there is this one, so that it is missed when it is gone."""

    chain: str
    first: str
    """The hash of its first record."""


def check_note(note: Note | None, chain: str, after: Mapping[int, str]) -> Problem | None:
    """What is wrong with the begin of a chain; None where it begins as its note says.

    Args:
        note: of the chain; None: there is none.
        chain: its name.
        after: the hash of each record that was read, by its number.
    """
    first = after.get(1, "")
    if note is None:
        # A writer that died after the first record left no note: the next record brings it.
        return Problem(chain, "the note of this chain is missing") if len(after) > 2 else None
    if note.chain != chain or not first:
        return Problem(chain, "all records of this chain are missing")
    return None if note.first == first else Problem(chain, "it begins with another record than its note says")


def write_line(head: Head, archived_at: UtcDatetime, audit: RecoveryAudit) -> tuple[bytes, Head]:
    """The line that follows a head, with its newline, and the head after it."""
    entry = Entry(
        number=head.count + 1,
        previous=head.hash,
        recovery_id=audit.recovery_id,
        archived_at=archived_at,
        audit=audit,
    )
    rest = json.dumps(entry.model_dump(mode="json"), separators=(",", ":"), ensure_ascii=True)[1:-1].encode()
    digest = _hash(head.hash, rest)
    line = b'{"hash":"' + digest.encode() + b'",' + rest + b"}\n"
    return line, Head(count=entry.number, hash=digest)


def parse_line(line: bytes) -> tuple[Entry, Head]:
    """The entry of a line, and the head after it.

    Raises:
        ValueError: it is no record, or was changed; in words.
    """
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError("it is not a record of an archive")
    digest, rest = found.group(1).decode(), found.group(2)
    try:
        entry = Entry.model_validate_json(b"{" + rest + b"}")
    except ValidationError as error:
        raise ValueError(f"it was changed: it cannot be read ({error.error_count()} errors)") from error
    if _hash(entry.previous, rest) != digest:
        raise ValueError("it was changed: its hash is another one")
    return entry, Head(count=entry.number, hash=digest)


def read_line(line: bytes, before: Head) -> tuple[Entry, Head]:
    """The entry of a line that follows `before`, and the head after it.

    Raises:
        ValueError: it is not that line, in words.
    """
    entry, after = parse_line(line)
    if entry.number != before.count + 1:
        expected = before.count + 1
        raise ValueError(f"record {expected} is missing or in another place: here is {entry.number}")
    if entry.previous != before.hash:
        raise ValueError("the record before it was changed: its hash is not the one named here")
    return entry, after


def read_chain(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, Entry, Head] | Problem]:
    """Every record of a chain with its place and the head after it; ends with the first problem.

    Args:
        files: names and contents, in the order of their names.
    """
    head = Head()
    for name, content in files:
        *lines, rest = content.split(b"\n")
        for number, line in enumerate(lines, 1):
            where = f"{name}, line {number}"
            try:
                entry, head = read_line(line, head)
            except ValueError as error:
                yield Problem(where, str(error))
                return
            yield where, entry, head
        if rest or not content:
            yield Problem(name, "its last record is cut off" if rest else "it is empty")
            return


def check_head(reached: Head, stored: Head | None, after: dict[int, str]) -> Problem | None:
    """What is wrong with the end of a chain; None where it ends as its head says.

    Args:
        reached: after the last line.
        stored: the head file; None: there is none.
        after: the hash of each record.
    """
    if stored is None:
        return Problem("head", "there is no head file") if reached.count else None
    if stored == reached:
        return None
    if stored.count == reached.count - 1 and after.get(stored.count, "") == stored.hash:
        return None  # a writer died between the record and the head: the next one mends it
    if stored.count > reached.count:
        return Problem("head", f"records {reached.count + 1} to {stored.count} are missing at the end")
    if stored.count == reached.count:
        return Problem("head", "it names another last record than the archive ends with")
    return Problem("head", f"it tells of {stored.count} records, but there are {reached.count}")


def _hash(previous: str, rest: bytes) -> str:
    return hashlib.sha256(previous.encode() + rest).hexdigest()
