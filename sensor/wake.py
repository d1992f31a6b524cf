"""Hears from Slurm itself that a job has ended, so that the scheduler is asked at once.

`deploy/slurm/epilogslurmctld.sh` sends a datagram with the job's ids. Nothing is concluded from it but that
it is time to look: whoever else sends one can make the sensor ask early, and nothing more. One that is lost
costs nothing either: the scheduler is asked every `sensor.scheduler_poll` anyway.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import structlog

from relight.addresses import listening
from relight.config import ConfigError

log = structlog.get_logger("sensor.wake")

APART = 1.0
"""Seconds between two questions to the scheduler that datagrams can bring about."""
MAX_BYTES = 200
MAX_IDS = 4


class Wake(asyncio.DatagramProtocol):
    """Takes the datagrams.

    Args:
        is_watched: whether a job of this id is watched.
        hurry: asks the scheduler at once.
    """

    def __init__(self, is_watched: Callable[[str], bool], hurry: Callable[[], None]) -> None:
        self._is_watched = is_watched
        self._hurry = hurry
        self._hurried_at = -APART
        self._due: asyncio.TimerHandle | None = None

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """Hurries, if it names a watched job; a moment later if it has just been done."""
        if self._due is not None or not any(self._is_watched(job) for job in job_ids(data)):
            return
        loop = asyncio.get_running_loop()
        wait = max(0.0, self._hurried_at + APART - loop.time())
        self._due = loop.call_later(wait, self._now)

    def _now(self) -> None:
        self._due = None
        self._hurried_at = asyncio.get_running_loop().time()
        self._hurry()

    def error_received(self, exc: Exception) -> None:
        """The system tells of a datagram that was never answered to; there are none."""
        log.debug("an error of the socket", error=str(exc))


def job_ids(data: bytes) -> tuple[str, ...]:
    """The ids in a datagram: words such as `4243` and `4243_7`. Anything else is left out."""
    if len(data) > MAX_BYTES:
        return ()
    words = data.decode("ascii", "replace").split()[:MAX_IDS]
    return tuple(word for word in words if word.replace("_", "", 1).isdecimal())


async def listen(
    address: str, is_watched: Callable[[str], bool], hurry: Callable[[], None]
) -> asyncio.DatagramTransport:
    """Listens for datagrams, until the transport is closed.

    Args:
        address: `host:port`.
        is_watched: as `Wake` takes it.
        hurry: as `Wake` takes it.

    Raises:
        ConfigError: the address cannot be used.
    """
    try:
        host, port = listening(address)
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Wake(is_watched, hurry), local_addr=(host.strip("[]"), port)
        )
    except (ValueError, OSError, OverflowError) as e:
        raise ConfigError(f"sensor.wake_address {address!r} cannot be used: {e}; write host:port") from e
    return transport
