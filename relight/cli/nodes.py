"""`relight nodes`: what is held against nodes, and which ones relight has drained."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from temporalio.client import Client, WorkflowFailureError
from temporalio.service import RPCError

from relight.cli.decide import whoami
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.guarded import cluster_of, guard_nodes
from relight.cli.invocation import invocation, run_async
from relight.cli.output import AsJson, ago, complain, console, print_json, say
from relight.cli.watched import ask, no_worker
from relight.config import Settings
from relight.contracts import Cause, NodeInfo
from relight.contracts.guard import NodeClear, NodeView
from relight.contracts.ids import CLUSTER, NODE_DRAIN_WORKFLOW, guard_id
from relight.contracts.messages import Note
from relight.contracts.node_drain import DrainEnd, NodeDrainResult, NodeDrainStatus
from relight.policy.node_drain import PREFIX
from relight.scheduler.port import SchedulerError

app = typer.Typer(help="Nodes that failures point at, and nodes that relight has drained.")

ORPHAN = "orphan"
"""State of a node that is drained with a reason of relight's, while no workflow looks after it."""
GIVEN_BACK_WITHIN = timedelta(seconds=60)


@app.callback(invoke_without_command=True)
def nodes(
    ctx: typer.Context,
    lemons: Annotated[bool, typer.Option("--lemons", help="Only lemons.")] = False,
    as_json: AsJson = False,
) -> None:
    """List nodes that failures point at, the worst first; lemons failed several different jobs."""
    if ctx.invoked_subcommand is not None:
        return
    settings = invocation(ctx).settings

    async def work() -> tuple[NodeView, ...]:
        client = await invocation(ctx).client()
        return await guard_nodes(client, settings, await cluster_of(client, settings))

    found = [node for node in run_async(work(), "asking Temporal") if node.lemon or not lemons]
    if as_json:
        print_json(found)
    elif not found:
        say("nothing is held against any node" if not lemons else "no node is a lemon")
    else:
        console().print(_ledger(found))


