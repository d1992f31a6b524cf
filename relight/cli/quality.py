"""`relight quality`: what relight would have done in observe mode, against what then really happened."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from temporalio.client import Client

from relight.audit.record import RecoveryAudit
from relight.cli.audit_sources import real, recoveries_since, told_left_out
from relight.cli.busy import Tell, busy
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import invocation, run_async, some_time
from relight.cli.output import AsJson, complain, console, duration, print_json, say
from relight.cli.shapes import QualityView
from relight.cli.watched import list_monitors
from relight.config import Settings
from relight.quality.case import Case, case_of
from relight.quality.figures import BY, MIN_PRECISION, Figures, Rate, figures


def quality(
    ctx: typer.Context,
    since: Annotated[str, typer.Option(help="How far back: 14d, 12h, ...")] = "14d",
    by: Annotated[
        str, typer.Option(help="Tell groups apart by: cause, detector, partition, symptom; with commas.")
    ] = "cause",
    min_precision: Annotated[
        float,
        typer.Option(help="Ready when the lower end of the 95 % interval reaches this.", min=0.5, max=0.999),
    ] = MIN_PRECISION,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Count the faults of `relight simulate`, too.")
    ] = False,
    cases: Annotated[bool, typer.Option("--cases", help="List each case with what happened.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare what relight would have done in observe mode with what then happened, before you let it act.

    Precision: of the plans it showed, how many were about a real fault (approved, or the job died); a
    rejected or refuted one was wrong. Recall: of the real faults, how many a sensor told of.
    """
    settings = invocation(ctx).settings
    names = [name.strip() for name in by.split(",") if name.strip()]
    if unknown := [name for name in names if name not in BY]:
        raise CommandError(f"--by {', '.join(unknown)}: choose of {', '.join(BY)}", ExitCode.USAGE)
    window = some_time("--since", since)
    now = datetime.now(UTC)

    async def work(tell: Tell) -> QualityView:
        client = await invocation(ctx).client()
        found_all = await recoveries_since(client, settings, now - window, tell)
        audits = found_all.audits if simulated else real(found_all.audits)
        left_out = len(found_all.audits) - len(audits)
        begin = await _observed_from(client, settings, audits, now - window)
        found = [case for audit in audits if (case := case_of(audit)) is not None]
        days = (now - begin) / timedelta(days=1)
        groups = figures(found, names, days=days, minimum=min_precision)
        return QualityView(
            since=begin, until=now, min_precision=min_precision, groups=tuple(groups), cases=tuple(found),
            simulated_left_out=left_out,
        )  # fmt: skip

    with busy("reading histories") as tell:
        view = run_async(work(tell))
    if as_json:
        print_json(view)
        return
    if view.simulated_left_out:
        complain(f"{told_left_out(view.simulated_left_out)} (--simulated counts them)", "note")
    if not view.groups:
        say(f"no recovery in observe mode ended since {view.since:%Y-%m-%d %H:%M} UTC: nothing to judge yet")
        return
    out = console()
    out.print(_table(view.groups, names))
    out.print(
        f"[dim]ready: the lower end of the 95 % interval of the precision is {min_precision:.0%} or more[/]"
    )
    if cases:
        out.print(_case_table(view.cases))


async def _observed_from(
    client: Client, settings: Settings, audits: Sequence[RecoveryAudit], begin: datetime
) -> datetime:
    """When observing began: no earlier than the first watch, or the first recovery."""
    monitors = await list_monitors(client, cluster=settings.cluster, ended=True)
    monitors = [monitor for monitor in monitors if not monitor.job.simulated]
    first = [monitor.execution.start_time for monitor in monitors] + [audit.started for audit in audits]
    return max(begin, min(first, default=begin))


def _table(groups: tuple[Figures, ...], names: list[str]) -> Table:
    heads = [name.upper() for name in names]
    columns = ("DETECTED", "WOULD ACT", "RIGHT", "WRONG", "OPEN", "PRECISION", "MISSED", "RECALL")
    table = Table(*heads, *columns, "EARLIER BY", "FALSE/DAY", "VERDICT", box=None, pad_edge=False)
    for one in groups:
        needs = f" (needs {one.needs} more)" if one.needs is not None else ""
        alarms = one.false_alarms_per_day
        table.add_row(
            *(escape(name) for name in one.group),
            *(str(n) for n in (one.detected, one.would_act, one.right, one.wrong, one.open)),
            _rate(one.precision),
            str(one.missed),
            _rate(one.recall),
            duration(one.gained) if one.gained_cases else "-",
            "-" if alarms is None else f"{alarms:.2f}",
            f"{one.verdict.value}{needs}",
        )
    return table


def _rate(rate: Rate) -> str:
    if rate.value is None:
        return "-"
    return f"{rate.value:.1%} ({rate.low:.0%} to {rate.high:.0%})"


def _case_table(cases: tuple[Case, ...]) -> Table:
    table = Table("RECOVERY", "CAUSE", "DETECTOR", "WOULD", "TRUTH", "BECAUSE", box=None, pad_edge=False)
    for case in cases:
        would = case.action.value if case.would_act else "nothing"
        table.add_row(
            escape(case.recovery_id), case.cause.value, escape(case.detector), would, case.truth.value,
            escape(case.because),
        )  # fmt: skip
    return table
