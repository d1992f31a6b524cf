"""Follows the demo's recovery and tells what relight sees and does, as it happens."""

import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime

import typer
from rich.markup import escape
from temporalio.client import WorkflowExecution, WorkflowExecutionStatus

from relight.cli.decide import WAITING, decide
from relight.cli.demo_stage import Stage
from relight.cli.demo_story import Story
from relight.cli.demo_training import read_attempts
from relight.cli.recovery_view import commands, one_line, plan_lines, what_happened
from relight.cli.watched import list_recoveries, monitor_status, recovery_outcome, recovery_status
from relight.contracts import RecoveryOutcome
from relight.contracts.messages import Decision, RecoveryStatus


@dataclass
class Follower:
    """What was told already, so that each thing is told once."""

    stage: Stage
    story: Story
    job_id: str
    monitor_id: str
    approves: bool
    """Approve a waiting plan without asking."""
    attempts: int = 0
    job_state: str = ""
    recovery_id: str = ""
    recovery_state: str = ""
    asked: str = ""
    lines: int = 0
    told: set[str] = field(default_factory=set)

    async def look(self) -> RecoveryOutcome | None:
        """Looks once at everything and tells what is new; returns the outcome once there is one."""
        self.stage.check_services()
        self._look_at_training()
        await self._look_at_job()
        status = await monitor_status(self.stage.client, self.monitor_id)
        self.story.status(relight=status.state if status else "no worker answers")
        recoveries = await list_recoveries(self.stage.client, self.monitor_id)
        if not recoveries:
            return None
        return await self._look_at_recovery(recoveries[-1])

    def _look_at_training(self) -> None:
        attempts = read_attempts(self.stage.training.read())
        for number, attempt in enumerate(attempts[self.attempts :], self.attempts + 1):
            self.story.tell(f"attempt {number} begins at step {attempt.start}", "training")
        self.attempts = len(attempts)
        if attempts and attempts[-1].last is not None:
            self.story.status(training=f"attempt {self.attempts}, step {attempts[-1].last}")

    async def _look_at_job(self) -> None:
        info = await self.stage.scheduler.job(self.job_id)
        state = f"{info.state.value}{' held' if info.held else ''}"
        if state != self.job_state:
            where = f" on {', '.join(info.nodes)}" if info.nodes else ""
            self.story.tell(f"job {self.job_id}: {state}{where}", "job")
            self.job_state = state
        self.story.status(job=f"{self.job_id} {state}")

    async def _look_at_recovery(self, execution: WorkflowExecution) -> RecoveryOutcome | None:
        if execution.id != self.recovery_id:
            self.recovery_id, self.recovery_state, self.lines = execution.id, "", 0
            self.story.tell(f"recovery begins: {execution.id}", "relight")
        status = await recovery_status(self.stage.client, execution.id)
        if status is not None:
            self._tell_recovery(status)
            await self._approval(status)
        if execution.status is WorkflowExecutionStatus.RUNNING:
            return None
        outcome = await recovery_outcome(self.stage.client, execution.id)
        if outcome is not None and self._first(f"outcome {execution.id}"):
            self.story.tell_markup(one_line(outcome), "relight")
        return outcome

    def _tell_recovery(self, status: RecoveryStatus) -> None:
        if self._first(f"diagnosis {status.recovery_id}"):
            for line in what_happened(status):
                self.story.tell_markup(line, "relight")
        for line in status.log[self.lines :]:
            self.story.tell(line, "relight")
        self.lines = len(status.log)
        if status.state != self.recovery_state:
            self.recovery_state = status.state
            self.story.tell_markup(f"recovery: [bold]{escape(status.state)}[/]", "relight")

    async def _approval(self, status: RecoveryStatus) -> None:
        if status.state != WAITING or self.asked == status.plan_digest:
            return
        self.asked = status.plan_digest
        for line in plan_lines(status):
            self.story.tell_markup(line, "relight")
        if self.approves:
            await self._say_yes(status)
        elif sys.stdin.isatty():
            self.story.pause()
            agreed = typer.confirm(f"Approve plan {status.plan_digest}?")
            self.story.go_on()
            await self._say_yes(status, approved=agreed)
        else:
            self.story.tell("observe mode: relight waits for a person. Decide from another terminal:")
            self.story.tell(f"  export TEMPORAL_ADDRESS={self.stage.server.address}")
            for line in commands(status, self.job_id):
                self.story.tell(line)

    async def _say_yes(self, status: RecoveryStatus, *, approved: bool = True) -> None:
        word = Decision(approved=approved, by="demo", reason="asked by `relight demo`")
        result = await decide(self.stage.client, status, word)
        self.story.tell(result.message, "relight")

    def _first(self, what: str) -> bool:
        new = what not in self.told
        self.told.add(what)
        return new


def fault_time(stage: Stage, injected: datetime | None) -> datetime:
    """When the fault happened: as the demo injected it, or as the training recorded it."""
    return injected or stage.training.fault_at() or datetime.now(UTC)
