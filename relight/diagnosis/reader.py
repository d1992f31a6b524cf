"""Reads one log file, in whatever pieces it comes, and yields findings, step lines and phase lines.

Memory is constant: an unfinished line is kept up to `max_line` bytes, the rest of it is dropped. How the
bytes are cut into pieces never changes what is found. A carriage return ends a line too (progress bars),
but only newlines are counted as lines.
"""

import re
from collections.abc import Sequence
from datetime import UTC, tzinfo

from hostlist import BadHostlist, expand_hostlist

from relight.contracts import Cause, Role, Source, Symptom
from relight.diagnosis import phases, steplines
from relight.diagnosis.catalogue import Catalogue, Kind, Names, Signature
from relight.diagnosis.findings import Event, Finding, PhaseLine, StepLine
from relight.diagnosis.matcher import COLOUR, NOTE, PHASE, STEP, STEP_WORD, TRACE, Match, matcher_for
from relight.diagnosis.names import spoken
from relight.diagnosis.prefix import Speaker, speaker, strip_ansi
from relight.diagnosis.stamps import Stamps
from relight.diagnosis.tracebacks import BEGIN, Failure, Tracebacks, key
from relight.diagnosis.xid import XidClass

BLOCK = 1 << 20
"""Bytes scanned at once; larger pieces are cut, so that memory stays bounded."""
MAX_NODES = 65536
MAX_ATTEMPTS = 1000
_ONLY_STEP = {STEP, STEP_WORD}
_STEP_WORD = re.compile(steplines.STEP_WORD.encode())

_NODELIST = re.compile(r"SLURM_(?:JOB_|STEP_)?NODELIST=(?P<list>\S{1,4000})")
_PER_NODE = re.compile(
    r"\b(?:GPUS_PER_NODE|SLURM_GPUS_PER_NODE|SLURM_GPUS_ON_NODE|SLURM_NTASKS_PER_NODE|SLURM_TASKS_PER_NODE"
    r"|NPROC_PER_NODE)=(?P<n>\d{1,4})"
)
_BOOTSTRAP = re.compile(r"NCCL INFO Bootstrap : Using \S{1,40}?:(?P<address>\[?[0-9a-fA-F.:]+\]?)<")
_COMM_RANK = re.compile(r"ncclCommInitRank comm \S+ rank (?P<rank>\d+) nranks (?P<of>\d+)")
_RESTART = re.compile(
    r"^Restart (?P<n>\d{1,4}) of job \S+(?: on (?P<list>\S{1,4000}))?|SLURM_RESTART_COUNT=(?P<m>\d{1,4})"
)

_PYTHON = Signature(
    id="python.exception",
    pattern="an exception that no other signature knows",
    role=Kind.ROOT,
    cause=Cause.USER_CODE,
    symptom=Symptom.CRASH,
    ends_rank=True,
    weight=-20,
    says="A Python exception ended the process.",
    where="built in",
)


