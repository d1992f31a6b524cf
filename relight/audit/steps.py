"""From the events of activities to records: answers, commands given to the scheduler, failures. Pure."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from relight.audit import events
from relight.audit.record import AuditRecord, Who
from relight.contracts.commands import CommandGiven, CommandsGiven
from relight.contracts.node_drain import NodeCheck, NodeLook
from relight.contracts.steps import (
    ConfirmResult,
    DrainResult,
    HoldResult,
    IsolateResult,
    LocateResult,
    Observation,
    ResubmitResult,
    RunningResult,
    SteerResult,
    VerifyResult,
)

_RESULTS: dict[str, type[Any]] = {
    "confirm_fault": ConfirmResult,
    "isolate_nodes": IsolateResult,
    "locate_checkpoint": LocateResult,
    "drain_job": DrainResult,
    "wait_nodes_free": str,
    "steer_checkpoint": SteerResult,
    "resubmit": ResubmitResult,
    "verify_running": RunningResult,
    "verify_resume": VerifyResult,
    "hold_job": HoldResult,
    "drain_node": NodeLook,
    "look_at_node": NodeLook,
    "check_node": NodeCheck,
    "release_node": NodeLook,
}
"""What each step returns; of another one only its summary is shown."""
CHANGING = frozenset({"drain_job", "resubmit", "hold_job", "drain_node", "release_node"})
"""Steps that give changing commands."""
_ANSWERS = {True: "accepted", False: "refused", None: "no answer"}
_FAILED: dict[str, Callable[[HistoryEvent], Any]] = {
    "ACTIVITY_TASK_FAILED": lambda event: event.activity_task_failed_event_attributes,
    "ACTIVITY_TASK_TIMED_OUT": lambda event: event.activity_task_timed_out_event_attributes,
    "ACTIVITY_TASK_CANCELED": lambda event: event.activity_task_canceled_event_attributes,
}


class Steps:
    """Goes through the events of one workflow; later events name earlier ones by their ids."""

    def __init__(self, workflow_id: str) -> None:
        self._id = workflow_id
        self._scheduled: dict[int, HistoryEvent] = {}
        self._started: dict[int, HistoryEvent] = {}
        self.gpus: int | None = None
        """Of the job, once the scheduler told of it."""

    def read(self, event: HistoryEvent) -> list[AuditRecord]:
        """What an event tells; nothing where it is about no step."""
        match kind := events.kind(event):
            case "ACTIVITY_TASK_SCHEDULED":
                self._scheduled[event.event_id] = event
            case "ACTIVITY_TASK_STARTED":
                self._started[event.activity_task_started_event_attributes.scheduled_event_id] = event
            case "ACTIVITY_TASK_COMPLETED":
                return self._did(event)
            case _ if kind in _FAILED:
                return self._failed(event, kind)
        return []

    def _did(self, event: HistoryEvent) -> list[AuditRecord]:
        done = event.activity_task_completed_event_attributes
        step, tries = self._step(done.scheduled_event_id), self._tries(done.scheduled_event_id)
        result: Any = events.loose(done.result.payloads, _RESULTS.get(step, object))
        if isinstance(result, ConfirmResult):
            self.gpus = result.job_info.gpus if result.job_info is not None else self.gpus
            answers = [self._answer(event, observation) for observation in result.observations]
            text = f"{result.verdict}: {result.summary}{tries}"
            return [*answers, self._record(event, Who.RELIGHT, "confirmed", text, step=step)]
        given = self._commands(event, step, getattr(result, "commands", ()))
        text = self._told(step, result, done.scheduled_event_id) + tries
        return [*given, self._record(event, Who.RELIGHT, "did", text, step=step)]

    def _told(self, step: str, result: Any, scheduled: int) -> str:
        said = result if isinstance(result, str) else getattr(result, "summary", "")
        if isinstance(result, VerifyResult):
            said = f"{result.verdict}: {result.summary}"
        changed = getattr(result, "changed", ())
        if changed:
            said = f"{said} ({'; '.join(changed)})"
        return said or events.summary(self._scheduled[scheduled]) or step

    def _answer(self, event: HistoryEvent, observation: Observation) -> AuditRecord:
        who = Who.SLURM if observation.source == "scheduler" else Who.RELIGHT
        return self._record(
            event,
            who,
            "answered",
            f"{observation.verdict}: {observation.text}",
            name=observation.source,
            step="confirm_fault",
            evidence=observation.evidence,
        )

    def _failed(self, event: HistoryEvent, kind: str) -> list[AuditRecord]:
        told = _FAILED[kind](event)
        step = self._step(told.scheduled_event_id)
        failure: Failure | None = None if kind == "ACTIVITY_TASK_CANCELED" else told.failure
        given = []
        for detail in events.details(failure) if failure is not None else ():
            given += self._commands(event, step, _given(detail))
        text = events.innermost(failure).message if failure is not None else "cancelled"
        if kind == "ACTIVITY_TASK_TIMED_OUT" and step in CHANGING:
            text += " (what this try did is in the worker's log: no answer of it came back)"
        return [*given, self._record(event, Who.RELIGHT, "failed", text, step=step)]

    def _commands(
        self, event: HistoryEvent, step: str, commands: Sequence[CommandGiven]
    ) -> list[AuditRecord]:
        records = []
        for command in commands:
            told = " ".join((command.operation, *command.arguments))
            text = f"{told}: {command.answer or _ANSWERS[command.accepted]}"
            records.append(
                self._record(event, Who.RELIGHT, "command", text, at=command.at, step=step, command=command)
            )
        return records

    def _record(self, event: HistoryEvent, who: Who, what: str, text: str, **more: Any) -> AuditRecord:
        fields = {"at": events.time_of(event), **more}
        return AuditRecord(
            **fields, who=who, what=what, text=text, workflow_id=self._id, event_id=event.event_id
        )

    def _step(self, scheduled: int) -> str:
        event = self._scheduled.get(scheduled)
        return event.activity_task_scheduled_event_attributes.activity_type.name if event else ""

    def _tries(self, scheduled: int) -> str:
        """Temporal keeps only the last try of a look that it repeated; the worker's log has all."""
        started = self._started.get(scheduled)
        tries = started.activity_task_started_event_attributes.attempt if started is not None else 1
        return f" (look {tries})" if tries > 1 else ""


def _given(detail: Any) -> tuple[CommandGiven, ...]:
    """The commands in a detail of a step's error, if it is about commands."""
    if not isinstance(detail, dict) or "commands" not in detail:
        return ()
    try:
        return CommandsGiven.model_validate(detail).commands
    except ValidationError:
        return ()
