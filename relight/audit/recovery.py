"""From the history of a `RecoveryWorkflow` to its audit. Pure."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from temporalio.api.history.v1 import HistoryEvent

from relight.audit import events
from relight.audit.messages import heard, plan_asked
from relight.audit.record import AuditRecord, RecoveryAudit, Who
from relight.audit.steps import Steps
from relight.contracts import Anomaly, RecoveryOutcome
from relight.contracts.commands import CommandGiven
from relight.contracts.messages import AttemptReport, Decision, DecisionResult, RecoveryInput
from relight.wording import cause_of

_CLOSED = {
    "WORKFLOW_EXECUTION_FAILED": "the recovery failed",
    "WORKFLOW_EXECUTION_TIMED_OUT": "Temporal ended the recovery: it took too long",
    "WORKFLOW_EXECUTION_CANCELED": "the recovery was cancelled",
    "WORKFLOW_EXECUTION_TERMINATED": "the recovery was terminated",
}


def recovery_audit(
    workflow_id: str,
    history: Sequence[HistoryEvent],
    run_id: str = "",
    outcome: RecoveryOutcome | None = None,
    ended: datetime | None = None,
) -> RecoveryAudit:
    """Reads a recovery's history, open or ended.

    Args:
        workflow_id: of the recovery.
        history: its events, from the first.
        run_id: of the run.
        outcome: how it is about to end, where history does not hold its result yet.
        ended: when that is.

    Raises:
        UnreadableHistory: it is not the history of a recovery that this version can read.
    """
    if not history or events.kind(history[0]) != "WORKFLOW_EXECUTION_STARTED":
        raise events.UnreadableHistory(f"{workflow_id} has no history")
    first = history[0].workflow_execution_started_event_attributes
    start = events.payload(first.input.payloads, RecoveryInput, f"the input of {workflow_id}")
    reader = _Reader(workflow_id)
    for event in history:
        reader.read(event, start)
    if outcome is not None and reader.outcome is None:
        reader.end(outcome, ended or events.time_of(history[-1]), history[-1].event_id + 1)
    return RecoveryAudit(
        recovery_id=workflow_id,
        run_id=run_id or first.original_execution_run_id,
        monitor_id=start.monitor_id,
        job=start.job,
        diagnosis=start.diagnosis,
        detectors=tuple(dict.fromkeys(a.detector for a in start.anomalies if a.detector)),
        started=events.time_of(history[0]),
        ended=reader.ended,
        asked=next((record.at for record in reader.records if record.what == "asked"), None),
        mode=start.job.mode,
        gpus=reader.gpus,
        reports=tuple(reader.reports),
        drains=tuple(reader.drains),
        outcome=reader.outcome,
        records=tuple(reader.records),
    )


class _Reader:
    """Goes through the events once; later events name earlier ones by their ids."""

    def __init__(self, workflow_id: str) -> None:
        self._id = workflow_id
        self._steps = Steps(workflow_id)
        self._timers: dict[int, str] = {}
        self.records: list[AuditRecord] = []
        self.reports: list[AttemptReport] = []
        self.drains: list[str] = []
        self.outcome: RecoveryOutcome | None = None
        self.ended: datetime | None = None

    def read(self, event: HistoryEvent, start: RecoveryInput) -> None:
        """Takes in one event."""
        kind = events.kind(event)
        self.records += self._steps.read(event)
        match kind:
            case "WORKFLOW_EXECUTION_STARTED":
                self._begin(event, start)
            case "WORKFLOW_EXECUTION_SIGNALED":
                self._hear(event)
            case "WORKFLOW_EXECUTION_UPDATE_ACCEPTED" | "WORKFLOW_EXECUTION_UPDATE_COMPLETED":
                self._decide(event, kind)
            case "START_CHILD_WORKFLOW_EXECUTION_INITIATED":
                child = event.start_child_workflow_execution_initiated_event_attributes.workflow_id
                self.drains.append(child)
                self._add(event, Who.RELIGHT, "drain", f"{child} begins")
            case "TIMER_STARTED":
                self._ask(event)
            case "TIMER_FIRED":
                self._time_is_up(event)
            case "WORKFLOW_EXECUTION_CANCEL_REQUESTED":
                self._add(event, Who.PERSON, "cancelled", "asked Temporal to cancel the recovery")
            case "WORKFLOW_EXECUTION_COMPLETED":
                found = event.workflow_execution_completed_event_attributes.result.payloads
                outcome = events.payload(found, RecoveryOutcome, f"the result of {self._id}")
                self.end(outcome, events.time_of(event), event.event_id)
            case _ if kind in _CLOSED:
                self.ended = events.time_of(event)
                self._add(event, Who.TEMPORAL, "ended", _CLOSED[kind])

    @property
    def gpus(self) -> int | None:
        """Of the job, where the scheduler told."""
        return self._steps.gpus

    def end(self, outcome: RecoveryOutcome, at: datetime, event_id: int) -> None:
        """The recovery's own word on how it ended."""
        self.outcome, self.ended = outcome, at
        self.records.append(
            AuditRecord(
                at=at,
                who=Who.RELIGHT,
                what="ended",
                text=f"{outcome.outcome.value}: {outcome.reason}",
                workflow_id=self._id,
                event_id=event_id,
            )
        )

    def _add(self, event: HistoryEvent, who: Who, what: str, text: str = "", **more: Any) -> None:
        self.records.append(
            AuditRecord(
                **{"at": events.time_of(event)} | more,
                who=who,
                what=what,
                text=text,
                workflow_id=self._id,
                event_id=event.event_id,
            )
        )

    def _begin(self, event: HistoryEvent, start: RecoveryInput) -> None:
        for anomaly in start.anomalies:
            self._report(event, anomaly)
        found = start.diagnosis
        text = f"{found.symptom.value}, {cause_of(found.cause, found.confidence)}"
        if found.explanation:
            text += f": {found.explanation}"
        self._add(event, Who.RELIGHT, "diagnosed", text, evidence=found.evidence)

    def _report(self, event: HistoryEvent, anomaly: Anomaly, **more: Any) -> None:
        text = f"{anomaly.symptom.value}, cause {anomaly.cause.value} ({anomaly.role.value})"
        if anomaly.says:
            text += f": {anomaly.says}"
        told: dict[str, Any] = {"name": anomaly.detector, "evidence": anomaly.evidence, **more}
        self._add(event, Who.SENSOR, "reported", text, **{"at": anomaly.detected_at, **told})

    def _hear(self, event: HistoryEvent) -> None:
        given = event.workflow_execution_signaled_event_attributes
        if given.signal_name == "report_anomaly":
            if (anomaly := events.loose(given.input.payloads, Anomaly)) is not None:
                self._report(event, anomaly, at=events.time_of(event))
            return
        if given.signal_name == "report_attempt":
            report = events.loose(given.input.payloads, AttemptReport)
            self.reports += [report] if report is not None else []
        told = heard(given.signal_name, given.input.payloads)
        self._add(event, told.who, told.what, told.text, name=told.name, plan_digest=told.plan_digest)

    def _decide(self, event: HistoryEvent, kind: str) -> None:
        if kind == "WORKFLOW_EXECUTION_UPDATE_ACCEPTED":
            request = event.workflow_execution_update_accepted_event_attributes.accepted_request
            decision = events.loose(request.input.args.payloads, Decision)
            if decision is not None:
                word = "approved" if decision.approved else "rejected"
                self._add(
                    event, Who.PERSON, word, decision.reason,
                    name=decision.by, plan_digest=decision.plan_digest,
                )  # fmt: skip
            return
        answered = event.workflow_execution_update_completed_event_attributes.outcome.success.payloads
        result = events.loose(answered, DecisionResult)
        if result is not None:
            self._add(event, Who.RELIGHT, "took" if result.accepted else "refused", result.message)

    def _ask(self, event: HistoryEvent) -> None:
        digest = plan_asked(events.summary(event))
        if digest:
            self._timers[event.event_id] = digest
            self._add(event, Who.RELIGHT, "asked", f"whether to carry out plan {digest}", plan_digest=digest)

    def _time_is_up(self, event: HistoryEvent) -> None:
        digest = self._timers.get(event.timer_fired_event_attributes.started_event_id)
        if digest:
            self._add(
                event,
                Who.RELIGHT,
                "expired",
                f"nobody had decided on plan {digest} by then",
                plan_digest=digest,
            )


def commands_of(audit: RecoveryAudit) -> Iterator[CommandGiven]:
    """The changing commands of a recovery, in the order in which they were given."""
    return (record.command for record in audit.records if record.command is not None)
