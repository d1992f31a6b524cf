"""Lets the workflow decide again from a recorded history, and compares all that it decides with what it did.

Temporal's own replay compares kinds of commands. This also compares their contents: the plans that people
were asked about, the input of every step, and the outcome. So a changed answer in a history, or changed code,
shows. Fields that a later version added are not compared: they were not recorded.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from temporalio import workflow
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import (
    ExecuteWorkflowInput,
    Interceptor,
    Replayer,
    StartActivityInput,
    UnsandboxedWorkflowRunner,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

from relight.audit import events
from relight.audit.messages import plan_asked
from relight.cli.shapes import VerifyCheck, VerifyView
from relight.contracts import RecoveryOutcome
from relight.contracts.messages import RecoveryInput
from relight.diagnosis.verdict import diagnose
from workflows import WORKFLOWS


class _Decided:
    """What the workflow decided this time, in order."""

    def __init__(self) -> None:
        self.plans: list[str] = []
        self.steps: list[tuple[str, Any]] = []
        self.outcome: RecoveryOutcome | None = None


async def verify_history(history: WorkflowHistory) -> VerifyView:
    """Decides again and compares.

    Raises:
        UnreadableHistory: it is not the history of a recovery.
    """
    recorded = list(history.events)
    if not recorded:
        raise events.UnreadableHistory("it has no events")
    first = recorded[0].workflow_execution_started_event_attributes
    start = events.payload(first.input.payloads, RecoveryInput, f"the input of {history.workflow_id}")
    history = WorkflowHistory(first.workflow_id or history.workflow_id, history.events)
    decided = _Decided()
    replayer = Replayer(
        workflows=list(WORKFLOWS),
        data_converter=pydantic_data_converter,
        interceptors=[_Watch(decided)],
        workflow_runner=UnsandboxedWorkflowRunner(),  # what is observed has to get out
    )
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    checks = [
        *_diagnosis(start),
        *_plans(recorded, decided),
        *_steps(recorded, decided),
        *_outcome(recorded, decided),
    ]
    if result.replay_failure is not None:
        failure = VerifyCheck(
            what="replay", recorded="as recorded", now=str(result.replay_failure), same=False
        )
        checks.append(failure)
    else:
        checks.append(VerifyCheck(what="replay", recorded="Temporal's replay agrees", now="", same=True))
    return VerifyView(
        recovery_id=history.workflow_id, checks=tuple(checks), same=all(check.same for check in checks)
    )


def _diagnosis(start: RecoveryInput) -> Iterator[VerifyCheck]:
    if not start.anomalies:
        return
    again = diagnose(start.anomalies, start.job)
    if again.progress is None:  # the monitor fills it in, from earlier attempts
        again = again.model_copy(update={"progress": start.diagnosis.progress})
    told = [
        f"{one.symptom.value}, cause {one.cause.value}: {one.explanation}" for one in (start.diagnosis, again)
    ]
    same = again == start.diagnosis
    yield VerifyCheck(what="diagnosis", recorded=told[0], now=told[1], same=same)


def _plans(recorded: Sequence[HistoryEvent], decided: _Decided) -> Iterator[VerifyCheck]:
    """Every plan that history names was made again, in that order."""
    made = iter(decided.plans)
    for event in recorded:
        digest = plan_asked(events.summary(event)) if events.kind(event) == "TIMER_STARTED" else ""
        if digest:
            same = digest in made  # goes on where the one before was found
            now = digest if same else ", ".join(decided.plans) or "no plan was shown"
            yield VerifyCheck(what="plan", recorded=digest, now=now, same=same)


def _steps(recorded: Sequence[HistoryEvent], decided: _Decided) -> Iterator[VerifyCheck]:
    """Every step was called with the same input."""
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in recorded
        if events.kind(event) == "ACTIVITY_TASK_SCHEDULED"
    ]
    for number, event in enumerate(scheduled):
        name = event.activity_type.name
        called, given = decided.steps[number] if number < len(decided.steps) else ("no step", None)
        differs = differences(events.loose(event.input.payloads, object), events.as_json(given))
        same = called == name and not differs
        now = called if called != name else f"{name} with another {', '.join(differs)}"
        yield VerifyCheck(what=f"step {number + 1}", recorded=name, now=name if same else now, same=same)


def _outcome(recorded: Sequence[HistoryEvent], decided: _Decided) -> Iterator[VerifyCheck]:
    last = recorded[-1]
    if events.kind(last) != "WORKFLOW_EXECUTION_COMPLETED":
        return
    result = last.workflow_execution_completed_event_attributes.result.payloads
    before = events.payload(result, RecoveryOutcome, "the result")
    now = decided.outcome
    differs = differences(events.loose(result, object), events.as_json(now))
    text = "none" if now is None else f"{now.outcome.value}, {now.reason}"
    yield VerifyCheck(
        what="outcome",
        recorded=f"{before.outcome.value}, {before.reason}",
        now=f"{text}; another {', '.join(differs)}" if differs else text,
        same=not differs,
    )


def differences(recorded: Any, now: Any, path: str = "") -> list[str]:
    """Where two JSON values are not the same, as dotted names; of objects only the recorded fields count."""
    if isinstance(recorded, dict) and isinstance(now, dict):
        return [
            place
            for key, value in recorded.items()
            for place in differences(value, now.get(key), f"{path}.{key}".lstrip("."))
        ]
    if isinstance(recorded, list) and isinstance(now, list) and len(recorded) == len(now):
        return [
            place
            for number, pair in enumerate(zip(recorded, now, strict=True))
            for place in differences(*pair, f"{path}[{number}]")
        ]
    return [] if recorded == now else [path or "value"]


class _Watch(Interceptor):
    """Notes what the workflow decides."""

    def __init__(self, decided: _Decided) -> None:
        self._decided = decided

    def workflow_interceptor_class(
        self, input: WorkflowInterceptorClassInput
    ) -> type[WorkflowInboundInterceptor] | None:
        """Around the one workflow that is replayed."""
        decided = self._decided

        class Inbound(WorkflowInboundInterceptor):
            def init(self, outbound: WorkflowOutboundInterceptor) -> None:
                super().init(_Steps(outbound, decided))

            async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
                # A condition is looked at after every turn of the workflow, and this one gives no command.
                looking = asyncio.create_task(workflow.wait_condition(lambda: _look(decided)))
                try:
                    result = await super().execute_workflow(input)
                finally:
                    looking.cancel()
                decided.outcome = result if isinstance(result, RecoveryOutcome) else None
                return result

        return Inbound


class _Steps(WorkflowOutboundInterceptor):
    def __init__(self, next: WorkflowOutboundInterceptor, decided: _Decided) -> None:
        super().__init__(next)
        self._decided = decided

    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        self._decided.steps.append((input.activity, input.args[0] if input.args else None))
        return super().start_activity(input)


def _look(decided: _Decided) -> bool:
    """Notes the plan that waits for a person now. Never true: it only looks."""
    status = workflow.instance().status()
    asked = status.plan_digest if status.approval_deadline is not None else ""
    if asked and decided.plans[-1:] != [asked]:
        decided.plans.append(asked)
    return False
