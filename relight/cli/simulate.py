"""`relight simulate`: does the relight of this site notice a fault, and say the right thing of it?"""

import asyncio
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from relight.cli.demo_story import Story
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import Invocation, invocation, run_async
from relight.cli.output import AsJson, clock, complain, console, duration, print_json
from relight.cli.recovery_view import timeline
from relight.cli.shapes import SimulationView
from relight.cli.simulated_faults import SAYS, SimulatedFault
from relight.cli.simulation import WHO, Simulation, Wanted
from relight.contracts import Mode, Symptom

REMOVALS = 10
"""Tries to remove the job's files, a tenth of a second apart."""
_FAULTS = "; ".join(f"{fault.value}: {says}" for fault, says in SAYS.items())


def simulate(
    ctx: typer.Context,
    fault: Annotated[SimulatedFault, typer.Argument(help=f"What goes wrong. {_FAULTS}.")],
    partition: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Slurm: where the job runs, a partition for canaries.", show_default=False
        ),
    ] = "",
    mode: Annotated[
        Mode, typer.Option(help="observe: only see what relight would do; act: let it recover the job.")
    ] = Mode.OBSERVE,
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME", help="A policy.", show_default="what a job gets")
    ] = "",
    inside: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Directory for the job's files, which the nodes and the sensor see.",
            show_default="here (Slurm), temporary (local)",
        ),
    ] = None,
    python: Annotated[
        str,
        typer.Option(help="Python 3.9 or newer, on the nodes.", show_default="python3 (Slurm), this (local)"),
    ] = "",
    timeout: Annotated[float, typer.Option(min=10, metavar="SECONDS", help="Give up after so long.")] = 900,
    as_json: AsJson = False,
) -> None:
    """Inject a harmless fault into a small training job of relight's own, and see what relight makes of it.

    It needs a relight that runs: beside `relight up` with the local scheduler, or on a Slurm cluster with a
    partition to try things in. The job has 2 nodes with 2 tasks each, uses no GPU, and is watched like any
    other. No other job is touched, and job and watch are ended afterwards. Exit code 0: what relight said is
    right, and in act mode the job was recovered; 1: it was not.
    """  # fmt: skip
    call = invocation(ctx)
    local = call.settings.scheduler == "local"
    if local and partition:
        raise CommandError("the local scheduler has no partitions: leave --partition out", ExitCode.USAGE)
    if not local and not partition:
        raise CommandError(
            "say in which partition the job may run: --partition NAME (one for canaries, if there is one)",
            ExitCode.USAGE,
        )
    python = python or (sys.executable if local else "python3")
    wanted = Wanted(fault, mode, policy, partition, python, timeout)
    story = Story(Console(stderr=True, highlight=False, emoji=False) if as_json else console())
    result = _in_a_directory(call, wanted, story, inside or (None if local else Path.cwd()))
    if as_json:
        print_json(result)
    else:
        _print(result)
    if not result.ok:
        raise typer.Exit(ExitCode.FAILURE)


def _in_a_directory(call: Invocation, wanted: Wanted, story: Story, inside: Path | None) -> SimulationView:
    """Runs it in a directory of its own, which is kept where something went wrong."""
    try:
        directory = Path(tempfile.mkdtemp(prefix="relight-simulate-", dir=inside)).resolve()
    except OSError as error:
        raise CommandError(f"--dir {inside}: {error.strerror}", ExitCode.USAGE) from error
    directory.chmod(0o755)
    try:
        with story:
            result = run_async(_run(call, wanted, directory, story))
    except (KeyboardInterrupt, asyncio.CancelledError):
        _remove(directory)
        raise
    except Exception:  # whatever it was: it goes on up, and the job's files may tell why
        _remove_or_keep(directory, story)
        raise
    if result.ok:
        _remove(directory)
    else:
        _remove_or_keep(directory, story)
    return result


def _remove_or_keep(directory: Path, story: Story) -> None:
    """Removes it where no job ever ran in it."""
    if any(directory.glob("*.log")):
        story.tell(f"the job's files are kept in {directory}", WHO)
    else:
        _remove(directory)


def _remove(directory: Path) -> None:
    """Removes it, also where a rank of the cancelled job is still ending and writes once more."""
    for _ in range(REMOVALS):
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.1)
        if not directory.exists():
            return
    complain(f"{directory} could not be removed", "warning")


async def _run(call: Invocation, wanted: Wanted, directory: Path, story: Story) -> SimulationView:
    from relight.scheduler.opening import open_scheduler  # adapters are slow to import

    main = asyncio.current_task()
    assert main is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main.cancel)
    client = await call.client()
    scheduler = open_scheduler(call.settings)
    return await Simulation(client, call.settings, scheduler, directory, wanted, story).run()


def _print(result: SimulationView) -> None:
    out = console()
    out.print(
        f"\nfault: [bold]{result.fault}[/] in job {escape(result.job_id)} on {escape(result.node or '?')}, "
        f"at {clock(result.fault_at, date=True)}"
    )
    if result.symptom is Symptom.NONE:
        out.print("relight says nothing of it")
    else:
        late = result.detected_at - result.fault_at if result.detected_at and result.fault_at else None
        suspects = f", suspects {escape(', '.join(result.suspects))}" if result.suspects else ""
        out.print(
            f"relight says: [bold]{result.symptom.value}[/], cause [bold]{result.cause}[/]{suspects}, "
            f"{duration(late)} after the fault"
        )
    if result.plan is not None:
        tense = "it would" if result.outcome is None else "its plan was to"
        out.print(f"{tense}: {result.plan.action.value} ({escape(result.plan.because)})")
    if result.outcome is not None:
        out.print(timeline(result.outcome, result.fault_at))
    if result.failed_at_step is not None and result.resumed_at_step is not None:
        out.print(
            f"training failed at step {result.failed_at_step}, went on from step {result.resumed_at_step}, "
            f"and came to step {result.passed_step}, by its own log"
        )
    verdict = "[bold green]right[/]" if result.ok else f"[bold red]not right[/]: {escape(result.why)}"
    out.print(verdict)
