"""What people read in Temporal's web UI: one-line summaries, and a workflow's current details in Markdown.

Text from logs and from people is quoted so that it cannot become Markdown: in fences longer than any run of
backticks within, or as inline code without backticks.
"""

import re
from collections.abc import Sequence
from datetime import datetime

from relight.contracts import Diagnosis, Mode, Plan
from relight.contracts.messages import MonitorStatus
from relight.contracts.steps import ConfirmResult

MAX_SUMMARY = 200
"""Bytes. Temporal refuses summaries that are not much longer."""
MAX_DETAILS = 16_000
"""Bytes, below Temporal's limit of 20,000."""
MAX_QUOTED = 8
"""Pieces of evidence that are quoted."""


def clip(text: str, limit: int = MAX_SUMMARY) -> str:
    """Cuts to `limit` bytes of UTF-8, on a character's edge."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return data[: limit - 3].decode("utf-8", "ignore") + "..."


def code(text: str) -> str:
    """Inline code, on one line."""
    return "`" + (re.sub(r"[`\r\n]", " ", text) or " ") + "`"


def fence(text: str) -> str:
    """A block that shows the text as it is, and that the text cannot end."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}text\n{text}\n{ticks}"


def recovery_details(
    *,
    workflow_id: str,
    job_id: str,
    state: str,
    mode: Mode,
    paused: bool,
    diagnosis: Diagnosis,
    confirmation: ConfirmResult | None,
    plan: Plan | None,
    deadline: datetime | None,
    log: Sequence[str],
    ending: str,
) -> str:
    """The current details of a recovery: what happened, the evidence, the plan, what to do."""
    parts = [f"# Job {code(job_id)}: {ending or state}"]
    parts.append(f"Mode **{mode.value}**{', **paused**' if paused else ''}.")
    if deadline is not None and plan is not None:
        parts.append(_what_a_person_can_do(workflow_id, job_id, plan, deadline))
    parts.append(happened(diagnosis))
    if confirmation is not None:
        lines = [f"**{confirmation.verdict}**: {code(confirmation.summary)}"]
        lines += [
            f"- {o.source}: **{o.verdict}** {code(o.text)}" for o in confirmation.observations[:MAX_QUOTED]
        ]
        parts.append("## Confirmation\n" + "\n".join(lines))
    if plan is not None:
        parts.append(_the_plan(plan))
    if log:
        parts.append("## Done so far\n" + "\n".join(f"- {code(line)}" for line in log))
    return clip("\n\n".join(parts), MAX_DETAILS)


def happened(diagnosis: Diagnosis) -> str:
    """The fault and its evidence: for the details that stay in history, and as a part of the current ones."""
    lines = [
        f"**{diagnosis.symptom.value}**, cause **{diagnosis.cause.value}** "
        f"(confidence {diagnosis.confidence:.0%}), at {diagnosis.occurred_at:%Y-%m-%d %H:%M:%S} UTC, "
        f"detected {diagnosis.detected_at:%H:%M:%S}."
    ]
    if diagnosis.explanation:
        lines.append(code(diagnosis.explanation))
    if diagnosis.progress is not None:
        lines.append(f"Last step: **{diagnosis.progress.step}**.")
    if diagnosis.nodes:
        lines.append("Suspected: " + ", ".join(code(node) for node in diagnosis.nodes[:MAX_QUOTED]) + ".")
    quoted = "\n".join(
        " ".join(filter(None, [f"[{e.source.value}]", e.node, e.where, e.text]))
        for e in diagnosis.evidence[:MAX_QUOTED]
    )
    if quoted:
        lines.append(fence(quoted))
    return clip("## What happened\n" + "\n\n".join(lines), MAX_DETAILS)


def _what_a_person_can_do(workflow_id: str, job_id: str, plan: Plan, deadline: datetime) -> str:
    why = "\n".join(f"- {code(reason)}" for reason in plan.needs_approval_because)
    word = f'{{"by": "YOUR NAME", "reason": "WHY", "plan_digest": "{plan.digest}"}}'
    return (
        f"## Waiting for a person, until {deadline:%Y-%m-%d %H:%M:%S} UTC\n{why}\n\n"
        f"Approve plan **{plan.digest}**:\n"
        + fence(
            f"relight approve {job_id}\n"
            f"temporal workflow signal --workflow-id '{workflow_id}' --name approve --input '{word}'"
        )
        + "\nReject it:\n"
        + fence(
            f"relight reject {job_id} --reason WHY\n"
            f"temporal workflow signal --workflow-id '{workflow_id}' --name reject --input '{word}'"
        )
    )


def _the_plan(plan: Plan) -> str:
    steps = [f"{i}. **{step.name}**: {code(step.does)}" for i, step in enumerate(plan.steps, 1)]
    return "\n\n".join(
        filter(None, [f"## Plan {plan.digest}: {plan.action.value}", code(plan.because), "\n".join(steps)])
    )


def monitor_details(status: MonitorStatus) -> str:
    """The current details of a monitor."""
    job = status.job
    lines = [
        f"# Job {code(job.attempt.job_id)} ({code(job.run)}): {status.state}",
        f"Attempt {code(job.attempt.label)}, mode **{job.mode.value}**, policy {code(job.policy.name)}.",
    ]
    if status.progress is not None:
        lines.append(f"Last reported step: **{status.progress.step}**.")
    if status.open_recoveries:
        lines.append("Open recovery: " + ", ".join(code(r) for r in status.open_recoveries))
    lines += [f"Noticed: {code(note)}" for note in status.noticed]
    if status.end is not None:
        lines.append(f"Ended: **{status.end.value}** {code(status.end_detail)}")
    lines.append(
        f"{status.recoveries} recoveries, {status.signals} signals, {status.duplicates} duplicates, "
        f"{status.stale} of earlier attempts, {status.missed} faults that no sensor reported."
    )
    return clip("\n\n".join(lines), MAX_DETAILS)
