"""`relight watch`, `relight mode` and `relight unwatch`: which jobs are looked after, and how."""

import asyncio
import time
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.common import TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from relight.cli import checkpoint_directory
from relight.cli.completion import complete_running_job
from relight.cli.decide import ANSWER, whoami
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.invocation import invocation, run_async
from relight.cli.output import complain, say
from relight.cli.unwatched import can_be_watched
from relight.cli.watched import (
    JobTarget,
    Monitor,
    find_monitor,
    list_monitors,
    monitor_status,
    no_worker,
    worker_polls,
)
from relight.config import Settings
from relight.contracts import JobInfo, Mode, Policy, TrainingJob
from relight.contracts.ids import MEMO_JOB, MONITOR_WORKFLOW, guard_id, monitor_id, search_attributes
from relight.contracts.messages import ModeChange, MonitorInput, MonitorStatus, Note
from relight.contracts.policy import Steer, variable_name
from relight.policies import Policies
from relight.policy.choose import JobFacts, caps_of, check_allowed, choose
from relight.scheduler.port import log_files

SENSOR_SECONDS = 6.0
"""How long `watch` waits for a first word of a sensor about the job; sensors look for new jobs every 2 s."""
LISTED_SECONDS = 10.0
"""How long Temporal may take to list a new workflow; its visibility store lags behind."""

Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept on record.")]
By = Annotated[str, typer.Option("--by", help="Who asks for it.", show_default="you, on this host")]


