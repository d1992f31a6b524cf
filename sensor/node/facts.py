"""A fact: what this node's kernel or GPUs said that is worth telling, and where it waits to be told."""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from relight.contracts import Cause, CleanText, Role, Symptom, UtcDatetime
from relight.diagnosis.findings import Finding

MOST_FACTS = 500
"""Facts that wait at most; then the least telling are given up."""


class Fact(BaseModel):
    """A finding about this node, at one moment."""

    model_config = ConfigDict(frozen=True)

    finding: Finding
    at: UtcDatetime
    where: CleanText
    """Where to see it again; part of what makes two facts different."""
    line: int | None = None
    """Number of the line, from 1, where `where` is a file and it is known."""
    count: int = 1
    """How often it was seen since it was told last."""
    job_id: str | None = None
    """The only job that it is about, where that is known."""
    jobs_here: tuple[str, ...] | None = None
    """The jobs that had processes on this node then, by their control groups; None: these do not tell."""

    @property
    def kind(self) -> tuple[str, ...]:
        """Facts of one kind say the same; the first one tells most."""
        f = self.finding
        return (f.source.value, f.signature, f.gpu or "", self.job_id or "")

    @property
    def id(self) -> str:
        """Stable: the same thing seen again at the same place has the same id."""
        text = "\x1f".join((*self.kind, self.finding.node or "", self.where))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def is_worth_telling(self) -> bool:
        """It explains something that may go wrong. What is harmless is only counted."""
        return self.finding.cause is not Cause.HEALTHY and self.finding.symptom is not Symptom.NONE


class Spool:
    """A directory in which facts wait, one small file for each. Bounded; one process writes, one takes out.

    Put it on a filesystem that lives when the disk dies (`/run`): a dying disk is one of the things to tell.
    """

    def __init__(self, directory: Path, most: int = MOST_FACTS) -> None:
        self.directory = directory
        self._most = most
        self._next = 0

    def open(self) -> None:
        """Makes the directory, for its owner only.

        Raises:
            OSError: it cannot be made.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        numbers = [int(path.name[:12]) for path in self._files()]
        self._next = max(numbers, default=-1) + 1

    def put(self, fact: Fact) -> int:
        """Adds a fact, and makes room first where there is none.

        Returns:
            How many facts were given up.

        Raises:
            OSError: it could not be written; nothing has changed.
        """
        dropped = self._make_room()
        rank = "context" if fact.finding.role is Role.CONTEXT else "fault"
        path = self.directory / f"{self._next:012d}-{rank}.json"
        new = path.with_suffix(".new")
        new.write_text(fact.model_dump_json())
        new.rename(path)
        self._next += 1
        return dropped

    def waiting(self) -> list[tuple[Path, Fact]]:
        """The facts that wait, the oldest first. A file that cannot be read as a fact is removed."""
        facts = []
        for path in self._files():
            try:
                facts.append((path, Fact.model_validate_json(path.read_bytes())))
            except FileNotFoundError:
                continue  # given up meanwhile
            except ValidationError:  # of another version of relight
                path.unlink(missing_ok=True)
        return facts

    def remove(self, path: Path) -> None:
        """The fact has been told, or need not be."""
        path.unlink(missing_ok=True)

    def __len__(self) -> int:
        return sum(1 for _ in self._files())

    def _files(self) -> Iterator[Path]:
        with suppress(FileNotFoundError):
            yield from sorted(path for path in self.directory.iterdir() if path.suffix == ".json")

    def _make_room(self) -> int:
        files = list(self._files())
        excess = len(files) + 1 - self._most
        if excess <= 0:
            return 0
        # Context goes first, then the latest: the first fault of each kind tells most.
        lesser = sorted(files, key=lambda p: (not p.stem.endswith("context"), -int(p.name[:12])))
        for path in lesser[:excess]:
            path.unlink(missing_ok=True)
        return excess
