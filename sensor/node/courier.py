"""Tells the monitors of the jobs on this node what waits in the spool."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from relight.contracts import JobInfo, TrainingJob
from relight.contracts.ids import guard_id
from relight.scheduler.port import Scheduler, SchedulerError
from relight.temporal import TemporalUnavailable
from sensor.messages import anomaly_message, node_message
from sensor.node.facts import Fact, Spool
from sensor.node.report import anomaly, concerned, node_reports
from sensor.outbox import Outbox
from sensor.registry import watched_jobs
from sensor.store import Store
from sensor.waiting import wait_at_most

log = structlog.get_logger("sensor.node.courier")

LOOK_EVERY = 0.2
"""Seconds between two looks into the spool."""
ASK_EVERY = 1.0
"""Seconds between two questions to the scheduler, however many facts come."""
IDLE = 5.0
"""Seconds with nothing to tell after which the process ends."""
FIRST_BACKOFF = 1.0
LONGEST_BACKOFF = 30.0
MOST_AGE = timedelta(hours=1)
"""A fact that could not be told for so long is history."""


class Courier:
    """Takes facts from the spool, asks whom they concern, and signals those monitors.

    A fact leaves the spool only when its signals are in the outbox, which is on disk too.

    Args:
        node: the scheduler's name of this node.
        cluster: the cluster's name; empty: the scheduler's own name for it.
        spool: where facts wait.
        store: the outbox, and which monitors were told what.
        scheduler: whom to ask for the jobs on this node.
        connect: gives a client; raises `TemporalUnavailable`.
        guard: there is a guard of the cluster, to be told of faulty nodes.
    """

    def __init__(
        self,
        node: str,
        cluster: str,
        spool: Spool,
        store: Store,
        scheduler: Scheduler,
        connect: Callable[[], Awaitable[Client]],
        *,
        guard: bool = True,
    ) -> None:
        self._guard = guard
        self._node = node
        self._cluster = cluster
        self._spool = spool
        self._store = store
        self._scheduler = scheduler
        self._connect = connect
        self._client: Client | None = None
        self._outbox = Outbox(store, self._temporal, self._undelivered)
        self._backoff = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Tells until nothing has been there to tell for a while, or until `stop` is set."""
        loop = asyncio.get_running_loop()
        busy_at, asked_at = loop.time(), -ASK_EVERY
        while not stop.is_set() and loop.time() - busy_at < IDLE:
            wait = LOOK_EVERY
            if self._spool_has_something() or self._store.depth():
                await wait_at_most(stop, asked_at + ASK_EVERY - loop.time())
                asked_at = busy_at = loop.time()
                wait = await self._try()
            await wait_at_most(stop, wait)

    async def deliver(self) -> None:
        """Takes in all facts that wait now, and sends what is in the outbox.

        Raises:
            SchedulerError, RPCError, TemporalUnavailable: no answer; what was not told stays where it is.
        """
        now = datetime.now(UTC)
        facts = []
        for path, fact in self._spool.waiting():
            if now - fact.at > MOST_AGE:
                log.warning("given up: it could not be told in time", signature=fact.finding.signature)
                self._spool.remove(path)
            else:
                facts.append((path, fact))
        if facts:
            await self._address([fact for _, fact in facts], now)
            for path, _ in facts:
                self._spool.remove(path)
        await self._outbox.send_once()

    async def _address(self, facts: list[Fact], now: datetime) -> None:
        if not self._cluster:
            self._cluster = (await self._scheduler.version()).cluster
        jobs = await self._jobs(facts)
        watched: dict[str, TrainingJob] = {}
        if jobs:
            client = await self._temporal()
            watched = await watched_jobs(client, self._cluster, [info.job_id for info in jobs])
        for fact in facts:
            monitors = concerned(fact, jobs, watched, self._cluster)
            log.warning(
                "telling" if monitors else "no monitor to tell: no watched job was on this node",
                signature=fact.finding.signature,
                text=fact.finding.text,
                monitors=sorted(monitors),
            )
            for monitor, attempt in monitors.items():
                message = anomaly_message(anomaly(fact, attempt, now))
                self._store.save(monitor, watched[monitor], "{}", messages=[message])
            if self._guard and (reports := node_reports(fact, jobs)):
                messages = [node_message(report, fact.id) for report in reports]
                self._store.put(guard_id(self._cluster), messages)

    async def _jobs(self, facts: list[Fact]) -> Sequence[JobInfo]:
        """The jobs that ran on this node: by their ids where these are known, which spares the scheduler."""
        if any(fact.jobs_here is None for fact in facts):
            return await self._scheduler.jobs_on(self._node)
        ids = dict.fromkeys(job_id for f in facts for job_id in (*(f.jobs_here or ()), f.job_id) if job_id)
        found = await self._scheduler.jobs(tuple(ids)) if ids else {}
        return [info for info in found.values() if self._node in info.nodes or not info.nodes]

    async def _try(self) -> float:
        """Delivers. Returns how many seconds to wait after it."""
        try:
            await self.deliver()
        except (SchedulerError, RPCError, TemporalUnavailable) as e:
            if not self._backoff:
                log.warning("cannot tell now; it is tried again", error=str(e))
            self._backoff = min(LONGEST_BACKOFF, max(FIRST_BACKOFF, self._backoff * 2))
            return self._backoff * random.uniform(0.5, 1.5)  # the sensors of many nodes spread out
        self._backoff = 0.0
        return LOOK_EVERY

    def _spool_has_something(self) -> bool:
        return len(self._spool) > 0

    async def _temporal(self) -> Client:
        if self._client is None:
            self._client = await self._connect()
        return self._client

    def _undelivered(self, why: str) -> None:
        log.warning("a monitor, or the guard, could not be told", why=why)
