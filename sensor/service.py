"""The sensor's loops: which jobs are watched, what the scheduler says, what the logs say, and the outbox.

They share one event loop and hold each other up in nothing. Blocking calls on files run in threads, one at a
time for each job, so that a filesystem that hangs blinds only the jobs on it.
"""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from relight.config import Settings
from relight.contracts import TrainingJob
from relight.diagnosis.catalogue import Catalogue
from relight.policies import Policies
from relight.scheduler.port import Scheduler, SchedulerError
from relight.temporal import TemporalUnavailable, connect
from sensor.job import Unsaved, WatchedJob
from sensor.machines_watch import MachinesWatch
from sensor.memory import Memory
from sensor.metrics import Metrics
from sensor.outbox import Outbox
from sensor.reading import Reading
from sensor.registry import OptIn, watched_jobs
from sensor.scheduler_watch import SchedulerWatch
from sensor.store import Store, Watched
from sensor.waiting import wait_at_most
from sensor.wake import listen
from sensor.watch import JobWatch

log = structlog.get_logger("sensor")

READERS = 32
"""Threads that read logs."""
GONE_AFTER = 3
"""Lists of watched jobs that a job must be missing from before it is forgotten: they lag behind."""
OPT_IN_EVERY = 5.0
"""Seconds between two looks for jobs that ask to be watched: each is a request for all jobs."""
PAUSE = 0.1
"""Seconds between two questions to the scheduler, however much a finding hurries."""
STUCK_AFTER = 10.0
"""Seconds that a look at a job's logs may take before the job counts as blind."""

T = TypeVar("T")


