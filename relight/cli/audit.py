"""`relight audit`: who decided what, on which evidence, what was done, and what the scheduler answered."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from relight.audit.decoding import fetch_history
from relight.audit.events import UnreadableHistory
from relight.audit.places import ArchiveError
from relight.audit.reading import read_recovery
from relight.cli.audit_formats import as_csv, as_html, screen
from relight.cli.audit_replay import verify_history
from relight.cli.audit_sources import of_target, the_archive
from relight.cli.busy import Tell, busy
from relight.cli.completion import complete_job
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import SpeakingGroup, invocation, run_async
from relight.cli.output import AsJson, console, print_json, say
from relight.cli.shapes import ArchiveCheckView, AuditView, VerifyView
from relight.contracts.ids import RECOVERY_WORKFLOW
from relight.wording import counted


class _ShowsByDefault(SpeakingGroup):
    """`relight audit JOB` is `relight audit show JOB`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts `show` where no other command is named."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ShowsByDefault,
    no_args_is_help=True,
    help="""Who decided what, on which evidence, what was done, what came back.

    relight audit 4243 shows a job, relight audit recover:alps:4243:0:9f2c one of its recoveries.
    As a table or a page: relight audit 4243 --format csv (or html, json).
    """,
)


class Format(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"
    HTML = "html"


Url = Annotated[str, typer.Argument(help="Directory or fsspec URL.", show_default="setting archive.url")]


@app.command()
def show(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(metavar="JOB|RECOVERY", help="Job id, or a workflow id.", autocompletion=complete_job),
    ],
    how: Annotated[Format, typer.Option("--format", help="How to print.")] = Format.TEXT,
    as_json: AsJson = False,
) -> None:
    """Show the audit trail of a job or of one recovery, from Temporal's history and the archive.

    HTML is a page of its own: relight audit 4243 --format html > audit.html
    """
    settings = invocation(ctx).settings

    async def work() -> AuditView:
        client = await invocation(ctx).client_or_archive()
        return await of_target(client, settings, target)

    try:
        view = run_async(work(), "reading the history")
    except UnreadableHistory as error:
        raise CommandError(f"this history cannot be read: {error}") from error
    match Format.JSON if as_json else how:
        case Format.JSON:
            print_json(view)
        case Format.CSV:
            typer.echo(as_csv(view), nl=False)
        case Format.HTML:
            typer.echo(as_html(view), nl=False)
        case Format.TEXT:
            out = console()
            for part in screen(view):
                out.print(part)


