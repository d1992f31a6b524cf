"""A worker sees to it that its cluster's guard runs, and tells it the limits of the settings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from temporalio.client import Client
from temporalio.service import RPCError

from relight.config import Settings
from relight.contracts.guard import GuardLimits
from relight.contracts.ids import guard_id
from relight.guarding import start_guard
from relight.scheduler.port import Scheduler, SchedulerError
from worker.background import beside

log = structlog.get_logger("worker.guard")

LOOK_AGAIN = 60.0
"""Seconds. A guard that somebody terminated is started again; one that runs notices nothing of the look."""
TRY_AGAIN = 5.0


@asynccontextmanager
async def guarding(client: Client, scheduler: Scheduler, settings: Settings) -> AsyncIterator[None]:
    """Inside the block the guard is kept running, if the settings want one."""
    if not settings.guard:
        yield
        return
    dead = "nobody looks after the guard any more: this worker has to be restarted"
    async with beside(_keep(client, scheduler, settings), dead):
        yield


async def _keep(client: Client, scheduler: Scheduler, settings: Settings) -> None:
    cluster, limits = settings.cluster, settings.guard_limits.limits()
    told = False
    while True:
        try:
            if not told:
                cluster = cluster or (await scheduler.version()).cluster
                limits = await _with_size(limits, scheduler)
            signal = ("set_limits", limits) if not told else None
            await start_guard(client, settings.task_queue, cluster, limits, signal)
            if not told:
                log.info("the guard runs", guard=guard_id(cluster), cluster_nodes=limits.cluster_nodes)
            told = True
        except (RPCError, SchedulerError) as error:
            log.warning("the guard cannot be started yet; recoveries wait for it", error=str(error))
            await asyncio.sleep(TRY_AGAIN)
        else:
            await asyncio.sleep(LOOK_AGAIN)


async def _with_size(limits: GuardLimits, scheduler: Scheduler) -> GuardLimits:
    """The limits with the cluster's size, which nobody but the scheduler knows."""
    if limits.cluster_nodes is not None:
        return limits
    count = len(await scheduler.nodes())
    return limits.model_copy(update={"cluster_nodes": count or None})
