"""Asks Prometheus about the machines of all watched jobs at once, every so often."""

from collections.abc import Iterable

import structlog

from relight.config import PrometheusSettings
from relight.prometheus.faults import QUERIES, Fault, faults, throttled
from relight.prometheus.machines import Machines
from relight.prometheus.reading import Reading

log = structlog.get_logger("sensor.machines")


class MachinesWatch:
    """The newest reading. So many queries a reading, however many jobs and nodes there are.

    Args:
        settings: where Prometheus is.
    """

    def __init__(self, settings: PrometheusSettings) -> None:
        self._settings = settings
        self._machines = Machines.of(settings)
        self._reading = Reading()
        self.problem = ""
        """Why the newest reading is incomplete; empty: it is complete, or there is no Prometheus."""

    @property
    def is_on(self) -> bool:
        """There is a Prometheus to ask."""
        return self._machines is not None

    async def poll(self, nodes: Iterable[str]) -> None:
        """Asks about these nodes. Prometheus away or wrong is told once, and nothing is concluded from it."""
        wanted = sorted(set(nodes))
        if self._machines is None or not wanted:
            self._reading = Reading()
            return
        self._reading = await self._machines.read(QUERIES, wanted, window=self._settings.fault_window)
        if bool(self._reading.problem) is not bool(self.problem):
            if self._reading.problem:
                log.warning("Prometheus does not tell of the machines", why=self._reading.problem)
            else:
                log.info("Prometheus tells of the machines again")
        self.problem = self._reading.problem

    def of(self, nodes: tuple[str, ...]) -> list[Fault]:
        """What is wrong with the GPUs of these nodes, by the newest reading."""
        return [*faults(self._reading, nodes), *throttled(self._reading, nodes)]
