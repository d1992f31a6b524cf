"""`relight jobs` and `relight show`: what is watched, and one job in full."""

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from temporalio.client import Client

from relight.audit.events import UnreadableHistory
from relight.audit.moments import moments
from relight.audit.reading import read_recovery
from relight.cli.decide import WAITING
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import invocation, run_async
from relight.cli.last_step import step_cell, step_line
from relight.cli.live import keep_showing
from relight.cli.output import AsJson, ago, clock, complain, console, print_json, say
from relight.cli.recovery_view import commands, one_line, plan_lines, timeline, timeline_of, what_happened
from relight.cli.shapes import JobView, RecoveryView, WatchedJob
from relight.cli.unwatched import find_or_advise
from relight.cli.watched import JobTarget, job_view, list_monitors, no_worker, watched_jobs
from relight.wording import counted

MAX_EARLIER = 5
"""Recoveries before the latest that are shown; `relight audit` has all."""
MAX_LOG = 12
"""Lines of what an open recovery did so far."""


def jobs(
    ctx: typer.Context,
    ended: Annotated[bool, typer.Option("--all", "-a", help="Those watched earlier, too.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Show it live, until Ctrl-C; also while Temporal is away.")
    ] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", min=0.5, help="How often, with --watch.")] = 3,
    as_json: AsJson = False,
) -> None:
    """List the watched jobs.

    STEP is the last step that the sensor told of, and how long ago it was seen, if more than 5 s. The sensor
    tells of a healthy job's steps every 30 s, of one that has trained for hours every 5 min: an old STEP is
    no hang. A hang is told at once, and changes STATE. Where its plan was rejected, or nobody decided on it,
    STEP says that the job stands still, until a later step is seen.
    """
    settings = invocation(ctx).settings
    if watch and as_json:
        raise CommandError("say either --watch or --json", ExitCode.USAGE)

    async def look(client: Client) -> list[WatchedJob]:
        return await watched_jobs(client, await list_monitors(client, cluster=settings.cluster, ended=ended))

    async def live() -> None:
        client = await invocation(ctx).client()

        async def screen() -> RenderableType:
            return _live_screen(await look(client), settings.task_queue)

        await keep_showing(screen, every)

    async def work() -> list[WatchedJob]:
        return await look(await invocation(ctx).client())

    if watch:
        run_async(live())
        return
    found = run_async(work(), "asking Temporal")
    if as_json:
        print_json(found)
    elif found:
        console().print(_table(found))
    else:
        say("no job is watched: `relight watch JOB` begins")
    if any(job.status is None for job in found):
        complain(f"{no_worker(settings.task_queue)}; progress is unknown", "warning")


def show(
    ctx: typer.Context,
    job: JobTarget,
    as_json: AsJson = False,
) -> None:
    """Show one job: attempt, progress, the open or latest recovery with its plan and timeline, earlier ones.

    An id that the job had before it was submitted anew finds it too.
    """
    settings = invocation(ctx).settings

    async def work() -> JobView:
        client = await invocation(ctx).client()
        monitor = await find_or_advise(client, settings, job)
        return await _with_times(client, await job_view(client, monitor))

    view = run_async(work(), "asking Temporal")
    if as_json:
        print_json(view)
    else:
        out = console()
        for part in _screen(view):
            out.print(part)
    if view.status is None:
        silent: CommandError = no_worker(settings.task_queue)
        complain(f"{silent}; plan and progress are unknown", "warning")


async def _with_times(client: Client, view: JobView) -> JobView:
    """With the moments of the open recovery, from its history: it tells them itself only at its end."""
    if not view.recoveries or view.recoveries[-1].times is not None:
        return view
    *before, last = view.recoveries
    try:
        audit = await read_recovery(client, last.recovery_id)
    except UnreadableHistory as error:
        complain(f"the times of {last.recovery_id} are not known: {error}", "warning")
        return view
    times = moments(audit) if audit is not None else None
    return view.model_copy(update={"recoveries": (*before, last.model_copy(update={"times": times}))})


def _live_screen(found: list[WatchedJob], task_queue: str) -> RenderableType:
    """What needs a person is said first: on a long list it would be off the screen."""
    waiting = [job.job.attempt.job_id for job in found if job.state == WAITING]
    head = f"[bold]{len(found)} jobs are watched[/]" if found else "no job is watched"
    parts: list[RenderableType] = [head]
    if waiting:
        parts.append(f"[bold yellow]waiting for a person:[/] {escape(', '.join(waiting))} (relight show JOB)")
    if any(job.status is None for job in found):
        parts.append(f"[bold yellow]{escape(str(no_worker(task_queue)))}; progress is unknown[/]")
    return Group(*parts, Text(), _table(found)) if found else Group(*parts)


