"""Many jobs that fail alike at once are one incident: a file system or a fabric, and no node's fault.

Pure. Restarting those jobs would only make them fail again, and draining their nodes would cure nothing. So
while an incident lasts, recoveries from this cause wait and no node is drained. It ends when no new fault was
seen for a while, or when a person says so; what was seen before that does not count any more.
"""

from datetime import datetime

from relight.contracts.cause import Cause
from relight.contracts.guard import FaultReport, GuardLimits, GuardState, Incident

SHARED = frozenset({Cause.STORAGE, Cause.NETWORK_FABRIC})
"""Causes that jobs share: what fails is beside the nodes, not in them."""
MAX_FAULTS = 1000
"""Jobs that are kept in mind; the ones reported longest ago are forgotten first."""
MAX_NAMED = 20
"""Jobs that an incident names."""


def note(limits: GuardLimits, state: GuardState, report: FaultReport, now: datetime) -> None:
    """Takes a job's fault into account; `tick` decides what it means. A repeat changes nothing."""
    at = min(report.at, now)  # a clock that is ahead must not make a fault count for longer
    settled = state.incidents_settled_at
    if report.cause not in SHARED or not limits.incident_jobs or at <= now - limits.breaker_window:
        return
    if settled is not None and at <= settled:
        state.counts.stale += 1
        return
    key = f"{report.cause.value}:{report.job}"
    before = state.faults.pop(key, None)
    latest = report.model_copy(update={"at": at if before is None else max(at, before.at)})
    state.faults[key] = latest
    while len(state.faults) > MAX_FAULTS:
        del state.faults[next(iter(state.faults))]


def tick(limits: GuardLimits, state: GuardState, now: datetime) -> tuple[Incident, ...]:
    """Lets time pass: incidents begin, grow and end.

    Returns:
        Those that began now.
    """
    for cause, incident in list(state.incidents.items()):
        if incident.last_fault + limits.breaker_cool_down <= now:
            del state.incidents[cause]  # and its faults, or it would begin again at once
            for key in [key for key, fault in state.faults.items() if fault.cause.value == cause]:
                del state.faults[key]
    old = now - limits.breaker_window
    for key in [key for key, fault in state.faults.items() if fault.at <= old]:
        del state.faults[key]
    began = []
    for cause in sorted(SHARED):
        found = [fault for fault in state.faults.values() if fault.cause is cause]
        running = state.incidents.get(cause.value)
        if running is not None:
            state.incidents[cause.value] = _grown(running, found)
        elif limits.incident_jobs and len(found) >= limits.incident_jobs:
            state.incidents[cause.value] = _begun(limits, cause, found, now)
            began.append(state.incidents[cause.value])
    return tuple(began)


def reason(state: GuardState, cause: Cause | None = None) -> str:
    """Why a recovery from this cause (None: a drain, whatever its cause) must wait; empty if it need not."""
    causes = [cause.value] if cause is not None else sorted(state.incidents)
    return "; ".join(state.incidents[name].reason for name in causes if name in state.incidents)


def next_change(limits: GuardLimits, incident: Incident) -> datetime:
    """When it ends if no new fault is seen."""
    return incident.last_fault + limits.breaker_cool_down


def settle(state: GuardState, now: datetime) -> None:
    """A person ends all incidents. What was seen before is settled."""
    state.incidents.clear()
    state.faults.clear()
    state.incidents_settled_at = now


def _begun(limits: GuardLimits, cause: Cause, found: list[FaultReport], now: datetime) -> Incident:
    users = len({fault.user for fault in found if fault.user})
    whose = f" of {users} users" if users > 1 else ""
    return Incident(
        cause=cause,
        since=now,
        last_fault=max(fault.at for fault in found),
        jobs=tuple(sorted({fault.job for fault in found}))[:MAX_NAMED],
        reason=f"{len(found)} jobs{whose} failed by {cause.value} within {limits.breaker_window}: "
        "most likely one incident",
    )


def _grown(incident: Incident, found: list[FaultReport]) -> Incident:
    jobs = tuple(dict.fromkeys((*incident.jobs, *sorted({fault.job for fault in found}))))[:MAX_NAMED]
    last = max((fault.at for fault in found), default=incident.last_fault)
    return incident.model_copy(update={"jobs": jobs, "last_fault": max(last, incident.last_fault)})
