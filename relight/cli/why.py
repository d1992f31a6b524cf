"""`relight why`: what keeps relight from acting for a job, and how to open that gate."""

from datetime import UTC, datetime

import typer
from rich.markup import escape
from temporalio.client import Client

from relight.cli.exit_codes import CommandError
from relight.cli.guarded import guard_status
from relight.cli.invocation import invocation, run_async
from relight.cli.output import AsJson, clock, complain, console, print_json
from relight.cli.shapes import GateView, JobView, StandStill, WhyView
from relight.cli.stand_still import in_words
from relight.cli.unwatched import find_or_advise
from relight.cli.watched import JobTarget, job_view
from relight.config import ConfigError, Settings
from relight.contracts import Mode, TrainingJob
from relight.contracts.guard import GuardStatus
from relight.contracts.messages import EndReason, MonitorStatus, RecoveryStatus
from relight.policies import Policies
from relight.policy import gates as policy_gates
from relight.policy import guard as gates
from relight.policy.choose import Cap, JobFacts, caps_of

_OPENS = {
    gates.PAUSED: "relight unpause --cluster",
    gates.AT_ONCE: "wait for one to end (`relight guard`), or raise guard_limits.recoveries_at_once",
    gates.PER_HOUR: "wait, or raise guard_limits.recoveries_per_hour",
    gates.PER_USER: "wait for one to end (`relight guard`), or raise guard_limits.recoveries_per_user",
    gates.QUEUE: "wait: it asks again by itself (`relight guard`)",
    gates.OBSERVES: "relight guard mode act",
    gates.INCIDENT: "wait until it is over, or `relight guard reset`",
    "guard": "relight worker",
}

_AFTER_A_NO = (
    "requeue or cancel it yourself; of this step relight asks no more, of a hang at a later one it does"
)


def why(
    ctx: typer.Context,
    job: JobTarget,
    as_json: AsJson = False,
) -> None:
    """Say why relight does not act for a job: the first closed gate, and how to open it."""
    settings = invocation(ctx).settings

    async def work() -> WhyView:
        client = await invocation(ctx).client()
        view = await job_view(client, await find_or_advise(client, settings, job))
        return await _look(client, settings, view)

    found = run_async(work(), "asking Temporal")
    if as_json:
        print_json(found)
        return
    out = console()
    job_id = escape(found.job.attempt.job_id)
    if not found.closed:
        out.print(f"job {job_id} is {found.state}: no gate is closed")
        return
    first, *others = found.closed
    out.print(f"job {job_id} is {found.state}; closed: [bold]{escape(first.gate)}[/]")
    out.print(f"  why:  {escape(first.why)}")
    out.print(f"  open: {escape(first.opens)}")
    if others:
        out.print(f"then closed too: {escape(', '.join(gate.gate for gate in others))}")


async def _look(client: Client, settings: Settings, view: JobView) -> WhyView:
    recovery = next(
        (r.status for r in reversed(view.recoveries) if r.status is not None and r.ended is None), None
    )
    guard, gone = None, ""
    asks = view.status.guard_id if view.status is not None else ""
    if asks:
        try:
            guard = await guard_status(client, settings, view.job.cluster)
        except CommandError as e:
            gone = str(e)
    return WhyView(
        monitor_id=view.monitor_id,
        job=view.job,
        state=recovery.state if recovery is not None else view.state,
        recovery_id=recovery.recovery_id if recovery is not None else "",
        closed=closed_gates(
            view.job,
            view.status,
            recovery,
            guard,
            gone,
            caps=_caps(settings, view.job),
            now=datetime.now(UTC),
            still=view.stands_still,
        ),
    )


