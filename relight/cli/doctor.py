"""`relight doctor`: finds the first broken stage, and says how to mend it."""

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape
from temporalio.service import RPCError

from relight.cli.checkup import job as job_stages
from relight.cli.checkup import prometheus, scheduler, sensor, settings, temporal
from relight.cli.checkup.base import Bench, Broken, Stage
from relight.cli.completion import complete_job
from relight.cli.exit_codes import ExitCode
from relight.cli.invocation import explain_rpc_error, invocation, run_async
from relight.cli.output import AsJson, console, print_json
from relight.cli.shapes import DoctorView, StageView

FIRST = (
    Stage("settings", settings.settings),
    Stage("state directory", settings.state_directory),
    Stage("Temporal", temporal.temporal),
    Stage("namespace", temporal.namespace),
    Stage("search attributes", temporal.search_attributes),
    Stage("scheduler commands", scheduler.commands),
    Stage("scheduler", scheduler.answers),
)
OF_A_JOB = (Stage("job", job_stages.known),)
THEN = (
    Stage("permissions", scheduler.permissions),
    Stage("accounting", scheduler.accounting),
    Stage("worker", temporal.worker),
    Stage("guard", temporal.guard),
    Stage("sensor", sensor.sensor),
    Stage("Prometheus", prometheus.prometheus),
    Stage("archive", settings.archive),
)
THEN_OF_A_JOB = (
    Stage("watch", job_stages.watched),
    Stage("logs", job_stages.logs),
    Stage("checkpoints", job_stages.checkpoints),
    Stage("steps", job_stages.steps),
)


def doctor(
    ctx: typer.Context,
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="A job id, to look at that job too.", autocompletion=complete_job),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Find what keeps relight from working: goes from stage to stage and stops at the first broken one.

    Run it on the head node, as the user of worker and sensor: rights are looked at with this user's eyes.
    What keeps a healthy relight from acting for a job (mode, approval, budgets) is told by `relight why JOB`.
    """
    stages = (*FIRST, *(OF_A_JOB if job else ()), *THEN, *(THEN_OF_A_JOB if job else ()))
    view, code = run_async(examine(Bench(invocation(ctx), job), stages), "looking at all stages")
    if as_json:
        print_json(view)
    else:
        _print(view)
    if code is not ExitCode.OK:
        raise typer.Exit(code)


async def examine(bench: Bench, stages: Sequence[Stage]) -> tuple[DoctorView, ExitCode]:
    """Looks at the stages in their order, up to the first broken one."""
    seen: list[StageView] = []
    for stage in stages:
        try:
            well = await stage.look(bench)
        except Broken as broken:
            seen.append(StageView(stage=stage.name, state="broken", found=broken.found, mend=broken.mend))
            return DoctorView(stages=tuple(seen), broken=stage.name), broken.code
        except RPCError as error:
            found, code = explain_rpc_error(error)
            seen.append(StageView(stage=stage.name, state="broken", found=found, mend="see the server's log"))
            return DoctorView(stages=tuple(seen), broken=stage.name), code
        state = "note" if well.note else "ok"
        seen.append(StageView(stage=stage.name, state=state, found=well.found, note=well.note))
    return DoctorView(stages=tuple(seen)), ExitCode.OK


def _print(view: DoctorView) -> None:
    out = console()
    marks = {"ok": "[green]ok[/]    ", "note": "[yellow]note[/]  ", "broken": "[bold red]broken[/]"}
    for one in view.stages:
        out.print(f"{marks[one.state]} {one.stage:18} {escape(one.found)}")
        if one.note:
            out.print(f"{'':26}[dim]{escape(one.note)}[/]")
    if view.broken:
        out.print(f"\nmend first: [bold]{view.broken}[/]\n  {escape(view.stages[-1].mend)}")
    else:
        out.print("\nnothing is broken")
