"""`relight pause` and `relight unpause`: one job, or everything that relight does in the cluster."""

from typing import Annotated

import typer
from temporalio.client import Client

from relight.cli.completion import complete_job
from relight.cli.decide import whoami
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.guarded import cluster_of, guard_status
from relight.cli.invocation import invocation, run_async
from relight.cli.output import say
from relight.cli.watched import find_monitor, list_monitors, watched_jobs
from relight.config import Settings
from relight.contracts.messages import Note
from relight.guarding import start_guard

Job = Annotated[
    str | None,
    typer.Argument(
        help="Job id, or the id of the job's monitor or recovery.",
        show_default=False,
        autocompletion=complete_job,
    ),
]
WholeCluster = Annotated[bool, typer.Option("--cluster", help="Everything in the whole cluster.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept on record.")]
By = Annotated[str, typer.Option("--by", help="Who asks for it.", show_default="you, on this host")]


def pause(
    ctx: typer.Context, job: Job = None, cluster: WholeCluster = False, reason: Reason = "", by: By = ""
) -> None:
    """Change nothing any more, for a job or the whole cluster; open recoveries wait, too."""
    said = _tell(ctx, "pause", job, cluster, Note(by=by or whoami(), reason=reason))
    say(f"{said} is paused: nothing is changed before `relight unpause {'--cluster' if cluster else job}`")


def unpause(
    ctx: typer.Context, job: Job = None, cluster: WholeCluster = False, reason: Reason = "", by: By = ""
) -> None:
    """Go on after a pause of a job or of the whole cluster."""
    said = _tell(ctx, "unpause", job, cluster, Note(by=by or whoami(), reason=reason))
    say(f"{said} goes on")


def _tell(ctx: typer.Context, signal: str, job: str | None, cluster: bool, note: Note) -> str:
    """Sends the signal. Returns what it was about, in words."""
    if (job is None) is not cluster:
        raise CommandError(
            f"say what: `relight {signal} JOB` or `relight {signal} --cluster`", ExitCode.USAGE
        )
    settings = invocation(ctx).settings

    async def work() -> str:
        client = await invocation(ctx).client()
        if job is None:
            return await _tell_cluster(client, settings, signal, note)
        monitor = await find_monitor(client, job, settings.cluster)
        if not monitor.running:
            raise CommandError(f"{monitor.id} watches no more: it has ended", ExitCode.REFUSED)
        await client.get_workflow_handle(monitor.id).signal(signal, note)
        return f"job {job}"

    return run_async(work(), "asking Temporal")


async def _tell_cluster(client: Client, settings: Settings, signal: str, note: Note) -> str:
    """Tells the guard, and one by one the jobs that do not ask it.

    The guard is started where it does not run: a pause must not depend on a worker that has done so.
    """
    cluster = await cluster_of(client, settings)
    limits = settings.guard_limits.limits()
    await start_guard(client, settings.task_queue, cluster, limits, (signal, note))
    monitors = await list_monitors(client, cluster=cluster)
    for watched in await watched_jobs(client, monitors):
        if watched.status is None or not watched.status.guard_id:
            await client.get_workflow_handle(watched.monitor_id).signal(signal, note)
    await _heard(client, settings, cluster, paused=signal == "pause")
    return f"cluster {cluster}"


async def _heard(client: Client, settings: Settings, cluster: str, *, paused: bool) -> None:
    """The guard has taken the word in.

    Raises:
        CommandError: no worker answers; the word is on record and counts before anything else is done.
    """
    try:
        status = await guard_status(client, settings, cluster)
    except CommandError as e:
        if e.code is not ExitCode.NOT_READY:
            raise
        raise CommandError(
            f"{e}. The word is on record: the guard hears it first when one is back", ExitCode.NOT_READY
        ) from e
    if status.paused is not paused:
        raise CommandError(f"the guard of cluster {cluster} is {'' if status.paused else 'not '}paused")
