"""`relight rollback`: a whole cluster returns to observe, what is under way included."""

import asyncio
import time
from typing import Annotated

import typer
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from relight.cli.busy import Tell, busy
from relight.cli.decide import whoami
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.guarded import cluster_of, guard_status
from relight.cli.invocation import invocation, run_async
from relight.cli.output import AsJson, complain, print_json, say
from relight.cli.shapes import RollbackView, RolledBackJob
from relight.cli.watched import (
    AT_ONCE,
    Monitor,
    list_monitors,
    list_open_recoveries,
    no_worker,
    watched_jobs,
    worker_polls,
)
from relight.config import Settings
from relight.contracts import Mode
from relight.contracts.ids import guard_id
from relight.contracts.messages import ModeChange
from relight.guarding import start_guard
from relight.wording import counted

HEARD_SECONDS = 20.0
"""How long monitors and the guard may take to say that they have heard it."""


def rollback(
    ctx: typer.Context,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept on record.")] = "",
    by: Annotated[str, typer.Option("--by", help="Who asks for it.", show_default="you, on this host")] = "",
    as_json: AsJson = False,
) -> None:
    """Let the whole cluster observe: nothing is changed any more without a person's approval.

    All watched jobs are set to observe mode, and recoveries under way ask a person before their next change.
    The guard is told too, so that jobs which are watched from now on observe as well, and no node is drained.
    `relight guard mode act` takes the guard's word back; each job then needs `relight mode JOB act`.
    """
    settings = invocation(ctx).settings
    change = ModeChange(mode=Mode.OBSERVE, by=by or whoami(), reason=reason or "relight rollback")

    async def work(tell: Tell) -> RollbackView:
        client = await invocation(ctx).client()
        return await _roll_back(client, settings, change, tell)

    with busy("telling all jobs to observe") as tell:
        found = run_async(work(tell))
    if as_json:
        print_json(found)
    else:
        _print(found)
    if found.failed:
        raise CommandError(f"{len(found.failed)} workflows could not be told; try again", ExitCode.FAILURE)
    if not found.heard:
        raise CommandError(
            f"{no_worker(settings.task_queue)}. The word is on record: it is heard first when one is back",
            ExitCode.NOT_READY,
        )


async def _roll_back(
    client: Client, settings: Settings, change: ModeChange, tell_person: Tell
) -> RollbackView:
    cluster = await cluster_of(client, settings)
    guard = await _tell_guard(client, settings, cluster, change)
    monitors = await list_monitors(client, cluster=cluster)
    recoveries = await list_open_recoveries(client, cluster)
    told, failed = 0, []
    slots = asyncio.Semaphore(AT_ONCE)
    targets = [*(monitor.id for monitor in monitors), *recoveries]

    async def tell(target: str) -> None:
        """By signal, which waits in the history: to stop must not depend on a worker that answers now."""
        nonlocal told
        async with slots:
            try:
                await client.get_workflow_handle(target).signal("set_mode", change)
            except RPCError as e:
                if e.status is not RPCStatusCode.NOT_FOUND:  # else it has just ended
                    failed.append(f"{target}: {e.message}")
        told += 1
        tell_person(f"told {told} of {len(targets)}")

    await asyncio.gather(*(tell(target) for target in targets))
    return RollbackView(
        cluster=cluster,
        jobs=tuple(_job(monitor, recoveries) for monitor in monitors),
        recoveries=tuple(recoveries),
        failed=tuple(sorted(failed)),
        guard=guard,
        heard=await _heard(client, settings, cluster, guard=guard),
    )


async def _tell_guard(client: Client, settings: Settings, cluster: str, change: ModeChange) -> bool:
    """Tells the guard. False: the settings want none, and none runs."""
    if settings.guard:
        limits = settings.guard_limits.limits()
        await start_guard(client, settings.task_queue, cluster, limits, ("set_mode", change))
        return True
    try:
        await client.get_workflow_handle(guard_id(cluster)).signal("set_mode", change)
    except RPCError as e:
        if e.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True


async def _heard(client: Client, settings: Settings, cluster: str, *, guard: bool) -> bool:
    """The guard and all monitors say that they observe. False: no worker answers in time."""
    deadline = time.monotonic() + HEARD_SECONDS
    while time.monotonic() < deadline and await worker_polls(client, settings.task_queue):
        watched = await watched_jobs(client, await list_monitors(client, cluster=cluster))
        heard = all(one.status is not None and one.job.mode is Mode.OBSERVE for one in watched)
        if heard and (not guard or await _guard_observes(client, settings, cluster)):
            return True
        await asyncio.sleep(0.2)
    return False


async def _guard_observes(client: Client, settings: Settings, cluster: str) -> bool:
    try:
        return (await guard_status(client, settings, cluster)).observes
    except CommandError as e:
        if e.code is not ExitCode.NOT_READY:
            raise
        return False


def _job(monitor: Monitor, recoveries: dict[str, str]) -> RolledBackJob:
    return RolledBackJob(
        job_id=monitor.job.attempt.job_id,
        monitor_id=monitor.id,
        before=monitor.job.mode,
        recovering=monitor.id in recoveries.values(),
    )


def _print(found: RollbackView) -> None:
    for one in found.jobs:
        under_way = "; its recovery asks a person before its next change" if one.recovering else ""
        say(f"job {one.job_id}: {one.before.value} -> observe{under_way}")
    say(
        f"cluster {found.cluster} observes: {counted(len(found.jobs), 'job', 'jobs')} and "
        f"{counted(len(found.recoveries), 'recovery', 'recoveries')} under way were told"
    )
    if found.guard:
        say("jobs that are watched from now on observe too, until `relight guard mode act`")
    else:
        complain(
            'there is no guard: set `mode = "observe"` in the settings, or `mode: observe` in the policy '
            "file, so that jobs which are watched from now on observe too",
            "warning",
        )
    for problem in found.failed:
        complain(problem)
