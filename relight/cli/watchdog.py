"""`relight watchdog`: no job stays held because relight is gone."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from activities.tag import read_tag, tagged
from relight.cli.exit_codes import ExitCode
from relight.cli.invocation import invocation, run_async
from relight.cli.output import AsJson, clock, complain, print_json, say
from relight.cli.shapes import OverdueHold
from relight.contracts import JobInfo
from relight.policy.holds import Overdue, Tag, overdue
from relight.scheduler.port import InvalidRequest, NoSuchJob, NotPermitted, Scheduler

_MARK = "recover:"
"""How the id of a recovery begins; whoever has it in the comment may have been held by relight."""


def watchdog(
    ctx: typer.Context,
    act: Annotated[
        bool, typer.Option("--act", help="Release what can be released, whatever the settings say.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Tell of jobs that relight held for longer than it said, or release them.

    Needs the scheduler only: neither Temporal nor a worker. Run it by a timer (deploy/systemd). The setting
    watchdog.mode is off, report (default) or act. A job is released only if relight itself requeued and held
    it on its way to a restart; never one that waits for a person, or whose reason is that somebody holds it.
    Exit status 8: a job is overdue and still held.
    """
    settings = invocation(ctx).settings
    mode = "act" if act else settings.watchdog.mode

    async def work() -> list[OverdueHold]:
        from relight.scheduler.opening import open_scheduler  # adapters are slow to import

        return await _look(open_scheduler(settings), release=mode == "act")

    if mode == "off":
        complain("the watchdog is off (setting watchdog.mode)", "warning")
    found = run_async(work(), "asking the scheduler") if mode != "off" else []
    if as_json:
        print_json(found)
    else:
        for hold in found:
            say(_sentence(hold))
        if not found and mode != "off":
            say("no job is held for longer than relight said")
    if any(not hold.released for hold in found):
        raise typer.Exit(ExitCode.OVERDUE)


async def _look(scheduler: Scheduler, *, release: bool) -> list[OverdueHold]:
    """All overdue holds, the oldest deadline first; released where that was asked for and may be."""
    holds = []
    for info in await scheduler.find_by_comment(_MARK):
        tag = read_tag(info.comment)
        verdict = overdue(info, tag, datetime.now(UTC)) if tag is not None else None
        if tag is None or verdict is None:
            continue
        todo, why = verdict
        hold = OverdueHold(
            job_id=info.job_id,
            user=info.user,
            recovery_id=tag.recovery_id,
            held=tag.held,
            until=tag.until,
            why=why,
            releasable=todo is Overdue.RELEASE,
        )
        if release and hold.releasable:
            hold = await _release(scheduler, info, tag, hold)
        holds.append(hold)
    return sorted(holds, key=lambda hold: (hold.until is not None, hold.until, hold.job_id))


async def _release(scheduler: Scheduler, seen: JobInfo, tag: Tag, hold: OverdueHold) -> OverdueHold:
    """Releases the job, if it is still as it was seen; one refusal keeps no other job held."""
    try:
        info = await scheduler.job(seen.job_id)
        if info != seen:
            return hold.model_copy(update={"why": "somebody changed it just now", "releasable": False})
        await scheduler.set_comment(info.job_id, tagged(info.comment, tag.recovery_id))
        await scheduler.release(info.job_id)
    except (NoSuchJob, InvalidRequest, NotPermitted) as error:
        return hold.model_copy(update={"why": f"it could not be released: {error}"})
    return hold.model_copy(update={"released": True})


def _sentence(hold: OverdueHold) -> str:
    until = f" until {clock(hold.until, date=True)}" if hold.until else ""
    if hold.released:
        return f"job {hold.job_id} was held{until} ({hold.held}): released, as {hold.why}"
    end = f"start it with: scontrol release {hold.job_id}"
    return f"job {hold.job_id} was to be held{until} ({hold.held}), and still is: {hold.why}; {end}"
