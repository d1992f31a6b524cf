"""Who printed a line: rank, node and GPU from the prefixes that launchers and frameworks put before it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from relight.diagnosis.names import member

MAX_PREFIXES = 6

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_NOT_A_HOST = re.compile(
    r"(?i)^(step|iter|iteration|epoch|ep|gpu|cuda|rank|worker|task|batch|layer|stage|part|fold|phase|shard"
    r"|device|attempt|loss|run|trial|group|http|https|line|seq|pid|tid|v|fp|bf|int|float|sha|md|top)[-_]?\d"
)
_CODE = re.compile(r"[A-Z][A-Z0-9_-]*")
"""Error codes look like this: ACME-4711, E1203."""

# Each alternative is one kind of prefix. Order matters only for readability: the first characters differ.
_PREFIX = re.compile(
    r"\s*(?:"
    r"\[rank\s*[:=]?\s*(?P<rank>\d{1,7})\]:?\s?"  # torch: [rank3]: ; Lightning: [rank: 3]
    r"|\[default(?P<local>\d{1,3})\]:\s?"  # torchrun --tee
    r"|\[\d{1,6},(?P<mpi>\d{1,7})\]<std(?:out|err|diag)>:\s?"  # mpirun --tag-output
    r"|\((?P<actor>[\w.-]{1,80}(?:\([^()]{0,80}\))?),? pid=\d+(?:, ip=(?P<ip>[0-9a-fA-F.:]+))?\)\s?"  # Ray
    r"|\((?:raylet|autoscaler)(?:, ip=(?P<ip2>[0-9a-fA-F.:]+))?\)\s?"
    r"|attempt (?P<attempt>\d{1,4})(?: hosts (?P<hosts>\S+))?: "
    r"|(?P<label>\d{1,6}): "  # srun --label
    r"|(?P<host>[A-Za-z][A-Za-z0-9_.-]{0,62}\d[A-Za-z0-9_.-]{0,30}): (?!\s*$)"  # pdsh, DeepSpeed, journald
    r"|\[(?P<host2>[A-Za-z][A-Za-z0-9_.-]{0,62}\d[A-Za-z0-9.-]{0,30})\] "
    r")"
)
_NCCL = re.compile(r"(?P<host>[A-Za-z][\w.-]{0,62}):\d+:\d+(?: \[(?P<gpu>\d{1,3})\])? (?=\S)")


@dataclass(frozen=True)
class Speaker:
    """Who printed a line, and what they said."""

    text: str
    """The line without its prefixes."""
    label: str = ""
    """The prefix itself: lines of one speaker share it."""
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    gpu: str | None = None
    address: str | None = None
    attempt: int | None = None
    hosts: str = ""
    longer: str = ""
    """The text that begins with the host, where it is not sure that it is one; else empty."""
    host: str | None = None
    """What may be a host: the first word of `longer`."""

    def said_all(self) -> "Speaker":
        """The same line, where what looked like a host belongs to what was said."""
        node = None if self.node == self.host else self.node
        return replace(self, text=self.longer, node=node, longer="", host=None)


def strip_ansi(text: str) -> str:
    """The text without terminal escapes."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def speaker(text: str, nodes: Mapping[str, str] | None = None) -> Speaker:
    """Reads the prefixes of a line, at most six of them.

    Args:
        text: the line.
        nodes: the job's nodes by each name they go by (`names.spoken`). If not empty, nobody else is a host.
            Without it any name with a digit may be one, except what looks like an error code.
    """
    text = strip_ansi(text)
    rank = local = attempt = None
    node = gpu = address = unsure = None
    hosts = longer = ""
    at = 0
    for n in range(MAX_PREFIXES):
        m = _PREFIX.match(text, at)
        if m is None:
            break
        kind = m.lastgroup
        if kind == "label" and n > 0:
            break
        host = m["host"] or m["host2"]
        if host is not None:
            if _NOT_A_HOST.match(host) or node is not None:
                break
            sure = member(host, nodes) if nodes else None
            if sure is None:
                if unsure is not None:
                    break
                unsure, longer = host, text[at:].lstrip()
            node = sure or (None if nodes or _CODE.fullmatch(host) else host)
        if m["rank"] is not None:
            rank = int(m["rank"])
        elif m["mpi"] is not None:
            rank = int(m["mpi"])
        elif m["label"] is not None:
            rank = int(m["label"])
        if m["local"] is not None:
            local = int(m["local"])
        if m["attempt"] is not None:
            attempt, hosts = int(m["attempt"]), m["hosts"] or ""
        address = m["ip"] or m["ip2"] or address
        at = m.end()
    if (m := _NCCL.match(text, at)) is not None and "NCCL " in text[m.end() : m.end() + 60]:
        node, gpu, at = node or m["host"], m["gpu"], m.end()
    label = text[:at].strip()
    return Speaker(text[at:], label, rank, local, node, gpu, address, attempt, hosts, longer, unsure)