def watch(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(help="The scheduler's job id.", autocompletion=complete_running_job)],
    checkpoints: Annotated[
        str | None,
        typer.Option(
            "--checkpoints",
            metavar="DIR",
            help="Where the job saves its checkpoints: DIR, or s3://bucket/run.",
        ),
    ] = None,
    logs: Annotated[
        list[str] | None,
        typer.Option("--logs", metavar="GLOB", help="More log files than the job's output; may be repeated."),
    ] = None,
    policy: Annotated[
        str | None, typer.Option("--policy", metavar="NAME", help="A policy of the settings.")
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            "--mode",
            help="observe: ask a person before any change; act: recover alone.",
            show_default="settings",
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="NAME", help="Name of the training run.", show_default="job's"),
    ] = None,
    resume_variable: Annotated[
        str | None,
        typer.Option(
            "--resume-variable",
            metavar="NAME",
            help="The environment variable in which the job expects the path of the checkpoint to load "
            '(for policies with steer = "environment").',
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also with a checkpoint directory that is not there, or not there yet."),
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait for a sensor's first word about the job.")] = True,
) -> None:
    """Watch a training job: its failures are detected, and recovered as far as the mode allows."""
    settings = invocation(ctx).settings
    directory = None if checkpoints is None else checkpoint_directory.usable(checkpoints, force=force)

    async def work() -> None:
        client = await invocation(ctx).client()
        wanted = await read_job(
            settings, job, checkpoints=directory, logs=tuple(logs or ()), policy=policy, mode=mode, run=run,
            resume_variable=resume_variable,
        )  # fmt: skip
        monitor = await _watched_already(client, wanted)
        if monitor is None:
            try:
                await start_monitor(client, settings, wanted)
            except WorkflowAlreadyStartedError:  # by a sensor or another person, just now
                monitor = await find_monitor(client, monitor_id(wanted.attempt))
        if monitor is not None:
            await _adjust(
                client,
                settings,
                monitor,
                wanted,
                mode,
                keeps=not any((directory, logs, policy, run, resume_variable)),
            )
            return
        say(f"watching job {job} ({wanted.run}) in {wanted.mode.value} mode: {monitor_id(wanted.attempt)}")
        if not await worker_polls(client, settings.task_queue):
            complain(f"{no_worker(settings.task_queue)}; nothing happens before", "warning")
        elif wait and not await sensor_speaks(client, monitor_id(wanted.attempt)):
            complain(
                f"no sensor has told of the job within {SENSOR_SECONDS:.0f} s: start one with `relight "
                "sensor` (or `relight up`); without one only the monitor's slow own look finds faults",
                "warning",
            )

    run_async(work(), "waiting for the scheduler, Temporal and a sensor")


def mode(
    ctx: typer.Context,
    job: JobTarget,
    mode: Annotated[Mode, typer.Argument(help="observe or act.")],
    reason: Reason = "",
    by: By = "",
) -> None:
    """Change what relight may do for a job; `observe` also stops an open recovery before its next change."""
    settings = invocation(ctx).settings

    async def work() -> None:
        client = await invocation(ctx).client()
        monitor = await _running(client, job, settings)
        _refuse_beyond(settings, monitor.job, mode)
        change = ModeChange(mode=mode, by=by or whoami(), reason=reason)
        await change_mode(client, settings, monitor.id, change)

    run_async(work(), "asking Temporal")
    say(f"job {job} is in {mode.value} mode")


def unwatch(ctx: typer.Context, job: JobTarget, reason: Reason = "", by: By = "") -> None:
    """Stop watching a job; the job itself is left as it is."""
    settings = invocation(ctx).settings

    async def work() -> None:
        client = await invocation(ctx).client()
        monitor = await _running(client, job, settings)
        await client.get_workflow_handle(monitor.id).signal("unwatch", Note(by=by or whoami(), reason=reason))

    run_async(work(), "asking Temporal")
    say(f"job {job} will not be watched any more; an open recovery steps back before its next change")


async def read_job(
    settings: Settings,
    job_id: str,
    *,
    checkpoints: Path | str | None = None,
    logs: tuple[str, ...] = (),
    policy: str | None = None,
    mode: Mode | None = None,
    run: str | None = None,
    resume_variable: str | None = None,
) -> TrainingJob:
    """Reads a job from the scheduler, as relight will watch it.

    Args:
        settings: say which scheduler, and what such jobs get.
        job_id: the scheduler's.
        checkpoints: a path, or an address for fsspec; whether it is there does not matter here.
        logs: globs of more log files.
        policy: the name of one; None: what such a job gets.
        mode: None: the settings'.
        run: name of the run; None: the job's.
        resume_variable: where the job expects the path of the checkpoint to load.

    Raises:
        CommandError: the job has ended in a way that relight does not recover from, or `resume_variable` is
            no name for one.
        SchedulerError: as its subclasses say.
        ConfigError: the policy file cannot be used.
        NotAllowed: the policy cannot be had.
    """
    from relight.scheduler.opening import open_scheduler  # adapters are slow to import

    policies = Policies(settings).file
    check_allowed(policies, policy or "")
    scheduler = open_scheduler(settings)
    info = await scheduler.job(job_id)
    if not can_be_watched(info):
        raise CommandError(
            f"job {job_id} has ended ({info.state.value}): there is nothing to watch", ExitCode.REFUSED
        )
    cluster = settings.cluster or (await scheduler.version()).cluster
    facts = JobFacts(partition=info.partition, user=info.user, account=info.account)
    chosen = choose(policies, facts, mode or settings.mode, policy or "")
    if mode is not None and chosen.mode is not mode:
        complain(f"it only observes: {chosen.caps[0].why}; to change that, {chosen.caps[0].opens}", "warning")
    return TrainingJob(
        cluster=cluster,
        run=run or info.name or f"job {job_id}",
        attempt=info.attempt(cluster),
        user=info.user,
        partition=info.partition,
        account=info.account,
        nodes=info.nodes,
        tasks_per_node=_tasks_per_node(info),
        log_paths=_absolute_logs(info, logs),
        checkpoint_dir=checkpoint_directory.absolute(str(checkpoints)) if checkpoints else None,
        policy=_declaring(chosen.policy, resume_variable),
        mode=chosen.mode,
    )


async def start_monitor(client: Client, settings: Settings, job: TrainingJob) -> None:
    """Starts the monitor of a job, and waits until it is listed, so that the next command finds it.

    A person may watch a job again after `unwatch`: unlike a sensor's late word, that is a wish.

    Raises:
        WorkflowAlreadyStartedError: its monitor runs already.
    """
    await client.start_workflow(
        MONITOR_WORKFLOW,
        MonitorInput(
            job=job,
            guard_id=guard_id(job.cluster) if settings.guard else "",
            notify=True,
            archive=bool(settings.archive.url),
        ),
        id=monitor_id(job.attempt),
        task_queue=settings.task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        memo={MEMO_JOB: job.model_dump(mode="json")},
        search_attributes=TypedSearchAttributes(search_attributes(job, "watching")),
        static_summary=f"watches {job.run} (job {job.attempt.job_id} of {job.user or '?'} on {job.cluster})"[
            :100
        ],
    )
    deadline = time.monotonic() + LISTED_SECONDS
    while time.monotonic() < deadline:
        if await _watched_already(client, job) is not None:
            return
        await asyncio.sleep(0.05)
    complain(
        "the job is watched, but Temporal does not list it yet; other commands may not find it", "warning"
    )


async def change_mode(client: Client, settings: Settings, monitor: str, change: ModeChange) -> None:
    """Changes the mode of a monitor and its open recoveries.

    Raises:
        CommandError: refused, or no worker answers.
    """
    handle = client.get_workflow_handle(monitor)
    try:
        await handle.execute_update("set_mode", change, result_type=MonitorStatus, rpc_timeout=ANSWER)
    except WorkflowUpdateFailedError as e:
        why = e.cause.message if isinstance(e.cause, ApplicationError) else str(e.cause)
        raise CommandError(f"refused: {why}", ExitCode.REFUSED) from e
    except WorkflowUpdateRPCTimeoutOrCancelledError as e:
        # To revoke `act` must not depend on a worker that answers now: the signal waits in the history.
        await handle.signal("set_mode", change)
        raise CommandError(
            f"{no_worker(settings.task_queue)}. The change is on record and takes effect when one is back",
            ExitCode.NOT_READY,
        ) from e


async def sensor_speaks(client: Client, monitor: str) -> bool:
    """A sensor has told the monitor something, within `SENSOR_SECONDS`."""
    deadline = time.monotonic() + SENSOR_SECONDS
    while time.monotonic() < deadline:
        status = await monitor_status(client, monitor)
        if status is not None and status.signals:
            return True
        await asyncio.sleep(0.2)
    return False


async def _watched_already(client: Client, job: TrainingJob) -> Monitor | None:
    """The running monitor of this very job: a requeue changes the attempt, and ids are used again."""
    for monitor in await list_monitors(client, cluster=job.cluster, job_id=job.attempt.job_id):
        known = monitor.job.attempt
        requeued = job.attempt.restart_count > known.restart_count
        if requeued or job.attempt == known:
            return monitor
    return None


async def _adjust(
    client: Client,
    settings: Settings,
    monitor: Monitor,
    wanted: TrainingJob,
    mode: Mode | None,
    *,
    keeps: bool,
) -> None:
    """A job that is watched already: the mode can change, the rest is fixed when watching begins."""
    job_id = monitor.job.attempt.job_id
    say(f"job {job_id} is watched already, in {monitor.job.mode.value} mode: {monitor.id}")
    if mode is not None and mode is not monitor.job.mode:
        _refuse_beyond(settings, monitor.job, mode)
        await change_mode(
            client, settings, monitor.id, ModeChange(mode=mode, by=whoami(), reason="relight watch")
        )
        say(f"job {job_id} is now in {mode.value} mode")
    if not keeps and _fixed(wanted) != _fixed(monitor.job):
        raise CommandError(
            f"the other options are fixed when watching begins: `relight unwatch {job_id}`, then watch again",
            ExitCode.REFUSED,
        )


def _refuse_beyond(settings: Settings, job: TrainingJob, mode: Mode) -> None:
    """To observe is always allowed, also with a policy file that cannot be read.

    Raises:
        CommandError: the policy file does not let such a job act.
        ConfigError: the policy file cannot be used.
    """
    if mode is not Mode.ACT:
        return
    if caps := caps_of(Policies(settings).file, JobFacts.of(job), job.policy):
        raise CommandError(f"refused: {caps[0].why}; to change that, {caps[0].opens}", ExitCode.REFUSED)


def _fixed(job: TrainingJob) -> tuple[object, ...]:
    return job.run, job.log_paths, job.checkpoint_dir, job.policy


async def _running(client: Client, target: str, settings: Settings) -> Monitor:
    monitor = await find_monitor(client, target, settings.cluster)
    if not monitor.running:
        raise CommandError(f"{monitor.id} watches no more: it has ended", ExitCode.REFUSED)
    return monitor


def _declaring(policy: Policy, variable: str | None) -> Policy:
    """The policy of a job that declares its variable."""
    if variable is None:
        return policy
    try:
        declared = policy.model_copy(update={"resume_variable": variable_name(variable)})
    except ValueError as e:
        raise CommandError(f"--resume-variable: {e}", ExitCode.USAGE) from e
    if policy.steer is not Steer.ENVIRONMENT:
        complain(
            f'the policy {policy.name} does not use it: it has steer = "{policy.steer.value}"', "warning"
        )
    return declared


def _tasks_per_node(info: JobInfo) -> int | None:
    if info.tasks_per_node:
        return info.tasks_per_node
    even = info.num_nodes > 0 and info.num_tasks > 0 and info.num_tasks % info.num_nodes == 0
    return info.num_tasks // info.num_nodes if even else None


def _absolute_logs(info: JobInfo, logs: tuple[str, ...]) -> tuple[str, ...]:
    own = (str(path) for path in log_files(info))
    given = (str(Path(glob).expanduser().absolute()) for glob in logs)
    return tuple(dict.fromkeys([*own, *given]))