class LogReader:
    """Reads one file."""

    def __init__(
        self,
        catalogue: Catalogue,
        file: str,
        *,
        nodes: Sequence[str] = (),
        tasks_per_node: int | None = None,
        offset: int = 0,
        line: int = 0,
        max_line: int = 65536,
        source: Source = Source.JOB_LOG,
        node: str | None = None,
        zone: tzinfo = UTC,
        year: int | None = None,
        steps: tuple[steplines.StepFormat, ...] | None = None,
    ) -> None:
        """Starts at a byte offset that begins a line.

        Args:
            catalogue: the signatures.
            file: the name that events carry.
            nodes: the job's nodes, in rank order.
            tasks_per_node: ranks on each node; without it a rank's node is known only if the log says it.
            offset: bytes before what will be fed.
            line: newlines before what will be fed.
            max_line: bytes of one line that are looked at.
            source: who writes this file.
            node: the node that this file is about, where it is about one (a kernel log).
            zone: of times without a zone.
            year: of times without a year.
            steps: step formats in place of the built-in ones (a job may teach its own).
        """
        self.consumed = offset
        """Byte offset up to which whole lines were taken: what a restart must resume from."""
        self.line = line
        """Newlines up to `consumed`."""
        self._catalogue = catalogue
        self._matcher = matcher_for(catalogue, steps)
        self._file = file
        self._nodes = tuple(nodes)
        self._hosts = spoken(self._nodes)
        """The nodes that were ever told of, by each name they go by."""
        self._per_node = tasks_per_node
        self._max_line = max_line
        self._source = source
        self._node = node
        self._stamps = Stamps(zone, year)
        self._tracebacks = Tracebacks()
        self._rest = bytearray()
        self._dropped = 0
        self._attempt = 0
        self._ranks: dict[int, str] = {}
        self._step: StepLine | None = None
        self._step_token = b""
        """What the last step looks like in the line of another rank."""
        self._step_tail = b""
        """The part of it after the word `step`."""
        self._uncounted = 0
        self.attempt_nodes: dict[int, tuple[str, ...]] = {0: self._nodes} if self._nodes else {}
        """The nodes of each attempt that the log itself announces."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The job's nodes, as given or as the log says."""
        return self._nodes

    @property
    def tasks_per_node(self) -> int | None:
        """Ranks on each node, as given or as the log says."""
        return self._per_node

    def feed(self, data: bytes) -> list[Event]:
        """Takes more bytes; returns what the lines that are now complete say."""
        events: list[Event] = []
        for at in range(0, len(data), BLOCK):
            self._feed(data[at : at + BLOCK], events)
        return events

    def flush(self) -> list[Event]:
        """The file has ended: its last line counts without a newline too."""
        events: list[Event] = []
        if self._rest or self._dropped:
            length = len(self._rest) + self._dropped
            self._scan(bytes(self._rest), events)
            self.consumed += length
            self._rest.clear()
            self._dropped = 0
        return events

    def _feed(self, data: bytes, events: list[Event]) -> None:
        lines = data.replace(b"\r", b"\n")
        end = lines.rfind(b"\n") + 1
        if end == 0:
            self._keep(lines)
            return
        first = lines.find(b"\n") + 1
        if self._rest or self._dropped:
            self._keep(lines[: first - 1])
            whole = bytes(self._rest)
            taken = len(self._rest) + self._dropped + 1
            self._rest.clear()
            self._dropped = 0
            self._scan(whole, events)
            self.consumed += taken
            self.line += data[first - 1] == 0x0A
        else:
            first = 0
        if end > first:
            self._scan(lines[first:end], events, data[first:end])
            self.consumed += end - first
            self.line += data.count(b"\n", first, end)
        self._keep(lines[end:])

    def _keep(self, data: bytes) -> None:
        room = max(0, self._max_line - len(self._rest))
        self._rest += data[:room]
        self._dropped += max(0, len(data) - room)

    def _scan(self, lines: bytes, events: list[Event], original: bytes | None = None) -> None:
        """Looks at whole lines. `original` has the carriage returns that `lines` has as newlines."""
        hits = self._matcher.scan(lines)
        source = original if original is not None else lines
        dull = self._matcher.dull
        counted_to, number = 0, self.line
        at, end, n, last, passed = 0, len(lines), 0, len(hits), -1
        while at < end:
            open_ = self._tracebacks.any_open
            if open_:
                start = look = at
            else:
                # With thousands of ranks most lines repeat the step that another rank has just printed.
                tail = self._step_tail
                while n < last and tail and hits[n][1] == STEP_WORD and lines.startswith(tail, hits[n][0]):
                    passed = hits[n][0]
                    n += 1
                if n == last:
                    return
                look = hits[n][0] - 1
                start = lines.rfind(b"\n", at, look) + 1 or at
            stop = lines.find(b"\n", look)
            if stop < 0:
                stop = end
            numbers: set[int] = {STEP_WORD} if passed > start else set()
            while n < last and hits[n][0] <= stop + 1:
                if hits[n][0] > start:
                    numbers.add(hits[n][1])
                n += 1
            repeats = (
                numbers <= _ONLY_STEP
                and self._step_token != b""
                and lines.find(self._step_token, start, min(stop, start + self._max_line)) >= 0
            )
            if open_ or (numbers and not repeats and not numbers <= dull):
                number += source.count(b"\n", counted_to, start)
                counted_to = start
                raw = lines[start : min(stop, start + self._max_line)]
                self._line(raw, numbers, number, self.consumed + start, events)
            at = stop + 1

    def _line(self, raw: bytes, numbers: set[int], number: int, offset: int, events: list[Event]) -> None:
        whole = raw.decode("utf-8", "replace")
        if COLOUR in numbers:
            whole = strip_ansi(whole)
            numbers = {m for _, m in self._matcher.scan(whole.encode())}
        says = speaker(whole, self._hosts)
        if says.attempt is not None:
            self._begin_attempt(says.attempt, says.hosts)
        if NOTE in numbers:
            self._note(says, whole, number, offset, events)
        self._tracebacks.tick()
        failure = self._tracebacks.line(says.label, says.text, number, offset, whole)
        if TRACE in numbers and BEGIN in says.text:
            self._tracebacks.begin(says.label)
        match = self._matcher.match(says.text, {m for m in numbers if m >= 0}, says.longer)
        if match is not None and match.whole:
            says = says.said_all()
        if failure is not None and (match is None or match.signature.role is Kind.CONTEXT):
            match = match or Match(_PYTHON, {})
        if match is not None:
            self._found(match, failure, says, number, offset, whole, events)
            return
        if numbers & _ONLY_STEP and self._found_step(says, number, offset, whole, events):
            self._step_tail = _tail(raw, self._step_token)
            return
        if PHASE in numbers and (phase := phases.parse(says.text)) is not None:
            form, m = phase
            groups = m.groupdict()
            step = groups.get("step")
            events.append(
                PhaseLine(
                    phase=form.phase,
                    begins=form.begins,
                    file=self._file,
                    line=number,
                    offset=offset,
                    step=int(step) if step and len(step) <= 15 else None,
                    path=groups.get("path") or "",
                )
            )

    def _found(
        self,
        match: Match,
        failure: Failure | None,
        says: Speaker,
        number: int,
        offset: int,
        whole: str,
        events: list[Event],
    ) -> None:
        s, groups = match.signature, match.groups
        rank = int(groups["rank"]) if groups.get("rank", "").isdigit() else says.rank
        named = next((v for k, v in groups.items() if k.startswith("node")), None)
        node = named or says.node or self._node or self._node_of(rank)
        role, cause, hold_out, retryable, meaning = _plain(s)
        needs = ""
        if s.table and groups.get("code", "").isdigit():
            entry = self._catalogue.xid.entry(int(groups["code"]), s.table)
            cause, meaning = entry.cause, f"{s.table.upper()} {groups['code']}: {entry.says or entry.name}"
            hold_out = entry.does is XidClass.HOLD_OUT
            role = _XID_ROLES[entry.does]
            needs = entry.needs.value
        if failure is not None:
            replay = failure.key
        else:
            replay = (
                groups.get("key") or groups.get("code") or key(says.text[:200], "")
                if role is Role.ROOT
                else ""
            )
        events.append(
            Finding(
                signature=f"{s.id}-{groups['code']}" if s.table and "code" in groups else s.id,
                role=role,
                symptom=s.symptom,
                cause=cause,
                retryable=retryable,
                file=self._file,
                line=number,
                offset=offset,
                text=whole,
                logged_at=self._stamps.read(whole),
                node=node,
                rank=rank,
                gpu=groups.get("gpu") or says.gpu,
                ends_rank=s.ends_rank or failure is not None,
                key=f"{s.id}|{replay}" if replay else s.id,
                source=self._source,
                hold_out=hold_out,
                needs=needs,
                weight=s.weight,
                tag=s.tag,
                peer=groups.get("peer") if s.names is Names.FAR else None,
                says=meaning,
                groups=groups,
                attempt=self._attempt,
            )
        )

    def _found_step(self, says: Speaker, number: int, offset: int, whole: str, events: list[Event]) -> bool:
        step = steplines.parse(says.text, self._matcher.steps)
        if step is None:
            return self._more_of_step(says.text, number, offset, events)
        if step.step == steplines.UNCOUNTED:
            if self._step is not None and self._step.format != step.format:
                return self._numbers_of_step(step, number, offset, events)
            self._uncounted += 1
        line = StepLine(
            step=step.step if step.step != steplines.UNCOUNTED else self._uncounted,
            file=self._file,
            line=number,
            offset=offset,
            rank=says.rank,
            total=step.total,
            loss=step.loss,
            grad_norm=step.grad_norm,
            loss_scale=step.loss_scale,
            step_seconds=step.step_seconds,
            data_seconds=step.data_seconds,
            throughput=step.throughput,
            skipped=step.skipped,
            no_loss=step.no_loss,
            format=step.format,
            attempt=self._attempt,
            logged_at=self._stamps.read(whole),
        )
        self._step = line
        self._step_token = step.token.encode() if step.step != steplines.UNCOUNTED else b""
        events.append(line)
        return True

    def _more_of_step(self, text: str, number: int, offset: int, events: list[Event]) -> bool:
        """A line that goes on about the last step (several frameworks print records of many lines)."""
        found = steplines.detail(text)
        if not found or self._step is None:
            return False
        self._step = self._step.model_copy(update={**found, "line": number, "offset": offset})
        events.append(self._step)
        return True

    def _numbers_of_step(self, step: steplines.Step, number: int, offset: int, events: list[Event]) -> bool:
        """A line without a count beside lines with one: it says more about the step that was counted last."""
        if self._step is None:
            return False
        found = {"loss": step.loss, "grad_norm": step.grad_norm, "no_loss": step.no_loss}
        events.append(self._step.model_copy(update={**found, "line": number, "offset": offset}))
        return True

    def _note(self, says: Speaker, whole: str, number: int, offset: int, events: list[Event]) -> None:
        """Learns who is who, and where a new attempt begins."""
        if (m := _RESTART.search(says.text)) is not None:
            self._begin_attempt(int(m["n"] or m["m"]), m["list"] or "")
        if (m := _NODELIST.search(whole)) is not None:
            self._nodes = _expand(m["list"]) or self._nodes
            self._remember_nodes()
            if (p := _PER_NODE.search(whole)) is not None:
                self._per_node = int(p["n"])
        if says.node is None:
            return
        alias = rank = None
        if (m := _BOOTSTRAP.search(whole)) is not None:
            alias = m["address"]
        elif (m := _COMM_RANK.search(whole)) is not None and len(m["rank"]) < 8:
            rank = int(m["rank"])
            if len(self._ranks) < MAX_NODES:
                self._ranks[rank] = says.node
        else:
            return
        events.append(
            Finding(
                signature="names.alias" if alias else "names.rank",
                role=Role.CONTEXT,
                symptom=Symptom.NONE,
                cause=Cause.HEALTHY,
                file=self._file,
                line=number,
                offset=offset,
                text=whole,
                node=says.node,
                rank=rank,
                key=f"{says.node}={alias or rank}",
                source=self._source,
                tag="names",
                groups={"alias": alias} if alias else {},
                attempt=self._attempt,
            )
        )

    def _begin_attempt(self, number: int, hosts: str) -> None:
        if hosts:
            self._nodes = _expand(hosts) or self._nodes
            self._ranks.clear()
        self._attempt = number
        self._remember_nodes()

    def _remember_nodes(self) -> None:
        if len(self._hosts) < MAX_NODES:
            self._hosts |= spoken(self._nodes)
        if self._nodes and len(self.attempt_nodes) < MAX_ATTEMPTS:
            self.attempt_nodes[self._attempt] = self._nodes

    def _node_of(self, rank: int | None) -> str | None:
        if rank is None:
            return None
        if rank in self._ranks:
            return self._ranks[rank]
        if len(self._nodes) == 1:
            return self._nodes[0]
        if not self._per_node or rank // self._per_node >= len(self._nodes):
            return None
        return self._nodes[rank // self._per_node]


_ROLES = {
    Kind.ROOT: Role.ROOT,
    Kind.CASCADE: Role.CASCADE,
    Kind.CONTEXT: Role.CONTEXT,
    Kind.BENIGN: Role.CONTEXT,
}
_XID_ROLES = {
    XidClass.IGNORE: Role.CONTEXT,
    XidClass.FOLLOWS: Role.CASCADE,
    XidClass.RESTART: Role.ROOT,
    XidClass.HOLD_OUT: Role.ROOT,
    XidClass.ESCALATE: Role.CONTEXT,
}


def _plain(s: Signature) -> tuple[Role, Cause, bool, bool, str]:
    return _ROLES[s.role], s.cause, s.hold_out, s.retryable, s.says


def _tail(raw: bytes, token: bytes) -> bytes:
    """What follows the last `step` in the token as it stands in the line; empty if there is none."""
    start = raw.find(token) if token else -1
    if start < 0:
        return b""
    end = start + len(token)
    words = [m.end() for m in _STEP_WORD.finditer(raw, start, end)]
    return raw[words[-1] : end] if words and words[-1] < end else b""


def _expand(text: str) -> tuple[str, ...]:
    """The names in a Slurm node list, unless somebody wrote nonsense there."""
    try:
        names = expand_hostlist(text.strip("\"',;"), allow_duplicates=False)
    except (BadHostlist, ValueError):
        return ()
    return tuple(names) if len(names) <= MAX_NODES else ()
