"""`relight logs`: the log lines that made relight act, in their context."""

from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text
from temporalio.client import Client

from activities.logs import owner_of_files
from relight.audit.events import UnreadableHistory
from relight.audit.reading import read_recovery
from relight.audit.record import RecoveryAudit
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import invocation, run_async
from relight.cli.log_context import look
from relight.cli.output import AsJson, clock, console, print_json
from relight.cli.shapes import LogExcerpt, LogQuote, LogsView
from relight.cli.watched import JobTarget, find_monitor, list_recoveries
from relight.config import Settings
from relight.contracts import Evidence
from relight.wording import Alike, cause_of, collapse

MAX_EVIDENCE = 50
MAX_LINES = 200


def logs(
    ctx: typer.Context,
    job: JobTarget,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=MAX_LINES, help="So many before and after each.")
    ] = 5,
    as_json: AsJson = False,
) -> None:
    """Show the log lines that tell what went wrong, with the lines around them.

    Of the open recovery of the job, or else its latest; the id of a recovery names another one. The logs are
    read here and now, with your own rights: where a file is gone, what relight quoted from it is still shown.
    Needs no worker.
    """
    settings = invocation(ctx).settings

    async def work() -> RecoveryAudit:
        return await _recovery(await invocation(ctx).client(), settings, job)

    try:
        audit = run_async(work(), "asking Temporal")
    except UnreadableHistory as error:
        raise CommandError(f"the history of the recovery cannot be read: {error}") from error
    found = look(evidence_of(audit), lines, owner_of_files(audit.job))
    view = LogsView(
        job_id=audit.job.attempt.job_id,
        monitor_id=audit.monitor_id,
        recovery_id=audit.recovery_id,
        outcome=audit.outcome.outcome.value if audit.outcome is not None else "",
        evidence=found.quotes,
        excerpts=found.excerpts,
    )
    if as_json:
        print_json(view)
        return
    out = console()
    for part in _screen(audit, view):
        out.print(part)


async def _recovery(client: Client, settings: Settings, target: str) -> RecoveryAudit:
    """The recovery that is meant, from Temporal's history.

    Raises:
        CommandError: there is none.
        UnreadableHistory: it is of another version.
    """
    monitor = await find_monitor(client, target, settings.cluster, ended=True)
    if target.startswith("recover:"):
        wanted = target
    else:
        recoveries = await list_recoveries(client, monitor.id)
        if not recoveries:
            raise CommandError(
                f"job {monitor.job.attempt.job_id} has had no recovery: relight has noticed nothing wrong "
                f"with it. Its logs are: {', '.join(monitor.job.log_paths) or 'not known'}",
                ExitCode.NOT_FOUND,
            )
        wanted = recoveries[-1].id
    audit = await read_recovery(client, wanted)
    if audit is None:
        raise CommandError(f"Temporal has no recovery {wanted} any more", ExitCode.NOT_FOUND)
    return audit


def evidence_of(audit: RecoveryAudit) -> tuple[Evidence, ...]:
    """All evidence of a recovery, each piece once: what the diagnosis rests on, then what came in later."""
    found = {
        (one.source, one.where, one.text): one
        for evidence in (audit.diagnosis.evidence, *(record.evidence for record in audit.records))
        for one in evidence
    }
    return tuple(found.values())[:MAX_EVIDENCE]


def _screen(audit: RecoveryAudit, view: LogsView) -> list[RenderableType]:
    diagnosis = audit.diagnosis
    parts: list[RenderableType] = [
        f"[bold]job {escape(view.job_id)}[/]: {diagnosis.symptom.value}, "
        f"{cause_of(diagnosis.cause, diagnosis.confidence)}, at {clock(diagnosis.occurred_at, date=True)}; "
        f"recovery {escape(view.recovery_id)}, "
        f"{view.outcome or ('open' if audit.ended is None else 'ended without a result')}"
    ]
    parts += [part for excerpt in view.excerpts for part in ("", *_excerpt(excerpt))]
    parts += ["", "[bold]evidence[/], as relight recorded it:"]
    parts += [part for each in collapse(view.evidence) for part in _quote(each)]
    if not view.evidence:
        parts.append("  none was quoted")
    return parts


def _excerpt(excerpt: LogExcerpt) -> list[RenderableType]:
    numbers = [line.line for line in excerpt.lines if line.line is not None]
    span = f":{numbers[0]}-{numbers[-1]}" if numbers else f", from byte {excerpt.lines[0].offset}"
    width = len(str(numbers[-1])) if numbers else 0
    parts: list[RenderableType] = [Text(f"{excerpt.file}{span}", style="cyan")]
    for line in excerpt.lines:
        number = "" if line.line is None else f"{line.line:{width}} "
        mark, style = (">", "bold red") if line.evidence else (" ", "")
        parts.append(Text(f"{mark} {number}| {line.text}", style=style))
    return parts


def _quote(each: Alike[LogQuote]) -> list[RenderableType]:
    quote = each.first
    told = ", ".join(filter(None, [quote.place, each.more]))
    who = [quote.node or "", f"rank {quote.rank}" if quote.rank is not None else ""]
    head = " ".join(filter(None, [quote.source, *who]))
    parts: list[RenderableType] = [
        Text.assemble(f"  {head}: ", quote.text, (f"  {told}", "dim")),
    ]
    if quote.problem:
        parts.append(Text(f"    {quote.file}: {quote.problem}", style="yellow"))
    return parts
