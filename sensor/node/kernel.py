"""From lines of the kernel log to facts, by the one catalogue of signatures."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from relight.contracts import Role, Source
from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.findings import Finding
from relight.diagnosis.reader import LogReader
from sensor.node.facts import Fact
from sensor.node.kernel_log import LONGEST_LINE, Line

OLD = timedelta(minutes=10)
"""A line whose own time is older is history, however it came into the file."""
_CLOCKS_APART = timedelta(days=1)
_FAMILY = "kernel"
# Users name their processes, and some their control groups: only Slurm's own groups, and only the pids at
# places where the kernel prints them, say whose a line is.
_GROUP = r"/(?:slurm[^/,\s]*/uid_\d+|system\.slice/[^/,\s]*slurmstepd\.scope)/job_(\d{1,10})(?=[/,\s]|$)"
_JOB = re.compile(rf"oom-kill:constraint=\S*?,(?:oom|task)_memcg={_GROUP}")
_PID = re.compile(r"NVRM: Xid \([^)]*\): \d+, pid='?(\d{1,9})\b")
_JOB_OF_PROCESS = re.compile(rf"^\d+:[^:]*:{_GROUP}", re.MULTILINE)


def kernel_catalogue(catalogue: Catalogue) -> Catalogue:
    """The families about kernel messages (`kernel...`) alone: a fifth of the memory of the whole."""
    chosen = tuple(s for s in catalogue if s.family.startswith(_FAMILY))
    return Catalogue(chosen, catalogue.xid, catalogue.problems)


class KernelReader:
    """Reads lines of one node's kernel log.

    Args:
        catalogue: the signatures.
        node: the scheduler's name of this node.
        name: what the lines are read from.
        proc: where `/proc` is.
    """

    def __init__(self, catalogue: Catalogue, node: str, name: str, proc: Path = Path("/proc")) -> None:
        self._catalogue = catalogue
        self._node = node
        self._name = name
        self._proc = proc
        self._calendar = _calendar(datetime.now(UTC))
        self._reader = self._new_reader(datetime.now(UTC))

    def read(self, lines: Sequence[Line], now: datetime) -> list[Fact]:
        """What these lines say; every finding is about this node, whatever its text names."""
        if not lines:
            return []
        if _calendar(now) != self._calendar:
            self._calendar = _calendar(now)
            self._reader = self._new_reader(now)
        start = self._reader.consumed
        starts: dict[int, Line] = {}
        for line in lines:
            starts[start] = line
            start += len(line.text) + 1
        # A carriage return would end a line for the reader, and the offsets would not fit.
        data = b"".join(line.text.replace(b"\r", b" ") + b"\n" for line in lines)
        findings = [e for e in self._reader.feed(data) if isinstance(e, Finding)]
        facts = (self._fact(f, starts[f.offset], now) for f in findings if f.offset in starts)
        return [fact for fact in facts if fact is not None]

    def _fact(self, f: Finding, line: Line, now: datetime) -> Fact | None:
        if line.stamped and f.logged_at is not None and _is_old(now - f.logged_at):
            return None
        job_id = self._job_of(f.text)
        role = f.role
        if f.ends_rank and job_id is None and role is Role.ROOT:
            role = Role.CONTEXT  # some process of this node ended: whose, nobody knows
        finding = f.model_copy(update={"node": self._node, "role": role, "rank": None})
        return Fact(finding=finding, at=min(line.at, now), where=line.where, line=line.number, job_id=job_id)

    def _job_of(self, text: str) -> str | None:
        """The job that the line is about, by the name of its control group."""
        if (m := _JOB.search(text)) is not None:
            return m[1]
        if (m := _PID.search(text)) is None:
            return None
        try:
            groups = (self._proc / m[1] / "cgroup").read_text()
        except OSError:
            return None  # it is gone already
        found = _JOB_OF_PROCESS.search(groups)
        return found[1] if found is not None else None

    def _new_reader(self, now: datetime) -> LogReader:
        local = now.astimezone()
        return LogReader(
            self._catalogue,
            self._name,
            source=Source.KERNEL,
            node=self._node,
            zone=local.tzinfo or UTC,
            year=local.year,
            max_line=LONGEST_LINE,
        )


def _calendar(now: datetime) -> tuple[int, timedelta | None]:
    """What the times in a file leave out, as it is now: the year, and the zone's distance from UTC."""
    local = now.astimezone()
    return local.year, local.utcoffset()


def _is_old(age: timedelta) -> bool:
    """A time far ahead is a time without a year, of last year."""
    return age > OLD or age < -_CLOCKS_APART
