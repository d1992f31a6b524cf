"""From the history of a `NodeDrain` to records: on which evidence, by which permit, what was done. Pure."""

from collections.abc import Sequence

from temporalio.api.history.v1 import HistoryEvent

from relight.audit import events
from relight.audit.messages import heard
from relight.audit.record import AuditRecord, Who
from relight.audit.steps import Steps
from relight.contracts.node_drain import NodeDrainInput, NodeDrainResult

_LOOK = "look_at_node"


def drain_records(workflow_id: str, history: Sequence[HistoryEvent]) -> tuple[AuditRecord, ...]:
    """Reads one run of a drain. Its looks at the node are left out: they are many, and change nothing.

    Raises:
        UnreadableHistory: it is not the history of a drain that this version can read.
    """
    found: list[AuditRecord] = []
    steps = Steps(workflow_id)

    def add(event: HistoryEvent, who: Who, what: str, text: str, **more: object) -> None:
        fields = {"at": events.time_of(event), "who": who, "what": what, "text": text, **more}
        found.append(
            AuditRecord.model_validate({**fields, "workflow_id": workflow_id, "event_id": event.event_id})
        )

    for event in history:
        found += [record for record in steps.read(event) if record.step != _LOOK]
        match events.kind(event):
            case "WORKFLOW_EXECUTION_STARTED":
                given = event.workflow_execution_started_event_attributes.input.payloads
                start = events.payload(given, NodeDrainInput, f"the input of {workflow_id}")
                if start.drained_at is None:
                    text = f"to drain {start.node} for everyone, {start.cause.value}: {start.because}"
                    add(event, Who.RELIGHT, "drain", text, evidence=start.evidence)
            case "WORKFLOW_EXECUTION_SIGNALED":
                signal = event.workflow_execution_signaled_event_attributes
                told = heard(signal.signal_name, signal.input.payloads)
                add(event, told.who, told.what, told.text, name=told.name)
            case "WORKFLOW_EXECUTION_COMPLETED":
                payloads = event.workflow_execution_completed_event_attributes.result.payloads
                result = events.loose(payloads, NodeDrainResult)
                if result is not None:
                    add(event, Who.RELIGHT, "ended", f"{result.end.value}: {result.text}")
    return tuple(found)