@app.command()
def drains(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the nodes that relight has drained or is about to; orphans too, which no workflow looks after."""
    settings = invocation(ctx).settings

    async def work() -> list[NodeDrainStatus]:
        client = await invocation(ctx).client()
        cluster = await cluster_of(client, settings)
        found = await _drains(client, settings, cluster)
        return [*found, *_orphans(await _scheduler_nodes(settings), found)]

    found = run_async(work(), "asking Temporal")
    if as_json:
        print_json(found)
    elif not found:
        say("relight has drained no node")
    else:
        console().print(_drain_table(found))


@app.command()
def release(
    ctx: typer.Context,
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept on record.")] = "",
    by: Annotated[
        str, typer.Option("--by", help="Who gives it back.", show_default="you, on this host")
    ] = "",
) -> None:
    """Give back a node that relight has drained. A node that somebody else drained is never touched."""
    settings = invocation(ctx).settings

    async def work() -> NodeDrainResult:
        client = await invocation(ctx).client()
        cluster = await cluster_of(client, settings)
        mine = [d for d in await _drains(client, settings, cluster) if d.node == node]
        if not mine:
            raise CommandError(await _why_not(settings, node), ExitCode.NOT_FOUND)
        note = Note(by=by or whoami(), reason=reason)
        for drain in mine:
            await client.get_workflow_handle(drain.drain_id).signal("release", note)
        # What was only planned ends at once; the one that was drained says how it went.
        chosen = max(mine, key=lambda d: d.drained_at is not None)
        return await _result(client, chosen.drain_id)

    done = run_async(work(), "asking Temporal")
    if done.end in {DrainEnd.RELEASED, DrainEnd.WITHDRAWN}:
        say(f"{node} is {'given back' if done.end is DrainEnd.RELEASED else 'not going to be drained'}")
        return
    raise CommandError(f"{node} was not given back: {done.end.value}, {done.text}", ExitCode.REFUSED)


@app.command()
def clear(
    ctx: typer.Context,
    node: Annotated[str, typer.Argument(help="Name of the node.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept on record.")] = "",
    by: Annotated[str, typer.Option("--by", help="Who mended it.", show_default="you, on this host")] = "",
) -> None:
    """Forget what is held against a node: it was mended, reset or rebooted. A drain stays as it is."""
    settings = invocation(ctx).settings

    async def work() -> None:
        client = await invocation(ctx).client()
        cluster = await cluster_of(client, settings)
        if all(view.node != node for view in await guard_nodes(client, settings, cluster)):
            raise CommandError(f"nothing is held against a node {node!r}", ExitCode.NOT_FOUND)
        message = NodeClear(node=node, by=by or whoami(), reason=reason)
        await client.get_workflow_handle(guard_id(cluster)).signal("clear_node", message)

    run_async(work(), "asking Temporal")
    say(f"nothing is held against {node} any more")


async def _drains(client: Client, settings: Settings, cluster: str) -> list[NodeDrainStatus]:
    query = (
        f"WorkflowType='{NODE_DRAIN_WORKFLOW}' AND ExecutionStatus='Running' AND {CLUSTER.name}='{cluster}'"
    )
    found = []
    async for execution in client.list_workflows(query):
        status = await ask(client.get_workflow_handle(execution.id), NodeDrainStatus)
        if status is None:
            raise no_worker(settings.task_queue)
        found.append(status)
    return found


async def _result(client: Client, drain_id: str) -> NodeDrainResult:
    handle = client.get_workflow_handle(drain_id, result_type=NodeDrainResult)
    try:
        return await asyncio.wait_for(handle.result(), GIVEN_BACK_WITHIN.total_seconds())
    except TimeoutError as e:
        raise CommandError(
            f"{drain_id} has your word, and has not ended within {GIVEN_BACK_WITHIN.seconds} s: see "
            "`relight nodes drains`",
            ExitCode.NOT_READY,
        ) from e
    except (WorkflowFailureError, RPCError) as e:
        raise CommandError(f"{drain_id} did not end well: {e}", ExitCode.FAILURE) from e


async def _scheduler_nodes(settings: Settings) -> dict[str, NodeInfo]:
    """All nodes; none where the scheduler does not answer, which is said."""
    from relight.scheduler.opening import open_scheduler  # adapters are slow to import

    try:
        return dict(await open_scheduler(settings).nodes())
    except SchedulerError as e:
        complain(f"the scheduler cannot be asked for orphans: {e}", "warning")
        return {}


def _orphans(known: dict[str, NodeInfo], looked_after: Sequence[NodeDrainStatus]) -> list[NodeDrainStatus]:
    names = {drain.node for drain in looked_after}
    return [
        NodeDrainStatus(drain_id="", node=info.name, state=ORPHAN, cause=Cause.UNKNOWN, reason=info.reason)
        for info in known.values()
        if info.is_drained and info.reason.startswith(PREFIX) and info.name not in names
    ]


async def _why_not(settings: Settings, node: str) -> str:
    info = (await _scheduler_nodes(settings)).get(node)
    if info is None:
        return f"relight has not drained a node {node!r}; `relight nodes drains` lists those it has"
    if _orphans({node: info}, ()):
        return (
            f"{node} was drained by relight ({info.reason}), and no workflow looks after it any more; "
            f"give it back with: scontrol update NodeName={node} State=RESUME"
        )
    if info.is_drained:
        by = f" by {info.reason_user}" if info.reason_user else ""
        return f"{node} was not drained by relight, but{by}: {info.reason}"
    return f"{node} is not drained"


def _drain_table(found: Sequence[NodeDrainStatus]) -> Table:
    table = Table("NODE", "STATE", "SINCE", "CAUSE", "JOB", "WHY", box=None, pad_edge=False)
    for drain in found:
        gate = f"{drain.gate}: {drain.reason}" if drain.gate else drain.reason
        table.add_row(
            escape(drain.node),
            drain.state,
            ago(drain.drained_at) if drain.drained_at else "-",
            drain.cause.value,
            escape(drain.job),
            escape(gate or (drain.log[-1] if drain.log else "")),
        )
    return table


def _ledger(found: list[NodeView]) -> Table:
    table = Table(
        "NODE", "LEMON", "NEEDS", "SCORE", "JOBS", "LAST", "WHY", "EVIDENCE", box=None, pad_edge=False
    )
    for node in found:
        last = node.strikes[0].at if node.strikes else node.needs_since
        evidence = next((s.evidence for s in node.strikes if s.evidence), "")
        table.add_row(
            escape(node.node),
            "[red]yes[/]" if node.lemon else "-",
            f"[yellow]{escape(node.needs)}[/]" if node.needs else "-",
            f"{node.score:.1f}",
            str(node.jobs),
            ago(last) if last else "-",
            escape(node.why),
            escape(evidence),
        )
    return table
