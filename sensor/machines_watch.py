"""Asks Prometheus about the machines of all watched jobs at once, every so often."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import structlog

from relight.config import PrometheusSettings
from relight.prometheus.faults import CLOCKS, QUERIES, Fault, faults, throttled
from relight.prometheus.machines import Machines
from relight.prometheus.reading import Reading

log = structlog.get_logger("sensor.machines")


class MachinesWatch:
    """The newest reading. So many queries a reading, however many jobs and nodes there are.

    Exporters say that something rose within `fault_window`, not when. It came after the reading before, give
    or take a scrape. What may have come before an attempt began is not held against that attempt: the one
    before may have had it on the same node.

    Args:
        settings: where Prometheus is.
    """

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._machines = Machines.of(settings)
        self._reading = Reading()
        self._read_at: dict[str, datetime] = {}
        """When a complete reading was last made of a node."""
        self._came: dict[tuple[str, str, str], datetime] = {}
        """The earliest time at which each fault can have come, by query, node and GPU."""
        self._held: dict[tuple[str, str], datetime] = {}
        """Since when each GPU was seen to be held down, in all readings."""
        self.problem = ""
        """Why the newest reading is incomplete; empty: it is complete, or there is no Prometheus."""

    @property
    def is_on(self) -> bool:
        """There is a Prometheus to ask."""
        return self._machines is not None

    async def poll(self, nodes: Iterable[str], now: datetime) -> None:
        """Asks about these nodes. Prometheus away or wrong is told once, and nothing is concluded from it."""
        wanted = sorted(set(nodes))
        if self._machines is None or not wanted:
            self._reading = Reading()
            return
        window = self._settings.fault_window
        self._reading = await self._machines.read(QUERIES, wanted, window=window)
        if self._reading.answers.get("held"):
            self._reading.add(await self._machines.read(CLOCKS, wanted, window=window))
        if bool(self._reading.problem) is not bool(self.problem):
            if self._reading.problem:
                log.warning("Prometheus does not tell of the machines", why=self._reading.problem)
            else:
                log.info("Prometheus tells of the machines again")
        self.problem = self._reading.problem
        self._remember(wanted, now)

    def of(self, nodes: Sequence[str], started: datetime | None, now: datetime) -> list[Fault]:
        """What went wrong with the GPUs of these nodes since the attempt started, by the newest reading.

        A GPU that is held down is told of once it was so in all readings of `long_enough`. Where it is not
        known when the attempt started, everything is told.
        """
        new = [f for f in faults(self._reading, nodes) if started is None or self._came[_key(f)] >= started]
        return new + self._held_long(nodes, now)

    def _remember(self, nodes: Sequence[str], now: datetime) -> None:
        oldest = now - self._settings.fault_window
        seen = {
            _key(fault): max(self._read_at.get(fault.node, oldest), oldest)
            for fault in faults(self._reading, nodes)
        }
        if self._reading.problem:  # what is missing in it may be there still
            self._came = {**seen, **self._came}
            return
        self._came = {key: self._came.get(key, came) for key, came in seen.items()}
        self._read_at = dict.fromkeys(nodes, now)

    def _held_long(self, nodes: Sequence[str], now: datetime) -> list[Fault]:
        found = throttled(self._reading, nodes)
        if not self._reading.problem:
            still = {(f.node, f.gpu) for f in found}
            here = set(nodes)
            self._held = {gpu: at for gpu, at in self._held.items() if gpu in still or gpu[0] not in here}
        return [
            f
            for f in found
            if now - self._held.setdefault((f.node, f.gpu), now) >= self._settings.long_enough
        ]


def _key(fault: Fault) -> tuple[str, str, str]:
    return fault.name, fault.node, fault.gpu
