"""The archive: one JSON line for each finished recovery, hash-chained, kept beyond Temporal's retention.

Files are `<chain>/<number of the first record>-<month>.jsonl`; a new one begins with each month, and beyond
`MAX_BYTES`. `<chain>/head.json` says how many records there are and the hash of the last, and
`_chains/<chain>.json` that there is such a chain. A directory has one chain, guarded by a lock. An object
store has neither locks nor appends: each machine has a chain of its own.
"""

import hashlib
import json
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import ValidationError

from relight.audit.chain import (
    Entry,
    Head,
    Note,
    Problem,
    check_head,
    check_note,
    parse_line,
    read_chain,
    read_line,
    write_line,
)
from relight.audit.places import ArchiveError, Directory, Place, Remote
from relight.audit.record import RecoveryAudit

MAX_BYTES = 64 * 1024 * 1024
"""Beyond this a new file begins."""
SHARED = "recoveries"
"""The chain of a directory."""
NOTES = "_chains"
"""Where the note of each chain is; no chain has such a name."""
_FILE = re.compile(r"\d{8}-\d{4}-\d{2}(-[0-9a-f]{16})?\.jsonl")

_ID = re.compile(rb'[^}]{0,300}?"recovery_id":("(?:[^"\\]|\\.)*")')
"""Near the beginning of a line: see `Entry`."""


@dataclass(frozen=True)
class Checked:
    """What a look through one chain found."""

    chain: str
    head: Head
    """Where the good part ends."""
    problem: Problem | None = None
    after: Mapping[int, str] = field(default_factory=dict)
    """The hash of each record, by its number."""


class Archive:
    """An archive, to write or to read."""

    def __init__(self, place: Place, chain: str = SHARED, max_bytes: int = MAX_BYTES) -> None:
        self._place, self._chain = place, chain
        self._max_bytes = max_bytes if place.grows else 1
        self._known: set[bytes] = set()
        """Ids of archived recoveries, as JSON, from the part of each file that was read."""
        self._read_to: dict[str, int] = {}
        self._noted = False

    def append(self, audit: RecoveryAudit, now: datetime) -> bool:
        """Adds a recovery; False: it is there already, and nothing was done.

        Raises:
            ArchiveError: the archive was changed by somebody, or cannot be written.
        """
        try:
            with self._place.lock():
                if self._holds(audit.recovery_id):
                    return False
                self._add(audit, now)
        except OSError as error:
            raise ArchiveError(f"the archive cannot be written: {error}") from error
        return True

    def entries(self, naming: str = "") -> Iterator[Entry]:
        """All records that can be read, each recovery once; what is broken is left out (`check` tells it).

        Args:
            naming: only records in which this is a value (a job's id, a workflow's id); the others are not
                parsed. Empty: all.
        """
        wanted = json.dumps(naming).encode() if naming else b""
        seen: set[str] = set()
        for name in self._files():
            for line in (self._place.read(name) or b"").splitlines():
                if wanted not in line:
                    continue
                try:
                    entry = Entry.model_validate_json(line)
                except ValidationError:
                    continue
                if entry.recovery_id not in seen:
                    seen.add(entry.recovery_id)
                    yield entry

    def exists(self) -> bool:
        """There is such a place: a directory that is not there was never written, or is gone as a whole."""
        return self._place.exists()

    def try_out(self) -> None:
        """Finds out whether it can be written and read, and leaves nothing behind.

        Raises:
            ArchiveError: it cannot.
        """
        try:
            self._place.try_out()
        except OSError as error:
            raise ArchiveError(f"it cannot be written and read: {error}") from error

    def check(self) -> list[Checked]:
        """Goes through every chain; each result names the first problem, if there is one."""
        names = [name for name in self._place.names() if "/" in name]
        noted = {
            name.partition("/")[2].removesuffix(".json") for name in names if name.startswith(f"{NOTES}/")
        }
        there = {name.partition("/")[0] for name in names} - {NOTES}
        return [self._check(chain) for chain in sorted(noted | there)]

    def _check(self, chain: str) -> Checked:
        head, after = Head(), {0: ""}
        files = ((name, self._place.read(name) or b"") for name in self._files(chain))
        for found in read_chain(files):
            if isinstance(found, Problem):
                return Checked(chain, head, found, after)
            where, entry, head = found
            after[head.count] = head.hash
            if (problem := _check_place(where, entry)) is not None:
                return Checked(chain, head, problem, after)
        try:
            stored, note = self._stored_head(chain), self._note(chain)
        except ArchiveError as error:
            return Checked(chain, head, Problem(chain, str(error)), after)
        problem = check_head(head, stored, after) or check_note(note, chain, after) or self._strangers(chain)
        return Checked(chain, head, problem, after)

    def _strangers(self, chain: str) -> Problem | None:
        """A file among those of a chain that is none of them: one that was renamed, perhaps."""
        own = {*self._files(chain), f"{chain}/head.json"}
        found = [name for name in self._place.names() if name.startswith(f"{chain}/") and name not in own]
        shown = [name for name in found if not name.rpartition("/")[2].startswith(".")]
        return Problem(shown[0], "this file does not belong here: was it renamed?") if shown else None

    def _note(self, chain: str) -> Note | None:
        content = self._place.read(f"{NOTES}/{chain}.json")
        if content is None:
            return None
        try:
            return Note.model_validate_json(content)
        except ValidationError as error:
            raise ArchiveError("the note of this chain cannot be read") from error

    def _see_to_note(self, head: Head) -> None:
        """The note is there, or is written: with the first record, or the one after a writer that died."""
        if self._noted or self._place.read(f"{NOTES}/{self._chain}.json") is not None:
            self._noted = True
            return
        first = head
        for found in read_chain((name, self._place.read(name) or b"") for name in self._files(self._chain)):
            if not isinstance(found, Problem):
                first = found[2]
            break
        note = Note(chain=self._chain, first=first.hash)
        self._place.write(f"{NOTES}/{self._chain}.json", note.model_dump_json().encode() + b"\n")
        self._noted = True

    def _files(self, chain: str = "") -> list[str]:
        return [
            name
            for name in self._place.names()
            if _FILE.fullmatch(name.rpartition("/")[2]) and (not chain or name.startswith(f"{chain}/"))
        ]

    def _holds(self, recovery_id: str) -> bool:
        if not self._place.grows:  # reading every object would take long: their names tell
            return any(name.endswith(f"-{_tag(recovery_id)}.jsonl") for name in self._files())
        for name in self._files():
            start = self._read_to.get(name, 0)
            added = self._place.read(name, start) or b""
            lines = added[: added.rfind(b"\n") + 1]
            self._known |= {found.group(1) for line in lines.splitlines() if (found := _ID.match(line))}
            self._read_to[name] = start + len(lines)
        return json.dumps(recovery_id).encode() in self._known

    def _stored_head(self, chain: str) -> Head | None:
        content = self._place.read(f"{chain}/head.json")
        if content is None:
            return None
        try:
            head = Head.model_validate_json(content)
        except ValidationError as error:
            raise ArchiveError("the head cannot be read") from error
        if content != _head_bytes(head):
            raise ArchiveError("the head was changed")
        return head

    def _add(self, audit: RecoveryAudit, now: datetime) -> None:
        head = self._stored_head(self._chain) or Head()
        last, content, head = self._end(head)
        line, after = write_line(head, now, audit)
        month = f"-{now:%Y-%m}"
        full = month not in last or len(content) + len(line) > self._max_bytes
        if not last or (content and full):
            tag = "" if self._place.grows else f"-{_tag(audit.recovery_id)}"
            last, content = f"{self._chain}/{after.count:08}{month}{tag}.jsonl", b""
        self._place.append(last, line, keep=len(content))
        self._place.write(f"{self._chain}/head.json", _head_bytes(after))
        self._see_to_note(after)

    def _end(self, head: Head) -> tuple[str, bytes, Head]:
        """The last file, the part of it that counts, and the head after that.

        What an earlier writer left when it died is mended: a record that the head does not know yet is taken
        over, half a line is cut off (nobody was told that it was archived).

        Raises:
            ArchiveError: the end of the archive is not what the head says.
        """
        files = self._files(self._chain)
        if not files:
            if head.count:
                raise ArchiveError(f"{head.count} records are missing: see `relight audit check-archive`")
            return "", b"", head
        raw = self._place.read(files[-1]) or b""
        content = raw[: raw.rfind(b"\n") + 1]
        if content != raw:
            self._place.append(files[-1], b"", keep=len(content))
        lines = content.splitlines()
        if not lines:  # the first line of a new file was cut off
            return files[-1], b"", head
        try:
            _, ended = parse_line(lines[-1])
            if ended != head:
                _, ended = read_line(lines[-1], head)
        except ValueError as error:
            raise ArchiveError(
                f"the end of {files[-1]} is not what the head says ({error}): "
                "see `relight audit check-archive`"
            ) from error
        return files[-1], content, ended


