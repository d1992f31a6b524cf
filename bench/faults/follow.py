"""After the fault: what relight and Slurm do, until it is over."""

import asyncio
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any, TypeVar

from temporalio.client import WorkflowHandle, WorkflowQueryFailedError
from temporalio.service import RPCError

from bench.faults.history import read_recovery, when_told
from bench.faults.inject import Scene
from bench.faults.record import Recovery
from bench.faults.scenarios import Ending, Scenario
from relight.contracts import Outcome
from relight.contracts.messages import MonitorStatus, RecoveryRecord, RecoveryStatus

T = TypeVar("T")
LOOK = 0.5
QUIET = 15.0
"""Seconds in which nothing happens where nothing should."""
AFTERWARDS = 5.0
"""Seconds that a job is looked at after its recovery."""
NO_MORE = 12.0
"""Seconds after a recovery that did not resume the job in which another one would have begun."""


class Follower:
    """Looks at one job again and again."""

    def __init__(self, scene: Scene, scenario: Scenario) -> None:
        self.scene, self.scenario = scene, scenario
        self.status: MonitorStatus | None = None
        self.records: tuple[RecoveryRecord, ...] = ()
        self.asked_at: datetime | None = None
        self.approved_at: datetime | None = None
        self._monitor: WorkflowHandle[Any, Any] | None = None

    async def look(self) -> None:
        """Asks the monitor. While no worker answers, what is known stays."""
        client = await self.scene.stage.lab.client()
        job = self.scene.training.job_id
        if self._monitor is None:
            query = f"WorkflowType='TrainingJobMonitor' AND RelightJobId='{job}'"
            async for found in client.list_workflows(query):
                self._monitor = client.get_workflow_handle(found.id)
        if self._monitor is None:
            return
        self.status = await answer(self._monitor.query("status", result_type=MonitorStatus), self.status)
        records = self._monitor.query("recoveries", result_type=tuple[RecoveryRecord, ...])
        found_records = await answer(records, self.records)
        self.records = tuple(sorted(found_records or (), key=lambda r: r.started))

    async def watched(self, timeout: float = 30) -> None:
        """Waits until the job has its monitor.

        Raises:
            TimeoutError: it has none.
        """
        end = time.monotonic() + timeout
        while self.status is None:
            if time.monotonic() > end:
                lab = self.scene.stage.lab
                said = " | ".join(p.text().strip()[-200:] for p in (lab.worker, lab.sensor))
                raise TimeoutError(f"relight did not watch the job within {timeout} s: {said}")
            await self.look()
            await asyncio.sleep(0.2)

    async def until_over(self, fault_step: int, skip: int) -> None:
        """Waits until it is over, or the scenario's patience is.

        Args:
            fault_step: the last step before the fault.
            skip: so many recoveries were there before the fault.
        """
        began = time.monotonic()
        over_since: float | None = None
        while time.monotonic() < began + self.scenario.patience:
            await self.look()
            await self._approve()
            records = self.records[skip:]
            waits = self._over(records, fault_step, time.monotonic() - began)
            over_since = None if waits is None else (over_since or time.monotonic())
            if waits is not None and over_since is not None and time.monotonic() >= over_since + waits:
                return
            await asyncio.sleep(LOOK)

    def _over(self, records: tuple[RecoveryRecord, ...], fault_step: int, passed: float) -> float | None:
        """It is over if it stays so for this many seconds; None: it is not."""
        if self.status is not None and self.status.end is not None:
            return 1.0
        trains = self.trains(fault_step)
        if not records:
            calm = self.scenario.ending in {Ending.UNTOUCHED, Ending.NOTICED, Ending.REQUEUED}
            noticed = self.scenario.ending is not Ending.NOTICED or bool(self.status and self.status.noticed)
            return 0.0 if calm and noticed and trains and passed >= QUIET else None
        last = records[-1].outcome
        if last is None or any(r.outcome is None for r in records):
            return None
        if last.outcome is Outcome.RESUMED:
            return AFTERWARDS if trains else None
        return NO_MORE

    def trains(self, fault_step: int) -> bool:
        """The job is past the step that the fault happened at."""
        return self.scene.training.last_step() > fault_step + 2

    async def _approve(self) -> None:
        """As a person who says yes to the first plan that waits."""
        if self.approved_at is not None or self.status is None or self.status.state != "awaiting-approval":
            return
        self.asked_at = self.asked_at or datetime.now(UTC)
        if self.scenario.ending is Ending.APPROVED:
            lab = self.scene.stage.lab
            await asyncio.to_thread(lab.cli, "approve", self.scene.training.job_id, "--yes", "--by", "bench")
            self.approved_at = datetime.now(UTC)

    async def recoveries(self) -> tuple[Recovery, ...]:
        """All recoveries so far, with their steps."""
        client = await self.scene.stage.lab.client()
        found = []
        for record in self.records:
            handle = client.get_workflow_handle(record.recovery_id)
            state = ""
            if record.outcome is None:
                status = await answer(handle.query("status", result_type=RecoveryStatus), None)
                state = status.state if status is not None else "?"
            noted = read_recovery([event async for event in handle.fetch_history_events()])
            told = None
            if noted.parent is not None and record.outcome is not None:
                monitor = client.get_workflow_handle(noted.parent.workflow, run_id=noted.parent.run)
                events = [event async for event in monitor.fetch_history_events()]
                told = when_told(events, noted.parent.event, record.outcome.times.detected)
            found.append(
                Recovery(
                    recovery_id=record.recovery_id,
                    outcome=record.outcome,
                    state=state,
                    told=told,
                    began=noted.began,
                    permit=noted.permit,
                    steps=noted.steps,
                )
            )
        return tuple(found)


async def answer(question: Awaitable[T], otherwise: T | None) -> T | None:
    """What a query says, or what was known before, while nobody answers."""
    try:
        return await asyncio.wait_for(question, 10)
    except (RPCError, WorkflowQueryFailedError, TimeoutError):
        return otherwise
