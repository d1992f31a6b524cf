"""What sensors tell monitors and the guard: one signal, with the key by which it is never told twice."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from relight.contracts import Anomaly
from relight.contracts.guard import NodeReport
from relight.contracts.messages import AttemptEvent, AttemptReport

REPORT_ANOMALY = "report_anomaly"
REPORT_ATTEMPT = "report_attempt"
REPORT_NODE = "report_node"


class Message(BaseModel):
    """A signal, as it waits in the outbox."""

    model_config = ConfigDict(frozen=True)

    signal: Literal["report_anomaly", "report_attempt", "report_node"]
    key: str | None
    """The same thing seen again has the same key, and is not sent again; None: never a repeat."""
    payload: str
    """The contract as JSON."""
    droppable: bool = False
    """May be given up first when the outbox is full: a later one says more."""


def anomaly_message(anomaly: Anomaly) -> Message:
    """The signal that reports an anomaly."""
    return Message(
        signal=REPORT_ANOMALY, key=f"anomaly:{anomaly.anomaly_id}", payload=anomaly.model_dump_json()
    )


def attempt_message(report: AttemptReport) -> Message:
    """The signal that reports how an attempt goes. Progress is superseded by later progress."""
    progress = report.event is AttemptEvent.PROGRESS
    attempt = report.attempt
    key = f"{report.event.value}:{attempt.job_id}:{attempt.restart_count}:{attempt.submit_time.isoformat()}"
    return Message(
        signal=REPORT_ATTEMPT,
        key=None if progress else f"{key}:{report.state.value if report.state else ''}",
        payload=report.model_dump_json(),
        droppable=progress,
    )


def node_message(report: NodeReport, key: str) -> Message:
    """The signal that tells the cluster's guard of a faulty node; `key` names what was seen."""
    return Message(signal=REPORT_NODE, key=f"node:{key}:{report.job}", payload=report.model_dump_json())
