"""`relight demo`: a small training job, an injected fault, and what relight does about it."""

import asyncio
import shutil
import signal
import tempfile
import time
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from relight.cli.demo_follow import Follower, fault_time
from relight.cli.demo_stage import Stage, break_it, job, set_up
from relight.cli.demo_story import Story
from relight.cli.demo_training import Proof, prove, read_attempts
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import run_async
from relight.cli.output import console, print_json
from relight.cli.recovery_view import timeline
from relight.cli.shapes import DemoResult
from relight.cli.watch import read_job, start_monitor
from relight.cli.watched import monitor_status
from relight.contracts import Mode, Outcome, RecoveryOutcome
from relight.contracts.ids import monitor_id

FIRST_STEPS = 30
"""The fault comes after so many steps: late enough for a checkpoint, and for relight to know the rhythm."""
SENSOR_SIGNALS = 2
"""A sensor that follows the job has told of the attempt's start, and of its first step."""
TICK = 0.2
PROOF_SECONDS = 5.0
"""How long the training's log may lag behind relight's own word."""


class Fault(StrEnum):
    """What goes wrong on purpose."""

    EXCEPTION = "exception"
    HANG = "hang"
    SIGKILL = "sigkill"
    NODE_LOSS = "node-loss"
    CUDA = "cuda"


class DemoScheduler(StrEnum):
    """Where the training job runs."""

    LOCAL = "local"
    SLURM_CLI = "slurm-cli"


def demo(
    scheduler: Annotated[
        DemoScheduler,
        typer.Option(help="local: processes of this machine; slurm-cli: the Slurm cluster here."),
    ] = DemoScheduler.LOCAL,
    fault: Annotated[Fault, typer.Option(help="What goes wrong on purpose.")] = Fault.EXCEPTION,
    mode: Annotated[
        Mode, typer.Option(help="act: relight recovers alone; observe: it asks before any change.")
    ] = Mode.ACT,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="In observe mode: approve the plan.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave all running at the end, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    timeout: Annotated[float, typer.Option(min=10, help="Give up after so many seconds.")] = 180,
    inside: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="DIR", help="Shared directory to work in (Slurm).", show_default="temporary"
        ),
    ] = None,
) -> None:
    """Show relight at work: Temporal, a worker, a sensor and a small training job, then a fault.

    Exits 0 only if the training's own log proves that it passed the step it failed at.
    """
    if fault is Fault.NODE_LOSS and scheduler is not DemoScheduler.LOCAL:
        raise CommandError(
            "on Slurm, taking a node down would hit other people's jobs: use --scheduler local for node-loss",
            ExitCode.USAGE,
        )
    try:
        directory = Path(tempfile.mkdtemp(prefix="relight-demo-", dir=inside))
    except OSError as error:
        raise CommandError(f"--dir {inside}: {error.strerror}", ExitCode.USAGE) from error
    story = Story(Console(stderr=True, highlight=False, emoji=False) if as_json else console())
    play = Play(
        directory, scheduler, fault, mode, story, yes=yes, keep=keep, as_json=as_json, timeout=timeout
    )
    try:
        result = run_async(play.run())
    except (KeyboardInterrupt, asyncio.CancelledError, typer.Abort):
        shutil.rmtree(directory)
        raise
    except Exception:
        story.tell(f"logs are in {directory}")
        raise
    if not result.ok:
        story.tell(f"logs are in {directory}")
        raise typer.Exit(ExitCode.FAILURE)
    shutil.rmtree(directory)


