"""Shell completion of job ids: what Temporal or the scheduler lists, or silently nothing."""

import asyncio
import os
import pwd
import warnings
from pathlib import Path

import typer
from temporalio.service import RPCError

from relight.config import ConfigError, Settings, load_settings
from relight.contracts.ids import CLUSTER, JOB_ID, MONITOR_WORKFLOW, STATE
from relight.encryption import EncryptionError
from relight.scheduler.port import SchedulerError
from relight.temporal import TemporalUnavailable, connect

PATIENCE = 1.5
"""Seconds that a person at a prompt waits."""
MOST = 200
"""Ids that are offered."""


def complete_job(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The ids of watched jobs that begin so, each with its state. Nothing where they cannot be had at once.

    It writes nothing: what it wrote would be in the line that somebody is typing.
    """
    given = ctx.find_root().params
    config, cluster = given.get("config"), given.get("cluster")
    try:
        with warnings.catch_warnings(action="ignore"):
            return asyncio.run(_listed(Path(config) if config else None, cluster, incomplete))
    except (ConfigError, EncryptionError, TemporalUnavailable, RPCError, TimeoutError, OSError):
        return []


def complete_running_job(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """The ids of this user's jobs that have not ended, each with its name; silent as `complete_job`."""
    given = ctx.find_root().params
    config = given.get("config")
    try:
        with warnings.catch_warnings(action="ignore"):
            settings = load_settings(
                Path(config) if config else None,
                scheduler=given.get("scheduler"),
                state_dir=given.get("state_dir"),
            )
            return asyncio.run(_of_scheduler(settings, incomplete))
    except (ConfigError, SchedulerError, TimeoutError, OSError):
        return []


async def _of_scheduler(settings: Settings, incomplete: str) -> list[tuple[str, str]]:
    from relight.scheduler.opening import open_scheduler  # adapters are slow to import

    if settings.scheduler != "local":  # without the probe of pyslurm, which takes its time
        settings = settings.model_copy(update={"scheduler": "slurm-cli"})
    async with asyncio.timeout(PATIENCE):
        mine = await open_scheduler(settings).open_jobs_of(pwd.getpwuid(os.geteuid()).pw_name)
    found = ((info.job_id, info.name) for info in mine if info.job_id.startswith(incomplete))
    return sorted(found, key=lambda job: (len(job[0]), job))[:MOST]


async def _listed(config: Path | None, cluster: str | None, incomplete: str) -> list[tuple[str, str]]:
    settings = load_settings(config, cluster=cluster)
    async with asyncio.timeout(PATIENCE):
        client = await connect(timeout=PATIENCE)  # ids are no payloads: they are never encrypted
        found = []
        query = f"WorkflowType='{MONITOR_WORKFLOW}' AND ExecutionStatus='Running'"
        async for execution in client.list_workflows(query, limit=10 * MOST):
            shown = execution.typed_search_attributes
            job_id = shown.get(JOB_ID, "")
            if settings.cluster in ("", shown.get(CLUSTER, "")) and job_id.startswith(incomplete):
                found.append((job_id, shown.get(STATE, "")))
    return sorted(found)[:MOST]
