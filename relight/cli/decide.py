"""`relight approve` and `relight reject`: a person's word on the plan that a recovery shows."""

import getpass
import os
import socket
from datetime import timedelta
from typing import Annotated

import typer
from rich.console import Console
from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError

from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import invocation, run_async
from relight.cli.output import AsJson, console, print_json, say
from relight.cli.recovery_view import plan_lines, what_happened
from relight.cli.watched import (
    JobTarget,
    Monitor,
    find_monitor,
    list_recoveries,
    no_worker,
    recovery_outcome,
    recovery_status,
)
from relight.config import Settings
from relight.contracts.messages import Decision, DecisionResult, RecoveryStatus

WAITING = "awaiting-approval"
ANSWER = timedelta(seconds=15)
"""How long a recovery may take to say what it makes of a decision."""

Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept on record.")]
By = Annotated[str, typer.Option("--by", help="Who decides.", show_default="you, on this host")]
PlanDigest = Annotated[str, typer.Option("--plan", metavar="DIGEST", help="Only if this very plan is shown.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def approve(
    ctx: typer.Context,
    job: JobTarget,
    reason: Reason = "",
    by: By = "",
    plan: PlanDigest = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Approve the plan that waits for a person: relight carries it out. Shows it and asks first."""
    _decide(
        ctx, job, Decision(approved=True, by=by or whoami(), reason=reason, plan_digest=plan), yes, as_json
    )


def reject(
    ctx: typer.Context,
    job: JobTarget,
    reason: Reason = "",
    by: By = "",
    plan: PlanDigest = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Reject the plan that waits for a person: nothing is changed, and the recovery ends."""
    _decide(
        ctx, job, Decision(approved=False, by=by or whoami(), reason=reason, plan_digest=plan), yes, as_json
    )


def whoami() -> str:
    """`anna@head1`: the person at the terminal, also behind sudo."""
    return f"{os.environ.get('SUDO_USER') or getpass.getuser()}@{socket.gethostname()}"


def _decide(ctx: typer.Context, job: str, decision: Decision, yes: bool, as_json: bool) -> None:
    settings = invocation(ctx).settings

    async def work() -> DecisionResult:
        client = await invocation(ctx).client()
        waiting = await find_waiting(client, settings, job, decision.plan_digest)
        out = Console(stderr=True, highlight=False, emoji=False) if as_json else console()
        out.print("\n".join([*what_happened(waiting), *plan_lines(waiting)]))
        if not yes and not _confirmed(decision, waiting, as_json):
            raise CommandError("nothing was decided", ExitCode.REFUSED)
        return await decide(client, waiting, decision)

    result = run_async(work())
    if as_json:
        print_json(result)
    else:
        say(result.message)
    if not result.accepted:
        raise typer.Exit(ExitCode.REFUSED)


def _confirmed(decision: Decision, waiting: RecoveryStatus, on_stderr: bool) -> bool:
    """Asks, also where the answer comes from a pipe."""
    verb = "Approve" if decision.approved else "Reject"
    try:
        return typer.confirm(f"{verb} plan {waiting.plan_digest}?", err=on_stderr)
    except typer.Abort:
        raise CommandError(
            "nothing was decided: no answer came; scripts give --yes", ExitCode.REFUSED
        ) from None


async def find_waiting(client: Client, settings: Settings, job: str, digest: str = "") -> RecoveryStatus:
    """The recovery of this job that waits for a person.

    Raises:
        CommandError: no such job or recovery, none waits, its plan is another one, or no worker answers.
    """
    if job.startswith("recover:"):
        ids = [job]
        await find_monitor(client, job)  # says so where there is no such recovery
    else:
        monitor = await find_monitor(client, job, settings.cluster)
        ids = [execution.id for execution in await list_recoveries(client, monitor.id, ended=False)]
        if not ids:
            raise CommandError(
                f"job {job} has no open recovery: there is nothing to decide (`relight show {job}`)"
                f"{await _decided_before(client, monitor)}",
                ExitCode.REFUSED,
            )
    waiting: list[RecoveryStatus] = []
    others: list[RecoveryStatus] = []
    for recovery_id in ids:
        status = await recovery_status(client, recovery_id)
        if status is None:
            raise no_worker(settings.task_queue)
        (waiting if status.state == WAITING else others).append(status)
    if not waiting:
        states = ", ".join(_instead(other) for other in others)
        raise CommandError(f"no plan of job {job} waits for a decision: {states}", ExitCode.REFUSED)
    named = [status for status in waiting if digest in ("", status.plan_digest)]
    if not named:
        shown = ", ".join(status.plan_digest for status in waiting)
        raise CommandError(
            f"plan {digest} does not wait for a decision; the current plan is {shown}: look at it with "
            f"`relight show {job}`, and decide on that one",
            ExitCode.REFUSED,
        )
    return named[-1]


async def _decided_before(client: Client, monitor: Monitor) -> str:
    """Who approved the latest recovery, to be put behind a sentence; empty: nobody, or there was none."""
    recoveries = await list_recoveries(client, monitor.id)
    # One that has only just begun may be in this list and not in that of open ones: its end is not awaited.
    if not recoveries or recoveries[-1].status is WorkflowExecutionStatus.RUNNING:
        return ""
    outcome = await recovery_outcome(client, recoveries[-1].id)
    if outcome is None or not outcome.approved_by:
        return ""
    at = outcome.times.approved
    when = f" at {at:%Y-%m-%d %H:%M:%S} UTC" if at is not None else ""
    return f"; the last one was approved by {outcome.approved_by}{when}, and ended as {outcome.outcome.value}"


def _instead(other: RecoveryStatus) -> str:
    """What a recovery does that waits for nobody, and who decided."""
    decided = f" ({other.last_decision})" if other.last_decision else ""
    return f"{other.recovery_id} is {other.state}{decided}"


async def decide(client: Client, waiting: RecoveryStatus, decision: Decision) -> DecisionResult:
    """Sends the decision about the plan in `waiting`, and no other.

    Raises:
        CommandError: the recovery refuses it (with its reason), or no worker answers.
    """
    about_this_plan = decision.model_copy(update={"plan_digest": waiting.plan_digest})
    handle = client.get_workflow_handle(waiting.recovery_id)
    try:
        result: DecisionResult = await handle.execute_update(
            "decide", about_this_plan, result_type=DecisionResult, rpc_timeout=ANSWER
        )
    except WorkflowUpdateFailedError as e:
        why = e.cause.message if isinstance(e.cause, ApplicationError) else str(e.cause)
        raise CommandError(f"refused: {why}", ExitCode.REFUSED) from e
    except WorkflowUpdateRPCTimeoutOrCancelledError as e:
        raise CommandError(
            f"no worker took the decision within {ANSWER.total_seconds():.0f} s; it may still arrive: look "
            f"with `relight show {waiting.recovery_id}` before you decide again",
            ExitCode.NOT_READY,
        ) from e
    return result
