"""Runs the site's own commands on behalf of a drained node: a repair, and a check that it is well again.

The commands come from the settings, as argument vectors. `{node}`, `{cause}` and `{recovery}` in an argument
are replaced; no shell is involved, and nothing of a job's log gets in.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import suppress

import structlog

from activities.common import Context, heartbeats
from relight.contracts import clean_text
from relight.contracts.node_drain import NodeCheck, NodeStep

log = structlog.get_logger("activities")

MOST_OUTPUT = 4096
"""Bytes of a command's output that are kept."""


async def check_node(context: Context, given: NodeStep) -> NodeCheck:
    """Runs `drain.repair`, then `drain.check`; an exit code of 0 of the check says that the node is well."""
    settings = context.settings.drain
    if not settings.check:
        return NodeCheck(summary="no check is configured (setting drain.check): a person gives it back")
    said = []
    passed = True
    async with heartbeats():
        for name, command in (("repair", settings.repair), ("check", settings.check)):
            if not command or not passed:
                continue
            argv = arguments(command, given)
            if settings.dry_run:
                said.append(f"dry run, {name} would run {argv!r}")
                passed = False
                continue
            log.info("running the site's command", what=name, argv=argv, node=given.node)
            code, output = await _run(argv, settings.timeout.total_seconds())
            log.info("the site's command ended", what=name, node=given.node, exit_code=code, output=output)
            said.append(f"{name} {'ran out of time' if code is None else f'ended with {code}'}: {output}")
            passed = code == 0
    return NodeCheck(
        configured=True,
        passed=passed,
        may_release=settings.release,
        most=settings.tries,
        again_in_seconds=settings.again.total_seconds(),
        summary="; ".join(said),
    )


def arguments(command: Sequence[str], given: NodeStep) -> list[str]:
    """The command with the names in place of `{node}`, `{cause}` and `{recovery}`."""
    values = {"{node}": given.node, "{cause}": given.cause.value, "{recovery}": given.recovery_id}
    filled = []
    for argument in command:
        for name, value in values.items():
            argument = argument.replace(name, value)
        filled.append(argument)
    return filled


async def _run(argv: Sequence[str], timeout: float) -> tuple[int | None, str]:
    """Exit code (None: it ran out of time) and the end of its output. All its processes end with it."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return 127, f"it cannot be started: {error.strerror or error}"
    output = bytearray()

    async def read() -> None:
        assert process.stdout is not None
        while chunk := await process.stdout.read(MOST_OUTPUT):
            output.extend(chunk)
            del output[:-MOST_OUTPUT]

    try:
        async with asyncio.timeout(timeout):
            await read()
            code: int | None = await process.wait()
    except TimeoutError:
        code = None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return code, clean_text(output.decode("utf-8", "replace").replace("\n", " | "), 300)
