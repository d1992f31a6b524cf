"""Recoveries as people read them at the terminal: what happened, the plan, the commands, the timeline.

Everything is returned as lines of rich markup; text from logs and from people is escaped.
"""

from datetime import UTC, datetime

from rich.markup import escape
from rich.table import Table

from relight.cli.output import clock, duration
from relight.contracts import RecoveryOutcome
from relight.contracts.messages import RecoveryStatus
from relight.contracts.outcome import Timeline
from relight.wording import cause_of, collapse, place

MAX_EVIDENCE = 8
MOMENTS = (
    ("occurred", "fault"),
    ("detected", "detected"),
    ("confirmed", "confirmed"),
    ("approved", "approved"),
    ("acted", "acted: requeue accepted"),
    ("running", "running again"),
    ("productive", "past the failed step"),
)
"""The moments of a timeline, in order, with their names."""


def what_happened(status: RecoveryStatus) -> list[str]:
    """The diagnosis and its evidence."""
    diagnosis = status.diagnosis
    lines = [
        f"[bold]{diagnosis.symptom.value}[/], {cause_of(diagnosis.cause, diagnosis.confidence)}, at "
        f"{clock(diagnosis.occurred_at, date=True)}, detected "
        f"{duration(diagnosis.detected_at - diagnosis.occurred_at)} later"
    ]
    if diagnosis.explanation:
        lines.append(f"  {escape(diagnosis.explanation)}")
    if diagnosis.progress is not None:
        lines.append(f"  last step: {diagnosis.progress.step}")
    if diagnosis.nodes:
        lines.append(f"  suspected: {escape(', '.join(diagnosis.nodes[:MAX_EVIDENCE]))}")
    lines.append("evidence:")
    alike = collapse(diagnosis.evidence)
    for each in alike[:MAX_EVIDENCE]:
        evidence = each.first
        where = " ".join(filter(None, [evidence.node, place(evidence)]))
        told = ", ".join(filter(None, [where, each.more]))
        lines.append(f"  {evidence.source.value:10} {escape(evidence.text)} [dim]{escape(told)}[/]")
    if len(alike) > MAX_EVIDENCE:
        lines.append(f"  ... and {len(alike) - MAX_EVIDENCE} more")
    return lines


def plan_lines(status: RecoveryStatus) -> list[str]:
    """The plan with its digest, why it waits and until when."""
    plan = status.plan
    if plan is None:
        return ["no plan yet"]
    lines = [f"plan [bold]{status.plan_digest}[/]: [bold]{plan.action.value}[/] {escape(plan.because)}"]
    for number, step in enumerate(plan.steps, 1):
        mark = "[yellow]*[/]" if step.mutates else " "
        lines.append(f" {mark}{number}. {step.name}: {escape(step.does)}")
    if any(step.mutates for step in plan.steps):
        lines.append("  [dim](steps marked * change something)[/]")
    lines += [f"a person must agree: {escape(why)}" for why in plan.needs_approval_because]
    if status.approvals_needed > 1:
        so_far = f": {escape(', '.join(status.approvals))}" if status.approvals else ""
        lines.append(f"approved by {len(status.approvals)} of {status.approvals_needed} people{so_far}")
    if status.approval_deadline is not None:
        left = status.approval_deadline - datetime.now(UTC)
        lines.append(f"waits until {clock(status.approval_deadline, date=True)} ({duration(left)} left)")
    return lines


def commands(status: RecoveryStatus, job_id: str) -> list[str]:
    """How to decide about the plan that waits."""
    return [
        f"  relight approve {job_id} --plan {status.plan_digest} --reason WHY",
        f"  relight reject {job_id} --plan {status.plan_digest} --reason WHY",
        f"  temporal workflow signal --workflow-id '{status.recovery_id}' --name approve "
        f'--input \'{{"by": "YOU", "plan_digest": "{status.plan_digest}"}}\'',
    ]


def one_line(outcome: RecoveryOutcome) -> str:
    """How a recovery ended, in a line."""
    parts = [f"[bold]{outcome.outcome.value}[/]: {outcome.symptom.value}, {outcome.cause.value}"]
    if outcome.reason:
        parts.append(escape(outcome.reason))
    if outcome.steps_lost is not None:
        parts.append(
            f"from step {outcome.lost_from_step} back to {outcome.resumed_at_step}, {outcome.steps_lost} lost"
        )
    if outcome.downtime is not None:
        parts.append(f"down for {duration(outcome.downtime)}")
    if outcome.gpu_hours_lost is not None:
        parts.append(f"{outcome.gpu_hours_lost:.1f} GPU hours lost")
    if outcome.approved_by:
        parts.append(f"approved by {escape(outcome.approved_by)}")
    return "; ".join(parts)


def timeline(outcome: RecoveryOutcome, fault_at: datetime | None = None) -> Table:
    """When each thing happened. `fault_at`: when the fault is known to have happened, if known better."""
    times = outcome.times if fault_at is None else outcome.times.model_copy(update={"occurred": fault_at})
    return timeline_of(times)


def timeline_of(times: Timeline, now: datetime | None = None, doing: str = "") -> Table:
    """When each thing happened, and how long each took.

    Args:
        times: the moments.
        now: of an open recovery: what has not come yet is shown too, and how long it has been waited for.
        doing: what an open recovery does now.
    """
    table = Table("what", "when (UTC)", "after the fault", "after the one before", box=None, pad_edge=False)
    start = before = times.occurred
    missing = []
    for field, name in MOMENTS:
        at: datetime | None = getattr(times, field)
        if at is None:
            missing.append(name)
            continue
        since = duration(at - before) if before and field != "occurred" else "-"
        table.add_row(name, _precisely(at), duration(at - start) if start else "-", since)
        before = at
    if now is not None:
        waited = duration(now - before) if before else "-"
        table.add_row(
            f"[bold]now: {escape(doing)}[/]",
            _precisely(now),
            duration(now - start) if start else "-",
            f"[bold]{waited}[/]",
        )
        for name in missing:
            table.add_row(f"[dim]{name}[/]", "[dim]not yet[/]", "", "")
    return table


def _precisely(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%H:%M:%S.%f")[:-4]
