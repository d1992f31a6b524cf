"""`relight guard`: what the cluster's guard allows."""

from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from relight.cli.decide import whoami
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.guarded import cluster_of, guard_status
from relight.cli.invocation import invocation, run_async
from relight.cli.output import AsJson, ago, clock, console, print_json, say
from relight.contracts import Mode
from relight.contracts.guard import (
    BreakerReset,
    BreakerState,
    BreakerView,
    GuardStatus,
    PermitKind,
)
from relight.contracts.ids import guard_id
from relight.contracts.messages import ModeChange

app = typer.Typer(help="What relight may do in the whole cluster: permits, budgets, breakers.")

Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept on record.")]
By = Annotated[str, typer.Option("--by", help="Who asks for it.", show_default="you, on this host")]

_COLOURS = {BreakerState.CLOSED: "green", BreakerState.OPEN: "red", BreakerState.HALF_OPEN: "yellow"}


@app.callback(invoke_without_command=True)
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show permits, budgets and breakers of the cluster; with a command, change something."""
    if ctx.invoked_subcommand is not None:
        return
    settings = invocation(ctx).settings

    async def work() -> GuardStatus:
        client = await invocation(ctx).client()
        return await guard_status(client, settings, await cluster_of(client, settings))

    found = run_async(work(), "asking Temporal")
    if as_json:
        print_json(found)
        return
    out = console()
    for part in _screen(found):
        out.print(part)


@app.command()
def reset(
    ctx: typer.Context,
    partition: Annotated[str, typer.Option(help="Only this partition's breaker.", show_default="all")] = "",
    reason: Reason = "",
    by: By = "",
) -> None:
    """Close tripped breakers and end incidents: drains are allowed again; earlier faults do not count."""
    settings = invocation(ctx).settings

    async def work() -> GuardStatus:
        client = await invocation(ctx).client()
        cluster = await cluster_of(client, settings)
        before = await guard_status(client, settings, cluster)
        known = sorted(view.partition for view in before.breakers if view.partition)
        if partition and partition not in known:
            raise CommandError(
                f"the guard knows no partition {partition!r}; it has heard of: {', '.join(known) or 'none'}",
                ExitCode.NOT_FOUND,
            )
        message = BreakerReset(partition=partition, by=by or whoami(), reason=reason)
        await client.get_workflow_handle(guard_id(cluster)).signal("reset_breaker", message)
        return await guard_status(client, settings, cluster)

    found = run_async(work(), "asking Temporal")
    still = [_name(view) for view in found.breakers if view.breaker.state is not BreakerState.CLOSED]
    say(f"the breaker of {partition or 'the cluster and all its partitions'} is reset")
    if still:
        say(f"still not closed: {', '.join(still)}")


@app.command()
def mode(
    ctx: typer.Context,
    mode: Annotated[Mode, typer.Argument(help="observe, or act as far as each job's own mode goes.")],
    reason: Reason = "",
    by: By = "",
) -> None:
    """Set the most that jobs may do in the whole cluster; `relight rollback` tells the jobs too."""
    settings = invocation(ctx).settings

    async def work() -> GuardStatus:
        client = await invocation(ctx).client()
        cluster = await cluster_of(client, settings)
        await guard_status(client, settings, cluster)
        change = ModeChange(mode=mode, by=by or whoami(), reason=reason)
        await client.get_workflow_handle(guard_id(cluster)).signal("set_mode", change)
        return await guard_status(client, settings, cluster)

    found = run_async(work(), "asking Temporal")
    if found.observes:
        say(f"cluster {found.cluster} observes: a person must approve each plan, and no node is drained")
    else:
        say(f"cluster {found.cluster}: each job does what its own mode allows (`relight mode JOB act`)")


def _screen(found: GuardStatus) -> list[RenderableType]:
    head = f"[bold]cluster {escape(found.cluster)}[/]"
    parts: list[RenderableType] = [head]
    if found.paused:
        why = f": {found.paused_reason}" if found.paused_reason else ""
        parts.append(
            f"[red]paused[/] since {clock(found.paused_at, date=True)} by "
            f"{escape(found.paused_by or 'somebody')}{escape(why)}; `relight unpause --cluster` ends it"
        )
    if found.observes:
        why = f": {found.observes_reason}" if found.observes_reason else ""
        parts.append(
            f"[yellow]observes[/] since {clock(found.observes_at, date=True)}, as "
            f"{escape(found.observes_by or 'somebody')} wants it{escape(why)}; "
            "`relight guard mode act` ends it"
        )
    parts += [
        f"[red]incident[/] since {clock(incident.since, date=True)}: {escape(incident.reason)} "
        f"({escape(', '.join(incident.jobs))}); their recoveries wait, and no node is drained"
        for incident in found.incidents
    ]
    budgets = Table("BUDGET", "USED", "LIMIT", box=None, pad_edge=False)
    for budget in found.budgets:
        budgets.add_row(budget.name, str(budget.used), f"{budget.limit} {budget.unit}".strip())
    breakers = Table("BREAKER", "STATE", "FAULTY NODES", "TRIPS AT", "WHY", box=None, pad_edge=False)
    for view in found.breakers:
        state = view.breaker.state
        breakers.add_row(
            escape(_name(view)),
            f"[{_COLOURS[state]}]{state.value}[/]",
            str(view.nodes),
            str(view.threshold),
            escape(view.breaker.reason),
        )
    parts += ["", budgets, "", breakers]
    if found.permits:
        held = Table("PERMIT", "FOR", "USER", "SINCE", "LEASE UNTIL", box=None, pad_edge=False)
        for permit in found.permits:
            request = permit.request
            what = ", ".join(request.nodes) if request.kind is PermitKind.DRAIN else request.job
            held.add_row(
                escape(request.holder),
                escape(f"{request.kind.value} {what}"),
                escape(request.user),
                ago(permit.granted_at),
                clock(permit.until, date=True),
            )
        parts += ["", held]
    if found.waiting:
        queue = Table("WAITING", "SINCE", "GATE", "WHY", box=None, pad_edge=False)
        for waiting in found.waiting:
            queue.add_row(
                escape(waiting.request.holder), ago(waiting.since), waiting.gate, escape(waiting.reason)
            )
        parts += ["", queue]
        if found.queued > len(found.waiting):
            parts.append(f"... and {found.queued - len(found.waiting)} more")
    if found.lemons:
        parts += ["", f"lemons: {escape(', '.join(found.lemons))} (`relight nodes --lemons`)"]
    return parts


def _name(view: BreakerView) -> str:
    return f"partition {view.partition}" if view.partition else "cluster"
