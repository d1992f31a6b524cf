"""Reads single jobs for many askers at once: those that ask within a moment share one request.

A monitor looks at its own job every few minutes. With thousands of monitors that would be a request a moment,
each a process and an RPC of slurmctld; together they are at most one request a second, however many there
are.
"""

import asyncio
from collections.abc import Mapping

from relight.contracts import JobInfo
from relight.scheduler.port import Scheduler

MOMENT = 1.0
"""Seconds from one shared request to the next. Who asks first after a quiet time does not wait."""


class Together:
    """Shared reads. All askers must be in one event loop.

    Args:
        scheduler: who is asked.
        moment: seconds from one shared request to the next.
    """

    def __init__(self, scheduler: Scheduler, moment: float = MOMENT) -> None:
        self._scheduler = scheduler
        self._moment = moment
        self._ids: list[str] = []
        """Of the request that is about to be made."""
        self._answer: asyncio.Task[Mapping[str, JobInfo]] | None = None
        """Its answer; None: nobody has asked since the last one."""
        self._asked_at = -1e9

    async def job(self, job_id: str) -> JobInfo:
        """Reads a job, as the port's `job` does, up to `moment` later.

        Raises:
            NoSuchJob: the scheduler says that it knows no such job. Missing from a shared answer is not
            enough. SchedulerError: as the port's `jobs` and `job`.
        """
        answer = self._answer
        if answer is None:
            answer = self._answer = asyncio.create_task(self._ask())
            answer.add_done_callback(_mark_seen)
        self._ids.append(job_id)
        # Shielded: one asker that gives up must not take the answer from the others.
        found = await asyncio.shield(answer)
        return found[job_id] if job_id in found else await self._scheduler.job(job_id)

    async def _ask(self) -> Mapping[str, JobInfo]:
        loop = asyncio.get_running_loop()
        if (wait := self._asked_at + self._moment - loop.time()) > 0:
            await asyncio.sleep(wait)
        ids, self._ids, self._answer, self._asked_at = self._ids, [], None, loop.time()
        return await self._scheduler.jobs(tuple(dict.fromkeys(ids)))


def _mark_seen(task: asyncio.Task[Mapping[str, JobInfo]]) -> None:
    """An error is raised to whoever still waits; when nobody does, nobody needs it."""
    if not task.cancelled():
        task.exception()
