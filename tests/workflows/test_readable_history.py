"""What the web UI shows of recorded histories: each step says what it does, and what it found can be read."""

import json

import pytest
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from tests.workflows.conftest import HISTORIES
from workflows.details import MAX_SUMMARY

SAY_WHAT_THEY_DO = {
    EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED,
}
MAX_LINES = 300
"""Of a payload, as the web UI lays it out."""


def events(name: str) -> list[HistoryEvent]:
    history = WorkflowHistory.from_json("recorded", (HISTORIES / name).read_text())
    return list(history.events)


def payloads(message: Message) -> list[Payload]:
    """All within it, however deep."""
    if isinstance(message, Payload):
        return [message]
    found = []
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            within = [value[key] for key in value]
        else:
            within = list(value) if field.is_repeated else [value]
        found += [payload for part in within if isinstance(part, Message) for payload in payloads(part)]
    return found


@pytest.mark.parametrize("name", sorted(path.name for path in HISTORIES.glob("*.json")))
def test_a_history_reads_as_a_runbook(name: str) -> None:
    told = 0
    for event in events(name):
        if event.event_type in SAY_WHAT_THEY_DO:
            summary = json.loads(event.user_metadata.summary.data)
            assert 0 < len(summary.encode()) <= MAX_SUMMARY
            told += 1
        for payload in payloads(event):
            assert payload.metadata["encoding"] in {b"json/plain", b"binary/null"}
            assert len(json.dumps(json.loads(payload.data or b"null"), indent=2).splitlines()) <= MAX_LINES
    assert told or name.endswith(".guard.json")