class Sensor:
    """One cluster's sensor.

    Args:
        settings: relight's settings.
        scheduler: whom to ask about jobs and nodes.
        store: what must not be forgotten.
        connect_temporal: gives a client, or raises `TemporalUnavailable`.

    Raises:
        ConfigError: the policy file cannot be used, and no earlier one is remembered.
    """

    def __init__(
        self,
        settings: Settings,
        scheduler: Scheduler,
        store: Store,
        connect_temporal: Callable[[], Awaitable[Client]] = connect,
    ) -> None:
        self.metrics = Metrics()
        self._settings = settings
        self._scheduler = scheduler
        self._scheduler_watch = SchedulerWatch(scheduler)
        self._machines = MachinesWatch(settings.prometheus)
        self._store = store
        self._connect = connect_temporal
        self._client: Client | None = None
        self._temporal_away = False
        self._cluster = settings.cluster
        self._catalogue = Catalogue.load(settings.signatures)
        for problem in self._catalogue.problems:
            log.warning("left out of the catalogue", problem=str(problem))
        self._policies = Policies(settings, remember=True)
        self._tell_policies()
        self._jobs: dict[str, WatchedJob] = {}
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="logs")
        self._db = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._outbox = Outbox(store, self._temporal, self._undelivered, self._in_db)
        self._ticks: set[asyncio.Task[None]] = set()
        self._look_now = asyncio.Event()
        self._ask_now = asyncio.Event()
        self._opt_in: OptIn | None = None
        self._opt_in_at = -1e9

    async def run(self, stop: asyncio.Event) -> None:
        """Watches until `stop` is set. No trouble of one job, the scheduler or Temporal ends it.

        Raises:
            ConfigError: the address to be woken at cannot be used.
        """
        for monitor, watched in (await self._in_db(self._store.load)).items():
            self._contain("load", self._take_up, monitor, watched)
        poll = self._settings.sensor
        waker = await self._listen() if poll.wake_address else None
        loops = [
            asyncio.create_task(self._repeat(*loop))
            for loop in (
                ("registry", self._registry, poll.registry_poll.total_seconds(), asyncio.Event()),
                ("scheduler", self._ask, poll.scheduler_poll.total_seconds(), self._ask_now),
                ("logs", self._look, poll.log_poll.total_seconds(), self._look_now),
                ("outbox", self._outbox.run, 1.0, asyncio.Event()),
                (
                    "machines",
                    self._ask_machines,
                    self._settings.prometheus.poll.total_seconds(),
                    asyncio.Event(),
                ),
            )
        ]
        try:
            await stop.wait()
        finally:
            if waker is not None:
                waker.close()
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
            if self._ticks:
                await asyncio.wait(self._ticks, timeout=5)
            await self._last_sending()
            self._readers.shutdown(wait=False, cancel_futures=True)
            self._db.shutdown(wait=True)

    async def _repeat(
        self, part: str, run: Callable[[], Awaitable[None]], every: float, hurry: asyncio.Event
    ) -> None:
        """Runs a part again and again: after a while, at once when it is hurried, and whatever went wrong."""
        while True:
            hurry.clear()
            try:
                await run()
            except Exception as e:
                self._error(part, e)
            await wait_at_most(hurry, every)

    async def _last_sending(self) -> None:
        """Sends what is queued, if that works at once; else it is sent after the next start."""
        with suppress(RPCError, TemporalUnavailable, TimeoutError):
            async with asyncio.timeout(2):
                await self._outbox.send_once()

    # Which jobs

    async def _registry(self) -> None:
        self.metrics.outbox.set(await self._in_db(self._store.depth))
        if not self._cluster:
            try:
                self._cluster = (await self._scheduler.version()).cluster
            except SchedulerError as e:
                log.warning(
                    "the cluster's name is not known yet: the scheduler does not answer", error=str(e)
                )
                return
        try:
            client = await self._temporal()
            watched = await watched_jobs(client, self._cluster)
        except (RPCError, TemporalUnavailable) as e:
            if not self._temporal_away:
                log.warning("Temporal does not say which jobs are watched", error=str(e))
            self._temporal_away = True
            self.metrics.temporal_up.set(0)
            return
        self._temporal_away = False
        self.metrics.temporal_up.set(1)
        if time.monotonic() - self._opt_in_at >= OPT_IN_EVERY:
            self._opt_in_at = time.monotonic()
            if await asyncio.to_thread(self._policies.reload):
                self._tell_policies()
            watched |= await self._start_opted_in(client, watched)
        for monitor, job in watched.items():
            self._contain("registry", self._hear_watched, monitor, job)
        for monitor, known in list(self._jobs.items()):
            known.missing = 0 if monitor in watched else known.missing + 1
            if known.missing >= GONE_AFTER and not known.busy:
                await self._forget(monitor)
        self.metrics.watched.set(len(self._jobs))

    async def _start_opted_in(
        self, client: Client, watched: dict[str, TrainingJob]
    ) -> dict[str, TrainingJob]:
        if self._opt_in is None:
            self._opt_in = OptIn(client, self._scheduler, self._settings, self._cluster, self._policies)
        try:
            return await self._opt_in.start_new(watched)
        except (RPCError, SchedulerError) as e:
            log.debug("could not look for jobs that ask to be watched", error=str(e))
            return {}

    def _tell_policies(self) -> None:
        """How the policy file is. The jobs that are watched already keep the policy that they began with."""
        problem = self._policies.problem
        self.metrics.policy_valid.set(not problem)
        if problem:
            log.error("the policy file cannot be used: the last usable one stays in force", why=problem)
        elif self._settings.policy_file is not None:
            log.info("policies in force", file=str(self._settings.policy_file))
        counting = self._policies.file.observe
        if new := [rule for rule in self._policies.new_rules if rule in counting]:
            log.info("rules that came with an upgrade only count until they are promoted", rules=new)

    def _hear_watched(self, monitor: str, job: TrainingJob) -> None:
        known = self._jobs.get(monitor)
        if known is not None:
            if known.watch.job != job and not known.busy:  # else with the next list
                known.watch.change_job(job)
            return
        log.info("watching", monitor=monitor, job=job.attempt.label)
        self._jobs[monitor] = WatchedJob(JobWatch(monitor, job, None, self._error), (), fresh=True)
        self._ask_now.set()

    def _take_up(self, monitor: str, watched: Watched) -> None:
        """Goes on with a job that an earlier sensor watched."""
        watch = JobWatch(monitor, watched.job, Memory.model_validate_json(watched.memory), self._error)
        fresh = watch.memory.info is None
        self._jobs[monitor] = WatchedJob(watch, watched.positions, fresh=fresh)
        log.info("going on", monitor=monitor, job=watch.attempt.label, files=len(watched.positions))

    async def _forget(self, monitor: str) -> None:
        job = self._jobs.pop(monitor)
        await self._in_db(self._store.forget, monitor)
        if all(other.label != job.label for other in self._jobs.values()):
            self.metrics.forget(job.label)
        log.info("no longer watching: its monitor has ended", monitor=monitor)

    # What the scheduler says

    async def _listen(self) -> asyncio.DatagramTransport:
        """Lets Slurm's hook hurry the next question."""

        def is_watched(job_id: str) -> bool:
            return any(job.label == job_id for job in self._jobs.values())

        return await listen(self._settings.sensor.wake_address, is_watched, self._ask_now.set)

    async def _ask(self) -> None:
        jobs = list(self._jobs.values())
        view = await self._scheduler_watch.poll(
            (job.label for job in jobs), lambda: (name for job in jobs for name in job.watch.node_names)
        )
        self.metrics.scheduler_up.set(view.reachable)
        self._look_now.set()
        await asyncio.sleep(PAUSE)

    # What the machines say

    async def _ask_machines(self) -> None:
        if not self._machines.is_on:
            return
        running = [job for job in self._jobs.values() if job.watch.is_running]
        await self._machines.poll((node for job in running for node in job.watch.memory.nodes), _now())
        self.metrics.show_prometheus(not self._machines.problem)
        for job in running:
            memory = job.watch.memory
            started = memory.info.start_time if memory.info is not None else None
            job.watch.hear_machines(self._machines.of(memory.nodes, started, _now()))

    # What the logs say

    async def _look(self) -> None:
        """Starts a look at each job that is not being looked at already."""
        self.metrics.heartbeat.set(time.time())
        for job in list(self._jobs.values()):
            lag = time.monotonic() - job.read_at
            self.metrics.lag.labels(job.label).set(lag)
            if job.busy:
                if lag > STUCK_AFTER:
                    self.metrics.blind.labels(job.label).set(1)
                continue
            job.busy = True
            task = asyncio.create_task(self._tick(job))
            self._ticks.add(task)
            task.add_done_callback(self._ticks.discard)

    async def _tick(self, job: WatchedJob) -> None:
        try:
            await self._look_at(job)
        except Exception as e:
            self._error("job", e, job=job.label)
        finally:
            job.busy = False

    async def _look_at(self, job: WatchedJob) -> None:
        logs, reading = job.logs(self._catalogue, self._settings), Reading(began=_now())
        if logs is not None:
            loop = asyncio.get_running_loop()
            reading = await loop.run_in_executor(self._readers, logs.look, time.monotonic(), reading.began)
        view = self._scheduler_watch.view
        messages = job.watch.advance(reading, view, _now())
        if job.watch.waits_for_word(view):
            self._ask_now.set()
        job.note(reading, messages, self.metrics)
        if (unsaved := job.unsaved()) is not None:
            await self._save(job, unsaved)

    async def _save(self, job: WatchedJob, what: Unsaved) -> None:
        """Saves it and sends the messages. What cannot be saved now is saved with the next look."""
        monitor = job.watch.monitor
        try:
            dropped = await self._in_db(
                self._store.save, monitor, what.job, what.memory, what.positions, what.gone, what.messages
            )
        except sqlite3.Error as e:
            self._error("store", e, job=job.label)
            return
        job.saved(what)
        if what.messages:
            self._outbox.wake()
        if dropped:
            self.metrics.undelivered.labels("full").inc(dropped)
            log.error("the outbox is full: signals were given up, progress reports first", dropped=dropped)

    # Small things

    async def _temporal(self) -> Client:
        if self._client is None:
            self._client = await self._connect()
        return self._client

    async def _in_db(self, call: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._db, call, *args)

    def _undelivered(self, why: str) -> None:
        self.metrics.undelivered.labels(why).inc()

    def _contain(self, part: str, call: Callable[..., None], *args: object) -> None:
        try:
            call(*args)
        except Exception as e:
            self._error(part, e)

    def _error(self, part: str, error: Exception, job: str = "") -> None:
        self.metrics.errors.labels(part).inc()
        log.error("a part of the sensor failed and goes on", part=part, job=job, exc_info=error)


def _now() -> datetime:
    return datetime.now(UTC)
