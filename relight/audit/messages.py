"""What a signal says, in words. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from temporalio.api.common.v1 import Payload

from relight.audit import events
from relight.audit.record import Who
from relight.contracts import clean_text
from relight.contracts.guard import PermitDecision, PermitKind
from relight.contracts.messages import (
    AttemptReport,
    Decision,
    ModeChange,
    Note,
    RecoveryEnded,
    RecoveryNews,
)
from relight.contracts.node_drain import DrainNews
from relight.wording import moment

_ASKED = re.compile(r"(?:deadline for approving|cool-down) plan ([0-9a-f]{8})")
"""The summary that a recovery gives to the timer of its question."""


@dataclass(frozen=True)
class Heard:
    """A signal, in words."""

    who: Who
    what: str
    text: str = ""
    name: str = ""
    plan_digest: str = ""


def plan_asked(timer_summary: str) -> str:
    """The digest of the plan that a timer is the deadline of; empty for another timer."""
    found = _ASKED.match(timer_summary)
    return found.group(1) if found else ""


def heard(signal: str, payloads: Sequence[Payload]) -> Heard:
    """What a signal says."""
    match signal:
        case "approve" | "reject":
            decision = events.loose(payloads, Decision) or Decision()
            word = "approved" if signal == "approve" else "rejected"
            return Heard(Who.PERSON, word, decision.reason, decision.by, decision.plan_digest)
        case "set_mode":
            change = events.loose(payloads, ModeChange)
            if change is not None:
                text = f"{change.mode.value}: {change.reason}" if change.reason else change.mode.value
                return Heard(Who.PERSON, "set mode", text, change.by)
        case "pause" | "unpause" | "unwatch" | "release":
            note = events.loose(payloads, Note) or Note()
            return Heard(Who.PERSON, signal, note.reason, note.by)
        case "permit_decided":
            permit = events.loose(payloads, PermitDecision)
            if permit is not None:
                return Heard(Who.RELIGHT, "permit", _permit(permit), "guard")
        case "drain_news":
            drain = events.loose(payloads, DrainNews)
            if drain is not None:
                word = "drained" if drain.drained else "not drained"
                return Heard(Who.RELIGHT, word, f"{drain.node}: {drain.text}")
        case "report_attempt":
            report = events.loose(payloads, AttemptReport)
            if report is not None:
                return Heard(Who.SENSOR, "reported", _attempt(report))
        case "recovery_ended":
            ended = events.loose(payloads, RecoveryEnded)
            if ended is not None:
                told = f"{ended.outcome.recovery_id} ended: {ended.outcome.outcome.value}"
                return Heard(Who.RELIGHT, "recovery ended", told)
        case "recovery_news":
            news = events.loose(payloads, RecoveryNews)
            if news is not None:
                return Heard(Who.RELIGHT, "recovery", f"{news.recovery_id} is {news.state}")
    told = f"{clean_text(signal)}: relight does not know it, or cannot read its payload"
    return Heard(Who.TEMPORAL, "signal", told)


def _permit(permit: PermitDecision) -> str:
    wanted = "drain the node" if permit.kind is PermitKind.DRAIN else "change the job"
    why = ": ".join(filter(None, [permit.gate, permit.reason]))
    if permit.granted:
        until = f", until {moment(permit.lease_until)}" if permit.lease_until is not None else ""
        text = f"may {wanted}{until}" + (f" ({why})" if why else "")
    else:
        text = f"{'must wait' if permit.waits else 'refused'} to {wanted}" + (f": {why}" if why else "")
    if permit.paused:
        text += "; nothing may be changed now"
    if permit.observe:
        text += "; the cluster observes: a person must have approved the plan"
    return text


def _attempt(report: AttemptReport) -> str:
    text = f"attempt {report.attempt.label} {report.event.value}"
    if report.state is not None:
        text += f" as {report.state.value}"
    if report.progress is not None:
        text += f", step {report.progress.step}"
    return f"{text} ({report.reason})" if report.reason else text
