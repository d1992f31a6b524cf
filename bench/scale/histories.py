"""What a monitor's history is made of: events and bytes for each signal and for each look. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

DAY = 86_400.0
MONTH = 30 * DAY

_TASK = {
    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
    EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
}
_ACTIONS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
    EventType.EVENT_TYPE_TIMER_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED,
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED,
}
"""What Temporal Cloud counts as an action (https://docs.temporal.io/cloud/actions) and a history shows. A
signal is counted where it arrives, whoever sent it; heartbeats and queries do not show, and a monitor has
none."""


@dataclass(frozen=True)
class Share:
    """The part of a history that belongs to one kind of thing."""

    times: int = 0
    """How often the thing happened."""
    events: int = 0
    bytes: int = 0
    actions: int = 0

    def __add__(self, other: "Share") -> "Share":
        return Share(
            self.times + other.times,
            self.events + other.events,
            self.bytes + other.bytes,
            self.actions + other.actions,
        )


@dataclass(frozen=True)
class Parts:
    """A history by what caused its events."""

    signals: Share = Share()
    """Messages of sensors, with the workflow tasks that took them in."""
    looks: Share = Share()
    """The monitor's own looks at the scheduler: timers, activities and their workflow tasks."""
    start: Share = Share()
    """The start of the run."""

    def __add__(self, other: "Parts") -> "Parts":
        return Parts(self.signals + other.signals, self.looks + other.looks, self.start + other.start)


def parts(events: Iterable[HistoryEvent]) -> Parts:
    """Divides a history: a workflow task belongs to what was there first when it was scheduled."""
    found = {"signals": Share(), "looks": Share(), "start": Share()}
    waits = "start"
    for event in events:
        kind = event.event_type
        times = 0
        if kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            waits, times, to = "signals", 1, "signals"
        elif kind == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            to, times = "start", 1
        elif kind in _TASK:
            to = waits
        elif kind == EventType.EVENT_TYPE_TIMER_FIRED:
            waits, times, to = "looks", 1, "looks"
        elif kind == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            waits, to = "looks", "looks"
        else:
            to = "looks"
        found[to] += Share(times, 1, event.ByteSize(), int(kind in _ACTIONS))
    return Parts(**found)


@dataclass(frozen=True)
class Rates:
    """How often things happen to one watched job that trains undisturbed."""

    signals_per_day: float
    looks_per_day: float


def forecast(found: Parts, rates: Rates, *, renew_after: int) -> dict[str, float]:
    """What one job costs Temporal in a day and in a month of 30 days, extrapolated from measured events.

    Args:
        found: measured; each kind at least once.
        rates: how often each thing happens.
        renew_after: events after which a monitor continues as new.

    Raises:
        ValueError: there was no signal or no look, so nothing can be said.
    """
    if not found.signals.times or not found.looks.times:
        raise ValueError(
            "the measured time is too short: no signal, or no look of the monitor's own, was seen"
        )
    kinds = ((found.signals, rates.signals_per_day), (found.looks, rates.looks_per_day))
    events = sum(per_day * part.events / part.times for part, per_day in kinds)
    size = sum(per_day * part.bytes / part.times for part, per_day in kinds)
    actions = sum(per_day * part.actions / part.times for part, per_day in kinds)
    renewals = events / renew_after
    return {
        "events_per_signal": found.signals.events / found.signals.times,
        "events_per_look": found.looks.events / found.looks.times,
        "bytes_per_signal": found.signals.bytes / found.signals.times,
        "bytes_per_look": found.looks.bytes / found.looks.times,
        "events_per_day": events,
        "actions_per_day": actions + renewals,
        "renewals_per_day": renewals,
        "history_bytes_per_month": size * MONTH / DAY,
        "longest_history_bytes": size / events * renew_after,
    }
