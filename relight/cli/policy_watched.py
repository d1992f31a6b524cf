"""`relight policy apply` and `would-have`: the policy file and the jobs that are watched already."""

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from relight.cli.decide import whoami
from relight.cli.guarded import cluster_of
from relight.cli.invocation import invocation, run_async
from relight.cli.output import AsJson, console, print_json, say
from relight.cli.shapes import AppliedView, RuleCountView
from relight.cli.watched import list_monitors, no_worker, watched_jobs
from relight.config import Settings
from relight.contracts import Mode
from relight.contracts.messages import ModeChange
from relight.policies import Policies
from relight.policy.choose import JobFacts, caps_of
from relight.policy.file import PolicyFile


def apply(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which jobs.")] = False,
    by: Annotated[str, typer.Option("--by", help="Who asks for it.", show_default="you, on this host")] = "",
    as_json: AsJson = False,
) -> None:
    """Let watched jobs observe that the policy file does not let act any more.

    The mode is decided when watching begins; after a change of `mode`, `act_in` or an override, this brings
    the jobs that are watched already in line. It only lowers modes, and changes no policy of theirs.
    """
    settings = invocation(ctx).settings
    file = Policies(settings).file

    async def work() -> list[AppliedView]:
        client = await invocation(ctx).client()
        found = await _beyond(client, settings, file)
        for one in [] if dry_run else found:
            change = ModeChange(mode=Mode.OBSERVE, by=by or whoami(), reason=f"policy file: {one.why}")
            try:
                await client.get_workflow_handle(one.monitor_id).signal("set_mode", change)
            except RPCError as e:
                if e.status is not RPCStatusCode.NOT_FOUND:  # else it has just ended
                    raise
        return found

    found = run_async(work(), "asking Temporal")
    if as_json:
        print_json(found)
        return
    would = "would be told" if dry_run else "is told"
    for one in found:
        say(f"job {one.job_id} {would} to observe: {one.why}")
    if not found:
        say("no watched job acts beyond what the policy file allows")


def would_have(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Count what the rules that only count would have done.

    For each rule under `observe` in the policy file, and each of the site's own that is not promoted: how
    many recoveries of jobs that are watched now would have acted on its word alone. A person was asked.
    """
    settings = invocation(ctx).settings
    listed = Policies(settings).file.observe

    async def work() -> list[RuleCountView]:
        client = await invocation(ctx).client()
        return await _counted(client, settings, listed)

    found = run_async(work(), "asking Temporal")
    if as_json:
        print_json(found)
        return
    if not found:
        say("no rule only counts: `observe` in the policy file lists none, and the site has none of its own")
        return
    table = Table("RULE", "RECOVERIES", "JOBS", box=None, pad_edge=False)
    for one in found:
        rule = one.rule if one.listed else f"{one.rule} (not listed any more)"
        table.add_row(escape(rule), str(one.recoveries), escape(", ".join(one.jobs)))
    console().print(table)


async def _beyond(client: Client, settings: Settings, file: PolicyFile) -> list[AppliedView]:
    """Jobs in act mode that the policy file does not let act."""
    monitors = await list_monitors(client, cluster=await cluster_of(client, settings))
    found = []
    for one in await watched_jobs(client, monitors):
        if one.job.mode is Mode.ACT and (caps := caps_of(file, JobFacts.of(one.job), one.job.policy)):
            job_id = one.job.attempt.job_id
            found.append(AppliedView(job_id=job_id, monitor_id=one.monitor_id, why=caps[0].why))
    return found


async def _counted(client: Client, settings: Settings, listed: tuple[str, ...]) -> list[RuleCountView]:
    monitors = await list_monitors(client, cluster=await cluster_of(client, settings))
    watched = await watched_jobs(client, monitors)
    if watched and all(one.status is None for one in watched):
        raise no_worker(settings.task_queue)
    counts: dict[str, int] = dict.fromkeys(listed, 0)
    jobs: dict[str, list[str]] = {}
    for one in watched:
        for rule, times in (one.status.would_have if one.status is not None else {}).items():
            counts[rule] = counts.get(rule, 0) + times
            jobs.setdefault(rule, []).append(one.job.attempt.job_id)
    return [
        RuleCountView(rule=rule, listed=rule in listed, recoveries=times, jobs=tuple(jobs.get(rule, ())))
        for rule, times in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
