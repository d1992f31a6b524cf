"""The worker's process: checks what it needs, serves workflows and activities, and ends in order."""

import asyncio
import signal
from datetime import timedelta

import structlog
from temporalio.client import Client
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.worker import Worker, WorkerDeploymentConfig

import activities
from relight.addresses import listening
from relight.bytecode import why_compiled_anew
from relight.config import ConfigError, Settings
from relight.scheduler.opening import open_scheduler
from relight.scheduler.port import Scheduler, SchedulerUnreachable
from relight.temporal import connect
from worker.audit import Audit
from worker.guard_metrics import showing
from worker.guarding import guarding
from worker.outcomes import Outcomes
from worker.preflight import check_scheduler, check_search_attributes
from workflows import WORKFLOWS

log = structlog.get_logger("worker")

STICKY = timedelta(seconds=3)
"""How long after a worker's death its cached workflows go to another one; Temporal's default is 10 s."""


async def run_worker(settings: Settings) -> None:
    """Serves relight's task queue until SIGTERM or SIGINT; then running steps get time to finish.

    Raises:
        TemporalUnavailable: no Temporal server answers.
        NotReady: the namespace is not set up for relight.
        ConfigError: the settings cannot be used.
        EncryptionError: the key file cannot be used.
        SchedulerError: there is no scheduler that could be asked.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sig in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sig, stop.set)
    scheduler = open_scheduler(settings)
    runtime = _runtime(settings.worker.metrics_address)
    client = await connect(key_file=settings.encryption.key_file, runtime=runtime)
    await check_search_attributes(client)
    try:
        version = await check_scheduler(scheduler)
    except SchedulerUnreachable as error:
        log.warning("the scheduler does not answer; steps wait for it", error=str(error))
    else:
        log.info(
            "the scheduler answers", scheduler=version.name, version=version.version, cluster=version.cluster
        )
    if slow := why_compiled_anew():
        log.warning("workflows are compiled for each execution", why=slow)
    await asyncio.to_thread(activities.warm_up)
    async with make_worker(client, scheduler, settings):
        log.info("the worker serves", task_queue=settings.task_queue, namespace=client.namespace)
        meter = runtime.metric_meter if runtime is not None else None
        async with guarding(client, scheduler, settings), showing(client, scheduler, settings, meter):
            await stop.wait()
        log.info("the worker stops", grace_seconds=settings.worker.graceful_shutdown.total_seconds())
    log.info("the worker has stopped")


def make_worker(client: Client, scheduler: Scheduler, settings: Settings) -> Worker:
    """A worker with all of relight's workflows and activities."""
    return Worker(
        client,
        task_queue=settings.task_queue,
        workflows=WORKFLOWS,
        activities=activities.build(scheduler, settings),
        interceptors=[Audit(), Outcomes()],
        max_cached_workflows=settings.worker.max_cached_workflows,
        sticky_queue_schedule_to_start_timeout=STICKY,
        graceful_shutdown_timeout=settings.worker.graceful_shutdown,
        deployment_config=_version(settings),
    )


def _version(settings: Settings) -> WorkerDeploymentConfig | None:
    """Which version of which deployment this worker is; the deployment is named like its task queue.

    Set here and not in `@workflow.defn`: a worker that is not versioned could not run such workflows at all.
    """
    if not settings.worker.build_id:
        return None
    return WorkerDeploymentConfig(
        version=WorkerDeploymentVersion(settings.task_queue, settings.worker.build_id),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )


def _runtime(metrics_address: str) -> Runtime | None:
    """A Temporal runtime that serves its own metrics and relight's (`relight_...`) for Prometheus."""
    if not metrics_address:
        return None
    try:
        host, port = listening(metrics_address)
        config = PrometheusConfig(
            bind_address=f"{host}:{port}",
            durations_as_seconds=True,
            counters_total_suffix=True,
        )
        return Runtime(telemetry=TelemetryConfig(metrics=config, metric_prefix="temporal_"))
    except (ValueError, RuntimeError) as error:
        raise ConfigError(
            f"worker.metrics_address {metrics_address!r} cannot be used: {error}; write host:port"
        ) from error