class Play:
    """One run of the demo."""

    def __init__(
        self,
        directory: Path,
        scheduler: DemoScheduler,
        fault: Fault,
        mode: Mode,
        story: Story,
        *,
        yes: bool,
        keep: bool,
        as_json: bool,
        timeout: float,
    ) -> None:
        self._directory, self._scheduler, self._fault, self._mode = directory, scheduler, fault, mode
        self._story, self._yes, self._keep, self._as_json, self._timeout = story, yes, keep, as_json, timeout
        self._ended = False

    async def run(self) -> DemoResult:
        """Plays it, and prints the result."""
        main = asyncio.current_task()
        assert main is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main.cancel)
        result: DemoResult | None = None
        try:
            with self._story:
                self._story.tell(f"everything of this demo is in {self._directory}")
                async with (
                    set_up(self._directory, self._scheduler.value, self._story) as stage,
                    job(stage) as job_id,
                ):
                    result = await self._until_the_end(stage, job_id)
                    self._story.pause()
                    self._print(result)
                    if self._keep:
                        await self._stay(stage)
        except asyncio.CancelledError:
            if result is None:  # Ctrl-C in the middle; at the end it only means that all has been seen
                raise
        assert result is not None
        return result

    async def _until_the_end(self, stage: Stage, job_id: str) -> DemoResult:
        doing = "the training begins"
        injected: datetime | None = None
        broken = False
        outcome: RecoveryOutcome | None = None
        follower: Follower | None = None
        try:
            async with asyncio.timeout(self._timeout):
                await self._steps(stage, 1)
                doing = "relight knows the job"
                follower = await self._watch(stage, job_id)
                await self._steps(stage, FIRST_STEPS, follower)
                doing = "the fault is over"
                self._story.tell(f"now the fault: {self._fault.value}")
                injected, broken = await break_it(stage, job_id, self._fault.value), True
                while outcome is None or outcome.outcome is Outcome.FAILED_AGAIN:
                    outcome = await follower.look()
                    await asyncio.sleep(TICK)
                if outcome.outcome is Outcome.RESUMED:
                    await self._proof(stage)
        except TimeoutError:
            return self._result(stage, job_id, follower, outcome, injected if broken else None,
                                why=f"gave up after {self._timeout:.0f} s, before {doing}")  # fmt: skip
        why = "" if outcome.outcome is Outcome.RESUMED else f"{outcome.outcome.value}: {outcome.reason}"
        return self._result(stage, job_id, follower, outcome, fault_time(stage, injected), why=why)

    async def _watch(self, stage: Stage, job_id: str) -> Follower:
        wanted = await read_job(
            stage.settings, job_id, checkpoints=stage.training.checkpoints, policy="demo", mode=self._mode
        )
        await start_monitor(stage.client, stage.settings, wanted)
        does = "relight may act alone on it" if self._mode is Mode.ACT else "relight asks before any change"
        self._story.tell(f"watching job {job_id} in {self._mode.value} mode: {does}")
        return Follower(
            stage, self._story, job_id, monitor_id(wanted.attempt), self._yes and self._mode is Mode.OBSERVE
        )

    async def _steps(self, stage: Stage, count: int, follower: Follower | None = None) -> None:
        """Waits until the training made so many steps and, once watched, relight has seen some of them."""
        while True:
            stage.check_services()
            if follower is not None:
                await follower.look()
            attempts = read_attempts(stage.training.read())
            if attempts and (attempts[-1].last or 0) >= count:
                if follower is None:
                    return
                status = await monitor_status(stage.client, follower.monitor_id)
                if status is not None and status.signals >= SENSOR_SIGNALS:
                    return
            await asyncio.sleep(TICK)

    async def _proof(self, stage: Stage) -> None:
        end = time.monotonic() + PROOF_SECONDS
        while time.monotonic() < end:
            if prove(stage.training.read()) is not None:
                return
            await asyncio.sleep(TICK)

    def _result(
        self,
        stage: Stage,
        job_id: str,
        follower: Follower | None,
        outcome: RecoveryOutcome | None,
        fault_at: datetime | None,
        *,
        why: str,
    ) -> DemoResult:
        proof: Proof | None = prove(stage.training.read())
        if not why and proof is None:
            why = "relight says resumed, but the training's own log does not show it"
        return DemoResult(
            ok=not why and proof is not None,
            why=why,
            scheduler=self._scheduler.value,
            fault=self._fault.value,
            mode=self._mode,
            job_id=job_id,
            monitor_id=follower.monitor_id if follower else "",
            fault_at=fault_at,
            failed_at_step=proof.failed_at if proof else None,
            resumed_at_step=proof.resumed_at if proof else None,
            passed_step=proof.passed if proof else None,
            outcome=outcome,
            ui=stage.server.ui,
        )

    def _print(self, result: DemoResult) -> None:
        if self._as_json:
            print_json(result)
            return
        out = console()
        if result.outcome is not None:
            out.print()
            out.print(timeline(result.outcome, result.fault_at))
        out.print()
        if result.ok and result.failed_at_step is not None and result.resumed_at_step is not None:
            lost = result.failed_at_step - result.resumed_at_step
            out.print(
                f"[bold green]resumed[/]: training failed at step {result.failed_at_step}, went on from the "
                f"checkpoint of step {result.resumed_at_step} ({lost} steps lost), and is at step "
                f"{result.passed_step} now, by its own log"
            )
        else:
            out.print(f"[bold red]not resumed[/]: {result.why}", markup=True)
        look = (
            "all of it is in the web UI until Ctrl-C"
            if self._keep
            else "run with --keep to look around in it"
        )
        out.print(f"web UI: {result.ui} ({look})")

    async def _stay(self, stage: Stage) -> None:
        note = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
        note.print("to use the command on it, in another terminal:")
        note.print(
            f"  export TEMPORAL_ADDRESS={stage.server.address} RELIGHT_CONFIG={self._directory}/relight.toml"
        )
        note.print("  relight jobs")
        note.print("Ctrl-C ends everything")
        while True:
            await asyncio.sleep(1)
            stage.check_services()
