"""Who is who: addresses and ranks to node names, as far as the logs themselves say."""

import re
from collections.abc import Iterable, Mapping, Sequence

from hostlist import BadHostlist, collect_hostlist, expand_hostlist

from relight.diagnosis.findings import Finding, Sighting

MAX_EXPAND = 1024
_ALIAS = re.compile(r"\b(?:\d{1,3}(?:\.\d{1,3}){3}|i-[0-9a-f]{8,20})\b")
_OWN_ID = re.compile(r"My host id: (?P<id>[\w.-]+)")


def spoken(nodes: Iterable[str]) -> dict[str, str]:
    """The nodes by each name they go by: their own, and the part before the first dot if one node has it."""
    known: dict[str, str] = {}
    shared: set[str] = set()
    nodes = tuple(dict.fromkeys(nodes))
    for node in nodes:
        short = node.split(".")[0]
        if known.setdefault(short, node) != node:
            shared.add(short)
    for short in shared:
        del known[short]
    return known | {node: node for node in nodes}


def member(name: str, known: Mapping[str, str]) -> str | None:
    """The node that goes by this name, with or without a domain, if any. `known` is of `spoken`."""
    if name in known:
        return known[name]
    short, dot, _ = name.partition(".")
    # A domain of its own says that it is another host, if the node's name has one too.
    return short if dot and known.get(short) == short else None


class Names:
    """Resolves what messages call a node."""

    def __init__(
        self, sightings: Iterable[Sighting], nodes: Sequence[str] = (), tasks_per_node: int | None = None
    ) -> None:
        """Learns from lines that say who is who, in any order, and from the placement of the ranks."""
        self._nodes = tuple(nodes)
        self._per_node = tasks_per_node
        self._alias: dict[str, str] = {}
        self._rank: dict[int, str] = {}
        self._known = spoken(nodes)
        for s in sightings:
            self._learn(s.finding)

    def node(self, name: str | None) -> str | None:
        """The node that an address, cloud id or host name means; None if nothing says so.

        Where the job's nodes are known, only they are meant: who is not among them is not to blame for it.
        """
        if not name:
            return None
        if "[" in name[1:]:
            return self._list(name)
        name = name.strip("[]")
        if name in self._alias:
            return self._alias[name]
        if (known := member(name, self._known)) is not None:
            return known
        if self._known or _ALIAS.fullmatch(name) or ":" in name:
            return None
        return name

    def _list(self, name: str) -> str | None:
        """A notation of several nodes, without those that are not the job's."""
        if not self._known:
            return name
        ours = [m for n in expand(name) if (m := member(n, self._known)) is not None]
        return collect_hostlist(ours) if ours else None

    def of_rank(self, rank: int | None) -> str | None:
        """The node of a rank, where a log or the placement says it."""
        if rank is None:
            return None
        if rank in self._rank:
            return self._rank[rank]
        if not self._per_node or not 0 <= rank // self._per_node < len(self._nodes):
            return None
        return self._nodes[rank // self._per_node]

    def resolve(self, s: Sighting) -> Sighting:
        """The same sighting with node and peer as node names where that is possible."""
        f = s.finding
        node = self.node(f.node) or self.of_rank(f.rank)
        peer = self.node(f.peer) or f.peer
        if node == f.node and peer == f.peer:
            return s
        return s.model_copy(update={"finding": f.model_copy(update={"node": node, "peer": peer})})

    def _learn(self, f: Finding) -> None:
        node = member(f.node, self._known) if self._known and f.node else f.node
        if node is None:
            return
        if f.tag == "names":
            if alias := f.groups.get("alias"):
                self._alias.setdefault(alias.strip("[]"), node)
            if f.rank is not None:
                self._rank.setdefault(f.rank, node)
        elif f.tag == "node-down":
            for alias in _ALIAS.findall(f.text)[:8]:
                self._alias.setdefault(alias, node)
        elif (m := _OWN_ID.search(f.text)) is not None:
            self._alias.setdefault(m["id"], node)


def expand(name: str) -> tuple[str, ...]:
    """The nodes in `node[004-005]` or `node004,node005`; a plain name is itself."""
    if "[" not in name and "," not in name:
        return (name,)
    try:
        nodes = tuple(expand_hostlist(name))
    except (BadHostlist, ValueError):
        return (name,)
    return nodes if len(nodes) <= MAX_EXPAND else (name,)