@app.command()
def verify(
    ctx: typer.Context,
    recovery: Annotated[str, typer.Argument(metavar="RECOVERY", help="The recovery's workflow id.")],
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Its history as a file: temporal workflow show --output json", dir_okay=False
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Decide again from the recorded inputs, and compare: diagnosis, plans, every step, the outcome.

    Exit code 1: something came out differently, because the history or relight's code was changed since.
    """

    async def work() -> VerifyView:
        if history is not None:
            try:
                recorded = WorkflowHistory.from_json(recovery, history.read_text())
            except (OSError, ValueError) as error:
                raise CommandError(f"{history} holds no history: {error}", ExitCode.USAGE) from error
        else:
            client = await invocation(ctx).client()
            recorded = await _recorded(client, recovery)
        return await verify_history(recorded)

    try:
        view = run_async(work(), "reading the history")
    except UnreadableHistory as error:
        raise CommandError(f"this is no recovery that can be verified: {error}", ExitCode.USAGE) from error
    if as_json:
        print_json(view)
    else:
        out = console()
        for check in view.checks:
            mark = "[green]same[/]     " if check.same else "[bold red]different[/]"
            out.print(f"{mark} {escape(check.what)}: {escape(check.recorded)}")
            if not check.same:
                out.print(f"          now: {escape(check.now)}")
        out.print(f"{view.recovery_id}: {'verified' if view.same else 'NOT verified'}")
    if not view.same:
        raise typer.Exit(ExitCode.FAILURE)


async def _recorded(client: Client, recovery: str) -> WorkflowHistory:
    """The history of a recovery, which only Temporal has.

    Raises:
        CommandError: it knows none of this id.
    """
    try:
        return await fetch_history(client, recovery)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise CommandError(
            f"Temporal knows no recovery {recovery}: `relight audit JOB` tells those of a job; "
            "of one that Temporal has forgotten, name a saved history with --history",
            ExitCode.NOT_FOUND,
        ) from error


@app.command("check-archive")
def check_archive(
    ctx: typer.Context,
    url: Url = "",
    expect: Annotated[
        str,
        typer.Option(
            metavar="CHAIN:COUNT:HASH",
            help="A head that was noted earlier: the archive must still contain it.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Find the first changed, missing or misplaced record of the archive.

    Every changed byte, every record taken out or moved is found, also at the end (by the head file). Somebody
    who may write all files can make up a whole new chain: note the printed heads elsewhere, and give one back
    with --expect.
    """
    archive = the_archive(invocation(ctx).settings, url)
    try:
        if not archive.exists():
            where = url or invocation(ctx).settings.archive.url
            raise CommandError(f"there is no archive {where}: nothing was ever archived there, or it is gone")
        with busy("reading the archive"):
            checked = archive.check()
    except (ArchiveError, OSError) as error:
        raise CommandError(f"the archive cannot be read: {error}") from error
    views = []
    for one in checked:
        problem = str(one.problem) if one.problem is not None else ""
        views.append(
            ArchiveCheckView(chain=one.chain, records=one.head.count, hash=one.head.hash, problem=problem)
        )
    if expect:
        chain, _, rest = expect.rpartition(":")[0].partition(":")
        count, digest = rest, expect.rpartition(":")[2]
        known = next((one for one in checked if one.chain == chain), None)
        if not count.isdigit():
            raise CommandError(f"--expect {expect!r}: write CHAIN:COUNT:HASH, as printed", ExitCode.USAGE)
        if known is None or known.after.get(int(count)) != digest:
            text = f"the head {expect} is not in it: records were changed or taken out since it was noted"
            views.append(ArchiveCheckView(chain=chain, records=0, hash="", problem=text))
    if as_json:
        print_json(views)
    else:
        for view in views:
            whole = f"{counted(view.records, 'record', 'records')}, whole"
            say(f"{view.chain}: {view.problem or whole}")
            if not view.problem:
                say(f"  head to note: {view.chain}:{view.records}:{view.hash}")
        if not views:
            say("the archive is empty")
    if any(view.problem for view in views):
        raise typer.Exit(ExitCode.FAILURE)


@app.command("archive")
def archive_now(ctx: typer.Context, url: Url = "") -> None:
    """Put ended recoveries into the archive that are not there yet: after an outage, or to begin with."""
    settings = invocation(ctx).settings
    archive = the_archive(settings, url)

    async def work(tell: Tell) -> tuple[int, int]:
        client = await invocation(ctx).client()
        query = f"WorkflowType='{RECOVERY_WORKFLOW}' AND ExecutionStatus!='Running'"
        if settings.cluster:
            query += f" AND RelightCluster='{settings.cluster}'"
        found = sorted([one async for one in client.list_workflows(query)], key=lambda one: one.start_time)
        added = 0
        for number, execution in enumerate(found, 1):
            tell(f"{number} of {len(found)} recoveries")
            audit = await read_recovery(client, execution.id, execution.run_id)
            added += audit is not None and archive.append(audit, datetime.now(UTC))
        return added, len(found)

    try:
        with busy("archiving") as tell:
            added, seen = run_async(work(tell))
    except (ArchiveError, UnreadableHistory) as error:
        raise CommandError(str(error)) from error
    say(f"{added} of {counted(seen, 'ended recovery', 'ended recoveries')} added; the rest was there already")
