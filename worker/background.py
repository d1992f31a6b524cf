"""What a worker does beside serving its task queue."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import structlog

log = structlog.get_logger("worker")


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None], dead: str) -> AsyncIterator[None]:
    """Does the work while the block runs, and ends it with the block.

    Args:
        work: goes on until it is cancelled.
        dead: what to log if it ends by an error nevertheless; the worker itself serves on.
    """
    task = asyncio.create_task(work)
    task.add_done_callback(lambda done: _tell_death(done, dead))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _tell_death(task: asyncio.Task[None], dead: str) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error(dead, error=repr(error))
