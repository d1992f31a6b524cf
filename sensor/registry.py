"""Which jobs are watched: Temporal knows. For jobs that opt in by their comment, monitors are started."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import structlog
from temporalio.client import Client
from temporalio.common import TypedSearchAttributes, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from relight.config import Settings
from relight.contracts import JobInfo, JobState, TrainingJob, ids
from relight.contracts.messages import AttemptEvent, AttemptReport, MonitorInput
from relight.policies import Policies
from relight.scheduler.port import Scheduler
from sensor.messages import REPORT_ATTEMPT
from sensor.optin import opted_in

log = structlog.get_logger("sensor.registry")

RPC_TIMEOUT = timedelta(seconds=10)
QUICK_DEATH = timedelta(minutes=2)
"""A first attempt that failed before anybody could look is still taken up for so long."""
_RUNNABLE = {JobState.PENDING, JobState.CONFIGURING, JobState.RUNNING, JobState.SUSPENDED}


async def watched_jobs(
    client: Client, cluster: str, job_ids: Sequence[str] | None = None
) -> dict[str, TrainingJob]:
    """The jobs of this cluster that have a running monitor, by its workflow id.

    A monitor whose memo cannot be read is left out and logged.

    Args:
        client: of Temporal.
        cluster: its name.
        job_ids: only these jobs (a few); None: all.

    Raises:
        RPCError: Temporal does not answer, or lacks relight's search attributes.
    """
    query = (
        f"WorkflowType = '{ids.MONITOR_WORKFLOW}' AND ExecutionStatus = 'Running' "
        f"AND {ids.CLUSTER.name} = '{cluster}'"
    )
    if job_ids is not None:
        if not job_ids:
            return {}
        listed = ", ".join(f"'{job_id}'" for job_id in job_ids)
        query += f" AND {ids.JOB_ID.name} IN ({listed})"
    jobs: dict[str, TrainingJob] = {}
    async for execution in client.list_workflows(query, rpc_timeout=RPC_TIMEOUT):
        try:
            jobs[execution.id] = await execution.memo_value(ids.MEMO_JOB, type_hint=TrainingJob)
        except (KeyError, ValueError, TypeError, RuntimeError) as e:
            log.warning("a monitor's memo cannot be read", monitor=execution.id, error=str(e))
    return jobs


class OptIn:
    """Starts monitors for jobs that ask for it in their comment."""

    def __init__(
        self, client: Client, scheduler: Scheduler, settings: Settings, cluster: str, policies: Policies
    ) -> None:
        self._client = client
        self._scheduler = scheduler
        self._settings = settings
        self._cluster = cluster
        self._policies = policies
        self._settled: set[tuple[str, datetime]] = set()

    async def start_new(self, watched: Mapping[str, TrainingJob]) -> dict[str, TrainingJob]:
        """Looks for new jobs that ask to be watched, and starts their monitors.

        A job that has or had a monitor is left alone, also after a requeue: its end was decided by somebody.

        Raises:
            SchedulerError, RPCError: no answer; nothing is lost, the next look finds the job again.
        """
        started: dict[str, TrainingJob] = {}
        known = {job.attempt.job_id for job in watched.values()}
        listed = set()
        for info in await self._scheduler.find_by_comment("{"):
            key = (info.job_id, info.submit_time)
            listed.add(key)
            if key in self._settled or info.job_id in known or not _startable(info):
                continue
            try:
                job = opted_in(info, self._cluster, self._settings, self._policies.file)
            except ValueError as e:  # `BadRequest`, and whatever else one user's comment may bring about
                log.warning(
                    "a job asks to be watched in a way that cannot be done", job=info.job_id, why=str(e)
                )
                job = None
            if job is not None and not await self._had_monitor(info):
                await self._start(job, info)
                started[ids.monitor_id(job.attempt)] = job
            self._settled.add(key)
        self._settled &= listed
        return started

    async def _had_monitor(self, info: JobInfo) -> bool:
        query = (
            f"WorkflowType = '{ids.MONITOR_WORKFLOW}' AND {ids.CLUSTER.name} = '{self._cluster}' "
            f"AND {ids.JOB_ID.name} = '{info.job_id}'"
        )
        first = info.restart_count == 0
        async for execution in self._client.list_workflows(query, rpc_timeout=RPC_TIMEOUT):
            # A first attempt that was submitted after a monitor ended is another job under a reused id.
            if not first or execution.close_time is None or execution.close_time > info.submit_time:
                return True
        return False

    async def _start(self, job: TrainingJob, info: JobInfo) -> None:
        report = AttemptReport(
            attempt=job.attempt,
            event=AttemptEvent.STARTED,
            at=info.start_time or datetime.now(UTC),
            state=JobState.RUNNING,
            nodes=info.nodes,
        )
        runs = info.state is JobState.RUNNING
        guard = ids.guard_id(job.cluster) if self._settings.guard else ""
        try:
            await self._client.start_workflow(
                ids.MONITOR_WORKFLOW,
                MonitorInput(job=job, guard_id=guard, notify=True, archive=bool(self._settings.archive.url)),
                id=ids.monitor_id(job.attempt),
                task_queue=self._settings.task_queue,
                memo={ids.MEMO_JOB: job},
                search_attributes=TypedSearchAttributes(ids.search_attributes(job, "watching")),
                static_summary=f"watches {job.run} (job {job.attempt.job_id}), as its comment asks",
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
                start_signal=REPORT_ATTEMPT if runs else None,
                start_signal_args=[report] if runs else [],
                rpc_timeout=RPC_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:
            return
        log.info("watching a job that asks for it", job=job.attempt.job_id, run=job.run, mode=job.mode.value)


def _startable(info: JobInfo) -> bool:
    if info.state in _RUNNABLE:
        return True
    recent = info.end_time is not None and datetime.now(UTC) - info.end_time < QUICK_DEATH
    return info.state.is_failure and info.restart_count == 0 and recent
