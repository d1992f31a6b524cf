"""The sensor as a process of its own, for tests that kill it. Arguments: STATE_DIR SCHEDULER_DIR CLUSTER."""

import asyncio
import signal
import sys
from datetime import timedelta
from pathlib import Path

from relight.config import SensorSettings, Settings
from relight.scheduler.local import LocalScheduler
from sensor.service import Sensor
from sensor.store import Store


def quick(state: Path, cluster: str, **more: object) -> Settings:
    """Settings for tests: as the defaults, with a registry that is asked more often."""
    return Settings(
        cluster=cluster,
        state_dir=state,
        task_queue="recorder",
        sensor=SensorSettings(registry_poll=timedelta(seconds=0.5)),
        **more,  # type: ignore[arg-type]
    )


async def main(state: Path, scheduler: Path, cluster: str) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await Sensor(quick(state, cluster), LocalScheduler(scheduler, cluster=cluster), Store(state / "s")).run(
        stop
    )


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
