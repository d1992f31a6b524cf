"""Waiting for an event: neither the event nor a cancellation is lost."""

import asyncio

import pytest

from sensor.waiting import wait_at_most


async def test_it_returns_when_the_event_is_set_and_when_the_time_is_over() -> None:
    event = asyncio.Event()
    await wait_at_most(event, 0.01)
    event.set()
    async with asyncio.timeout(5):
        await wait_at_most(event, 60)


@pytest.mark.parametrize("steps", range(4))
async def test_a_cancellation_in_the_moment_of_the_event_is_not_lost(steps: int) -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(wait_at_most(event, 60))
    await asyncio.sleep(0.01)
    event.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    done = waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting], timeout=5)
    assert waiting.cancelled() or done
