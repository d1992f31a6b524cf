"""Asks the scheduler about all watched jobs at once, and about the nodes they are on."""

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import structlog

from relight.scheduler.port import Scheduler, SchedulerError
from sensor.view import NOTHING, View

log = structlog.get_logger("sensor.scheduler")

SAY_AGAIN_EVERY = 60.0
"""Seconds between two log lines about a scheduler that stays away."""


class SchedulerWatch:
    """Keeps the newest answer. A failed question makes everything unknown until the next answer.

    Args:
        scheduler: who is asked.
        clock: the time, UTC.
    """

    def __init__(
        self, scheduler: Scheduler, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._said_at = 0.0
        self.view: View = NOTHING

    async def poll(self, job_ids: Iterable[str], nodes_of: Callable[[], Iterable[str]]) -> View:
        """Asks once: one request for the jobs, one for the nodes.

        Args:
            job_ids: the watched jobs.
            nodes_of: the nodes that matter besides the jobs' present ones.
        """
        ids = tuple(dict.fromkeys(job_ids))
        asked_at = self._clock()
        try:
            jobs = await self._scheduler.jobs(ids) if ids else {}
        except SchedulerError as e:
            self._failed(e)
            self.view = View(asked_at=asked_at, reachable=False)
            return self.view
        present = (name for job in jobs.values() if not job.state.is_over for name in job.nodes)
        names = tuple(dict.fromkeys([*present, *nodes_of()]))
        try:
            nodes = await self._scheduler.nodes(names) if names else {}
        except SchedulerError as e:
            self._failed(e)
            self.view = View(asked_at=asked_at, jobs=jobs)
            return self.view
        if self._said_at:
            log.info("the scheduler answers again")
            self._said_at = 0.0
        self.view = View(asked_at=asked_at, jobs=jobs, nodes=nodes)
        return self.view

    def _failed(self, error: SchedulerError) -> None:
        now = time.monotonic()
        if now - self._said_at >= SAY_AGAIN_EVERY or not self._said_at:
            log.warning("the scheduler does not answer: nothing is concluded meanwhile", error=str(error))
            self._said_at = now