def _table(found: list[WatchedJob]) -> Table:
    table = Table(box=None, pad_edge=False)
    for head in ("JOB", "RUN", "USER", "STATE", "MODE", "NODES", "STEP", "RECOVERIES", "WATCHED FOR"):
        table.add_column(head, overflow="fold")
    now = datetime.now(UTC)
    for watched in found:
        job, status = watched.job, watched.status
        table.add_row(
            escape(job.attempt.label),
            escape(job.run),
            escape(job.user),
            watched.state + (f" ({status.end.value})" if status and status.end else ""),
            job.mode.value,
            str(len(job.nodes) or "-"),
            step_cell(status.progress if status else None, now, watched.stands_still),
            "?" if status is None else str(status.recoveries),
            ago(watched.started).removesuffix(" ago"),
        )
    return table


def _screen(view: JobView) -> list[RenderableType]:
    job, status, now = view.job, view.status, datetime.now(UTC)
    facts = Table.grid(padding=(0, 2))
    nodes = ", ".join(job.nodes[:8]) + (f", ... ({len(job.nodes)})" if len(job.nodes) > 8 else "")
    rows = [
        (
            "state",
            view.state + (f" ({status.end.value}: {status.end_detail})" if status and status.end else ""),
        ),
        ("mode", job.mode.value),
        ("run", f"{job.run}, user {job.user or '?'}, cluster {job.cluster}"),
        *(("earlier ids", ", ".join(view.earlier_ids)) for _ in view.earlier_ids[:1]),
        ("attempt", f"{job.attempt.label}, submitted {clock(job.attempt.submit_time, date=True)}"),
        ("nodes", nodes or "-"),
        (
            "progress",
            step_line(
                status.progress if status else None,
                now,
                watching=view.state == "watching",
                still=view.stands_still,
            ),
        ),
        *(("noticed", note) for note in (status.noticed if status else ())),
        ("policy", job.policy.name),
        ("checkpoints", job.checkpoint_dir or "not told (relight watch --checkpoints DIR)"),
        ("logs", "\n".join(job.log_paths) or "-"),
        ("monitor", view.monitor_id),
    ]
    for name, value in rows:
        facts.add_row(f"[dim]{name}[/]", escape(value))
    parts: list[RenderableType] = [f"[bold]job {escape(job.attempt.job_id)}[/]", facts]
    if view.recoveries:
        *earlier, last = view.recoveries
        parts += ["", *_recovery(last, job.attempt.job_id)]
        before = f"[bold]before that[/]: {counted(len(earlier), 'recovery', 'recoveries')}"
        parts += ["", before] if earlier else []
        parts += [_in_a_line(recovery) for recovery in earlier[-MAX_EARLIER:]]
    return parts


def _in_a_line(recovery: RecoveryView) -> str:
    ended = "it ended without a result" if recovery.ended else "open"
    how = one_line(recovery.outcome) if recovery.outcome is not None else ended
    return f"  {clock(recovery.started, date=True)} {how} [dim]{escape(recovery.recovery_id)}[/]"


def _recovery(recovery: RecoveryView, job_id: str) -> list[RenderableType]:
    head = f"[bold]recovery[/] {escape(recovery.recovery_id)}, began {clock(recovery.started, date=True)}"
    if recovery.outcome is not None:
        why = what_happened(recovery.status) if recovery.status is not None else []
        return [head, f"  {one_line(recovery.outcome)}", *why, timeline(recovery.outcome)]
    status = recovery.status
    ended = recovery.ended is not None
    doing = status.state if status is not None else "open"
    times = (
        [timeline_of(recovery.times, None if ended else datetime.now(UTC), doing)] if recovery.times else []
    )
    if status is None:
        return [head, "  it ended without a result" if ended else "  open; no worker tells more", *times]
    paused = ", [yellow]paused[/]" if status.paused else ""
    parts: list[RenderableType] = [
        head,
        f"  [bold]{status.state}[/]{paused}",
        *what_happened(status),
        *times,
        *plan_lines(status),
    ]
    if status.state == "awaiting-approval":
        parts += ["decide with one of:", *(escape(line) for line in commands(status, job_id))]
    if status.log:
        parts += ["so far:", *(f"  {escape(line)}" for line in status.log[-MAX_LOG:])]
    return parts
