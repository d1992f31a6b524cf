"""From the history of a `TrainingJobMonitor` to records: people's words, reports, recoveries begun. Pure."""

from collections.abc import Sequence

from temporalio.api.history.v1 import HistoryEvent

from relight.audit import events
from relight.audit.messages import heard
from relight.audit.record import AuditRecord, Who
from relight.contracts import Anomaly
from relight.contracts.messages import ModeChange, MonitorInput, MonitorResult
from relight.contracts.steps import PollResult


def monitor_records(workflow_id: str, history: Sequence[HistoryEvent]) -> tuple[AuditRecord, ...]:
    """Reads one run of a monitor. Progress reports are left out: they are many, and decide nothing."""
    found: list[AuditRecord] = []
    scheduled: dict[int, str] = {}

    def add(event: HistoryEvent, who: Who, what: str, text: str, **more: object) -> None:
        record = {"at": events.time_of(event), "who": who, "what": what, "text": text}
        named = {"workflow_id": workflow_id, "event_id": event.event_id}
        found.append(AuditRecord.model_validate({**record, **named, **more}))

    for event in history:
        match events.kind(event):
            case "WORKFLOW_EXECUTION_STARTED":
                given = event.workflow_execution_started_event_attributes
                start = events.payload(given.input.payloads, MonitorInput, f"the input of {workflow_id}")
                if not start.state.renewals:
                    job = start.job
                    who = Who.SENSOR if job.opted_in else Who.PERSON
                    add(event, who, "watch", f"job {job.attempt.label}, mode {job.mode.value}")
            case "WORKFLOW_EXECUTION_SIGNALED":
                signal = event.workflow_execution_signaled_event_attributes
                payloads = signal.input.payloads
                if signal.signal_name == "report_anomaly":
                    if (seen := events.loose(payloads, Anomaly)) is not None:
                        text = f"{seen.symptom.value}, cause {seen.cause.value}: {seen.says}"
                        add(event, Who.SENSOR, "reported", text, name=seen.detector, evidence=seen.evidence)
                    continue
                told = heard(signal.signal_name, payloads)
                if signal.signal_name != "report_attempt" or "progress" not in told.text:
                    add(event, told.who, told.what, told.text, name=told.name, plan_digest=told.plan_digest)
            case "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
                request = event.workflow_execution_update_accepted_event_attributes.accepted_request
                change = events.loose(request.input.args.payloads, ModeChange)
                if change is not None:
                    add(
                        event, Who.PERSON, "set mode", f"{change.mode.value}: {change.reason}", name=change.by
                    )
            case "ACTIVITY_TASK_SCHEDULED":
                activity = event.activity_task_scheduled_event_attributes.activity_type.name
                scheduled[event.event_id] = activity
            case "ACTIVITY_TASK_COMPLETED":
                done = event.activity_task_completed_event_attributes
                if scheduled.get(done.scheduled_event_id) == "look_at_job":
                    look = events.loose(done.result.payloads, PollResult)
                    if look is not None and look.anomaly is not None:
                        text = f"by its own look: {look.anomaly.symptom.value}, {look.text}"
                        evidence = look.anomaly.evidence
                        add(event, Who.RELIGHT, "missed by sensors", text, evidence=evidence)
            case "START_CHILD_WORKFLOW_EXECUTION_INITIATED":
                child = event.start_child_workflow_execution_initiated_event_attributes.workflow_id
                add(event, Who.RELIGHT, "recovery", f"{child} begins")
            case "WORKFLOW_EXECUTION_COMPLETED":
                payloads = event.workflow_execution_completed_event_attributes.result.payloads
                result = events.loose(payloads, MonitorResult)
                if result is not None:
                    add(event, Who.RELIGHT, "ended", f"{result.end.value}: {result.detail}")
    return tuple(found)
