"""Waits for an event, and not for ever."""

import asyncio
from contextlib import suppress


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Returns once the event is set, or after so many seconds (at once, if there are none).

    `asyncio.wait_for` is not used: before Python 3.12 it swallows a cancellation that comes in the same
    moment as the event (https://github.com/python/cpython/issues/86296), and a loop that is told to end
    would go on for ever.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
