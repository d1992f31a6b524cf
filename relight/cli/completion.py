"""Shell completion of job ids: what Temporal lists, or silently nothing."""

import asyncio
import warnings
from pathlib import Path

import typer
from temporalio.service import RPCError

from relight.config import ConfigError, load_settings
from relight.contracts.ids import CLUSTER, JOB_ID, MONITOR_WORKFLOW, STATE
from relight.encryption import EncryptionError
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
