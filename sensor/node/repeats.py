"""Lets the first fact of each kind through at once, and of its repeats only one now and then."""

from collections import OrderedDict
from dataclasses import dataclass

from sensor.node.facts import Fact

FIRST_WAIT = 5.0
"""Seconds after a fact in which facts of the same kind are only counted; doubles while they go on coming."""
LONGEST_WAIT = 180.0
MOST_KINDS = 512
"""Kinds that are remembered; the one that was quiet longest is forgotten first."""


@dataclass
class _Kind:
    told_at: float
    wait: float
    held: int = 0


class Repeats:
    """Remembers what was told of each kind."""

    def __init__(self) -> None:
        self._kinds: OrderedDict[tuple[str, ...], _Kind] = OrderedDict()

    def let_through(self, fact: Fact, now: float) -> Fact | None:
        """The fact, with the number of those held back since the last one; None: it is held back itself.

        Args:
            fact: what was seen.
            now: seconds of a clock that only goes forward.
        """
        kind = self._kinds.pop(fact.kind, None)
        if kind is None:
            kind = _Kind(told_at=now, wait=FIRST_WAIT)
            self._keep(fact, kind)
            return fact
        self._keep(fact, kind)
        since = now - kind.told_at
        if since < kind.wait:
            kind.held += fact.count
            return None
        busy = kind.held > 0 and since < 2 * kind.wait
        kind.wait = min(LONGEST_WAIT, kind.wait * 2) if busy else FIRST_WAIT
        count, kind.held, kind.told_at = fact.count + kind.held, 0, now
        return fact.model_copy(update={"count": count})

    def _keep(self, fact: Fact, kind: _Kind) -> None:
        self._kinds[fact.kind] = kind
        if len(self._kinds) > MOST_KINDS:
            self._kinds.popitem(last=False)