def closed_gates(
    job: TrainingJob,
    monitor: MonitorStatus | None,
    recovery: RecoveryStatus | None,
    guard: GuardStatus | None,
    guard_gone: str = "",
    *,
    now: datetime,
    caps: tuple[Cap, ...] = (),
    still: StandStill | None = None,
) -> tuple[GateView, ...]:
    """The closed gates, in the order in which relight meets them. Pure.

    Args:
        job: the job.
        monitor: what its monitor says; None: no worker answers.
        recovery: the open recovery, if there is one.
        guard: what the guard says, where the job asks one.
        guard_gone: why the guard cannot be asked; empty: it can, or there is none to ask.
        now: the time.
        caps: what the policy file has against such a job's acting.
        still: the job hangs, and its plan was declined.
    """
    name = job.attempt.job_id
    if monitor is None:
        return (GateView(gate="worker", why="no worker answers", opens="relight worker"),)
    if monitor.end is not None:
        detail = f": {monitor.end_detail}" if monitor.end_detail else ""
        ended = f"it is watched no more ({monitor.end.value}{detail})"
        if recovery is not None:
            ended += (
                f"; its recovery {recovery.recovery_id} is still open ({recovery.state}), and steps back "
            )
            ended += "before its next change"
        return (GateView(gate="watch", why=ended, opens=_watch_again(name, monitor.end)),)
    found = []
    if recovery is None and still is not None:
        found.append(GateView(gate="declined", why=f"it {in_words(still)}", opens=_AFTER_A_NO))
    if monitor.paused or (recovery is not None and recovery.paused):
        found.append(GateView(gate="job paused", why="somebody paused it", opens=f"relight unpause {name}"))
    if recovery is not None and recovery.state == "awaiting-approval" and recovery.plan is not None:
        reasons = "; ".join(recovery.plan.needs_approval_because)
        until = clock(recovery.approval_deadline, date=True)
        found.append(
            GateView(
                gate="approval",
                why=f"plan {recovery.plan_digest} waits for a person until {until}: {reasons}",
                opens=f"relight approve {name} (or reject)",
            )
        )
    else:  # a plan that waits for a person says itself what the policy has against it
        diagnosis = recovery.diagnosis if recovery is not None else None
        closed = policy_gates.closed_gates(job, diagnosis, monitor.last_restart, now)
        found += [GateView(gate=gate.name, why=gate.why, opens=gate.opens) for gate in closed]
    if recovery is None and job.mode is Mode.OBSERVE:
        found += [GateView(gate=cap.gate, why=cap.why, opens=cap.opens) for cap in caps]
        observes = "in observe mode a person must approve each plan"
        found.append(GateView(gate="mode", why=observes, opens=f"relight mode {name} act"))
    return (*found, *_of_the_guard(recovery, guard, guard_gone))


def _watch_again(job_id: str, end: EndReason) -> str:
    """What helps when the watch is over: a job that has ended for good cannot be watched again."""
    if end in (EndReason.UNWATCHED, EndReason.STOPPED):
        return f"relight watch {job_id}"
    return "nothing: the job has ended; submit it anew, and watch the new job"


def _caps(settings: Settings, job: TrainingJob) -> tuple[Cap, ...]:
    """What the policy file has against the job's acting; a file that cannot be used is complained of."""
    try:
        return caps_of(Policies(settings).file, JobFacts.of(job), job.policy)
    except ConfigError as e:
        complain(f"{e}\nServices go on with the last one that could be used", "warning")
        return ()


def _of_the_guard(
    recovery: RecoveryStatus | None, guard: GuardStatus | None, gone: str
) -> tuple[GateView, ...]:
    if gone:
        return (GateView(gate="guard", why=gone, opens=_OPENS["guard"]),)
    if guard is not None and guard.paused:
        who = guard.paused_by or "somebody"
        reason = f": {guard.paused_reason}" if guard.paused_reason else ""
        return (GateView(gate=gates.PAUSED, why=f"paused by {who}{reason}", opens=_OPENS[gates.PAUSED]),)
    if guard is not None and guard.observes:
        who = guard.observes_by or "somebody"
        reason = f": {guard.observes_reason}" if guard.observes_reason else ""
        why = f"the whole cluster observes, as {who} wants it{reason}"
        return (GateView(gate=gates.OBSERVES, why=why, opens=_OPENS[gates.OBSERVES]),)
    if recovery is not None and recovery.permit in {"waiting", "refused"} and recovery.permit_gate:
        opens = _OPENS.get(recovery.permit_gate, "relight guard")
        return (GateView(gate=recovery.permit_gate, why=recovery.permit_reason, opens=opens),)
    return ()
