"""Sends queued signals to Temporal: at least once, in order for each job, and patiently.

The queue is `Store`'s. Temporal away for a while, however long, only makes the queue longer; a monitor that
has ended is told nothing more.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import structlog
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from relight.temporal import TemporalUnavailable
from sensor.store import Queued, Store

log = structlog.get_logger("sensor.outbox")

PARALLEL = 16
"""Jobs whose signals are sent at the same time."""
FIRST_BACKOFF = 0.2
LONGEST_BACKOFF = 5.0
RPC_TIMEOUT = timedelta(seconds=5)

_HOPELESS = {RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION}
"""Temporal will never take this very signal (too large, for example)."""
_FULL = "execution limit"
"""What Temporal says when one run has as many signals as it may have: the monitor's next run takes more."""


class Outbox:
    """Empties the queue, and waits when it cannot.

    Args:
        store: the queue.
        connect: gives a client; raises `TemporalUnavailable` while there is none.
        on_undeliverable: told why a signal was given up: `ended` or `refused`.
        in_thread: runs a blocking call.
    """

    def __init__(
        self,
        store: Store,
        connect: Callable[[], Awaitable[Client]],
        on_undeliverable: Callable[[str], None],
        in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self._store = store
        self._connect = connect
        self._on_undeliverable = on_undeliverable
        self._in_thread = in_thread
        self._wake = asyncio.Event()
        self.backoff = 0.0
        """Seconds until the next try; 0 while Temporal answers."""

    def wake(self) -> None:
        """There is something new to send."""
        self._wake.set()

    async def run(self) -> None:
        """Sends, until cancelled."""
        while True:
            self._wake.clear()
            try:
                sent_all = await self.send_once()
            except (RPCError, TemporalUnavailable) as e:
                await self._pause(e)
                continue
            if self.backoff:
                log.info("Temporal answers again")
                self.backoff = 0.0
            if sent_all:
                await self._wake.wait()

    async def send_once(self) -> bool:
        """Sends what waits now. Returns whether nothing is left of it.

        Raises:
            RPCError, TemporalUnavailable: Temporal does not take signals now; they stay queued.
        """
        monitors = await self._in_thread(self._store.waiting)
        if not monitors:
            return True
        client = await self._connect()
        limit = asyncio.Semaphore(PARALLEL)

        async def one(monitor: str) -> None:
            async with limit:
                await self._send_job(client, monitor)

        results = await asyncio.gather(*(one(m) for m in monitors), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return not await self._in_thread(self._store.waiting)

    async def _send_job(self, client: Client, monitor: str) -> None:
        handle = client.get_workflow_handle(monitor)
        for queued in await self._in_thread(self._store.queued, monitor):
            try:
                await handle.signal(queued.signal, json.loads(queued.payload), rpc_timeout=RPC_TIMEOUT)
            except RPCError as e:
                why = _undeliverable(e)
                if why is None:
                    raise
                self._give_up(monitor, queued, why, e)
            await self._in_thread(self._store.sent, queued.seq)

    def _give_up(self, monitor: str, queued: Queued, why: str, error: RPCError) -> None:
        log.warning(
            "a signal cannot be delivered",
            monitor=monitor,
            signal=queued.signal,
            why=why,
            error=error.message,
        )
        self._on_undeliverable(why)

    async def _pause(self, error: Exception) -> None:
        if not self.backoff:
            log.warning("Temporal does not answer: signals wait in the outbox", error=str(error))
        self.backoff = min(LONGEST_BACKOFF, max(FIRST_BACKOFF, self.backoff * 2))
        await asyncio.sleep(self.backoff * random.uniform(0.8, 1.2))  # sensors spread out


def _undeliverable(error: RPCError) -> str | None:
    """Why this signal can never arrive; None if a later try may succeed."""
    if error.status is RPCStatusCode.NOT_FOUND and "namespace" not in error.message.lower():
        return "ended"
    if _FULL in error.message.lower():
        return None
    return "refused" if error.status in _HOPELESS else None
