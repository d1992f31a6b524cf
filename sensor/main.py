"""The sensor's process: who may run, what it is wired to, and an orderly end."""

import asyncio
import os
import signal
from collections.abc import Callable
from functools import partial

import structlog
from prometheus_client import start_http_server

from relight.addresses import listening
from relight.config import ConfigError, Settings
from relight.diagnosis.steplines import with_custom
from relight.encryption import data_converter
from relight.scheduler.opening import open_scheduler
from relight.temporal import connect
from sensor.lock import only_one
from sensor.metrics import Metrics
from sensor.service import Sensor
from sensor.store import Store

log = structlog.get_logger("sensor")


async def run_sensor(settings: Settings) -> None:
    """Runs the cluster's sensor until SIGTERM or SIGINT.

    A second sensor with the same state directory waits until the first one ends, and then takes over.

    Raises:
        ConfigError: a policy's step patterns, the metrics address or the state directory cannot be used.
        SchedulerError: there is no scheduler to watch.
        StoreError: the state file cannot be used.
        EncryptionError: the key file cannot be used.
    """
    _check_policies(settings)
    data_converter(settings.encryption.key_file)  # now, and not only when something is to be told
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop.set)
    lock = await only_one(settings.state_dir, stop)
    if lock is None:
        return
    try:
        scheduler = open_scheduler(settings)
        store = Store(settings.state_dir / "sensor.sqlite3")
        try:
            connecting = partial(connect, key_file=settings.encryption.key_file)
            sensor = Sensor(settings, scheduler, store, connecting)
            close_metrics = _serve(sensor.metrics, settings.sensor.metrics_address)
            log.info("the sensor watches", cluster=settings.cluster or "(the scheduler's own name)")
            try:
                await sensor.run(stop)
            finally:
                close_metrics()
        finally:
            store.close()
    finally:
        os.close(lock)
    log.info("the sensor has stopped")


def _check_policies(settings: Settings) -> None:
    for name, policy in settings.policies.items():
        try:
            with_custom(policy.step_patterns)
        except ValueError as e:
            raise ConfigError(f"policy {name!r}: {e}") from e


def _serve(metrics: Metrics, address: str) -> Callable[[], None]:
    """Serves the metrics, if an address is set. Returns what ends it."""
    if not address:
        return lambda: None
    try:
        host, port = listening(address)
        server, thread = start_http_server(port, host, metrics.registry)
    except (ValueError, OSError, OverflowError) as e:
        raise ConfigError(f"sensor.metrics_address {address!r} cannot be used: {e}; write host:port") from e

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join(5)

    return close
