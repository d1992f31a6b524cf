"""What Temporal's histories tell of a recovery: its beginning, its permit, and each step. Pure."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from bench.faults.record import Span, StepTime

ENDS: dict[int, str] = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED: "activity_task_completed_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: "activity_task_failed_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: "activity_task_timed_out_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED: "activity_task_canceled_event_attributes",
}


@dataclass(frozen=True)
class Parent:
    """The workflow that started another one."""

    workflow: str
    run: str
    event: int
    """With which it asked for the other one."""


@dataclass(frozen=True)
class Noted:
    """What the history of a recovery tells."""

    began: datetime
    parent: Parent | None
    permit: Span | None
    steps: tuple[StepTime, ...]
    """In the order of their ends."""


def read_recovery(events: Iterable[HistoryEvent]) -> Noted:
    """Reads the history of a recovery from its first event on.

    Raises:
        ValueError: it has no event.
    """
    began: datetime | None = None
    parent: Parent | None = None
    asked: datetime | None = None
    permit: Span | None = None
    scheduled: dict[int, tuple[str, datetime]] = {}
    started: dict[int, tuple[datetime, int]] = {}
    steps = []
    for event in events:
        at = event.event_time.ToDatetime(UTC)
        kind = event.event_type
        if kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            began, parent = at, _parent(event)
        elif kind == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            name = event.activity_task_scheduled_event_attributes.activity_type.name
            scheduled[event.event_id] = (name, at)
        elif kind == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            start = event.activity_task_started_event_attributes
            started[start.scheduled_event_id] = (at, start.attempt)
        elif kind in ENDS:
            which = getattr(event, ENDS[kind]).scheduled_event_id
            name, since = scheduled[which]
            start_at, tries = started.get(which, (None, 0))
            steps.append(StepTime(step=name, scheduled=since, started=start_at, tries=tries, ended=at))
        elif kind == EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
            sent = event.signal_external_workflow_execution_initiated_event_attributes
            if sent.signal_name == "request_permit":
                asked = asked or at
        elif kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED and asked and permit is None:
            permit = Span(began=asked, ended=at) if _is_yes(event) else None
    if began is None:
        raise ValueError("the history does not begin with the start of a workflow")
    return Noted(began, parent, permit, tuple(steps))


def when_told(events: Iterable[HistoryEvent], asked: int, detected: datetime | None) -> datetime | None:
    """When a monitor got the sensor's word of a fault; None where its own look found it.

    Args:
        events: the monitor's history.
        asked: the event with which it asked for the recovery.
        detected: when the sensor noticed the fault.
    """
    for event in events:
        if event.event_id >= asked or detected is None:
            return None
        at = event.event_time.ToDatetime(UTC)
        signal = event.workflow_execution_signaled_event_attributes  # empty in events of other types
        if signal.signal_name == "report_anomaly" and at >= detected:
            return at
    return None


def _parent(event: HistoryEvent) -> Parent | None:
    start = event.workflow_execution_started_event_attributes
    parent = start.parent_workflow_execution
    if not parent.workflow_id:
        return None
    return Parent(parent.workflow_id, parent.run_id, start.parent_initiated_event_id)


def _is_yes(event: HistoryEvent) -> bool:
    """The guard's answer that changes may be made now. The suite's payloads are not encrypted."""
    signal = event.workflow_execution_signaled_event_attributes
    if signal.signal_name != "permit_decided":
        return False
    answer = json.loads(signal.input.payloads[0].data)
    return bool(answer["granted"]) and not answer.get("paused", False)