def open_archive(url: str, state_dir: Path, max_bytes: int = MAX_BYTES) -> Archive:
    """The archive at a directory or fsspec URL.

    Args:
        url: the directory, absolute, or the URL.
        state_dir: has the lock of this machine's chain in an object store.
        max_bytes: where a new file begins, in a directory.

    Raises:
        ArchiveError: it cannot be opened.
    """
    scheme = urlsplit(url).scheme
    if scheme in ("", "file"):
        path = url.removeprefix("file://") if scheme else url
        return Archive(Directory(Path(path).expanduser().absolute()), max_bytes=max_bytes)
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())
    return Archive(Remote(url, state_dir / "archive.lock"), host)


def _check_place(where: str, entry: Entry) -> Problem | None:
    """Whether the first record of a file is the one that the file is named after."""
    name, _, line = where.rpartition(", line ")
    if line != "1":
        return None
    number, year, month, *tag = name.rpartition("/")[2].removesuffix(".jsonl").split("-")
    # Of an earlier month is one whose first line was torn when its writer died: the next record fills it.
    named = number == f"{entry.number:08}" and f"{year}-{month}" <= f"{entry.archived_at:%Y-%m}"
    if named and (not tag or tag == [_tag(entry.recovery_id)]):
        return None
    return Problem(name, f"it was renamed: its first record is {entry.number}, of {entry.archived_at:%Y-%m}")


def _tag(recovery_id: str) -> str:
    return hashlib.sha256(recovery_id.encode()).hexdigest()[:16]


def _head_bytes(head: Head) -> bytes:
    return head.model_dump_json().encode() + b"\n"
