"""Takes a node away from everyone, looks at it, and gives it back: only ever a node that is relight's own."""

import asyncio

from activities.common import Context, heartbeats, now, refused, scheduler_errors
from relight.contracts import NodeInfo
from relight.contracts.node_drain import NodeHow, NodeLook, NodeStep
from relight.policy.node_drain import in_words, is_idle, reason_for, stands
from relight.scheduler.port import NoSuchNode

SETTLE_SECONDS = 10.0
"""How long the scheduler may take to show what it has accepted."""


async def drain_node(context: Context, given: NodeStep) -> NodeLook:
    """Drains the node, if nobody has and it is up. Run again, it finds its own reason and does nothing more.

    Raises:
        ApplicationError: `SchedulerUnreachable` when it is not known whether the scheduler acted; `Refused`.
    """
    async with heartbeats():
        with scheduler_errors():
            info = await _read(context, given.node)
            how = stands(info, given.recovery_id)
            if info is None or how is not NodeHow.FREE:
                return _look(given, info)
            reason = reason_for(given.cause, given.recovery_id, given.because)
            try:
                await context.scheduler.drain_node(given.node, reason)
            except NoSuchNode:
                return _look(given, None)
            at = now()
            info = await _until(context, given, NodeHow.OURS)
    return _look(given, info).model_copy(update={"at": at})


async def look_at_node(context: Context, given: NodeStep) -> NodeLook:
    """How the node stands now. Reads only."""
    async with heartbeats():
        with scheduler_errors():
            look = _look(given, await _read(context, given.node))
            if look.how is not NodeHow.FREE:
                return look
            return look.model_copy(update={"scheduler_since": await context.scheduler.running_since()})


async def release_node(context: Context, given: NodeStep) -> NodeLook:
    """Gives the node back, if it is still drained for this recovery. Any other node is left as it is.

    Raises:
        ApplicationError: as `drain_node`.
    """
    async with heartbeats():
        with scheduler_errors():
            info = await _read(context, given.node)
            if stands(info, given.recovery_id) is not NodeHow.OURS:
                return _look(given, info)
            await context.scheduler.resume_node(given.node)
            at = now()
            info = await _until(context, given, NodeHow.FREE)
    return _look(given, info).model_copy(update={"at": at})


async def _read(context: Context, node: str) -> NodeInfo | None:
    return (await context.scheduler.nodes([node])).get(node)


async def _until(context: Context, given: NodeStep, wanted: NodeHow) -> NodeInfo | None:
    """Waits until the scheduler shows what it accepted, or what somebody else has made of it since."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SETTLE_SECONDS
    while True:
        info = await _read(context, given.node)
        before = NodeHow.FREE if wanted is NodeHow.OURS else NodeHow.OURS
        if stands(info, given.recovery_id) is not before:
            return info
        if loop.time() > end:
            raise refused(f"the scheduler took the command, but node {given.node} is {_words(info)}")
        await asyncio.sleep(0.2)


def _look(given: NodeStep, info: NodeInfo | None) -> NodeLook:
    how = stands(info, given.recovery_id)
    return NodeLook(
        how=how,
        idle=info is not None and is_idle(info),
        summary=f"{_SAYS[how].format(node=given.node)} ({_words(info)})",
    )


def _words(info: NodeInfo | None) -> str:
    return in_words(info) if info is not None else "not known to the scheduler"


_SAYS = {
    NodeHow.FREE: "{node} is not drained",
    NodeHow.OURS: "{node} is drained by relight",
    NodeHow.ANOTHER: "{node} is drained by relight already, for another recovery",
    NodeHow.OTHERS: "{node} was drained by somebody else: it is left alone",
    NodeHow.KILL_FAILED: "{node} was drained by Slurm, since a process survives: it needs a reboot",
    NodeHow.LOST: "{node} is down: the scheduler gives it no job anyway",
    NodeHow.UNKNOWN: "there is no node {node}",
}
