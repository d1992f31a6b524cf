"""Measures one size: a number of watched jobs that train, some faults among them, or a storm of faults."""

import asyncio
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import TypedSearchAttributes

from bench.scale.cluster import CLUSTER, user
from bench.scale.fit import quantile
from bench.scale.histories import Parts, parts
from bench.scale.processes import Plant, Used
from relight.contracts import Attempt, JobState, Mode, Policy, RecoveryOutcome, TrainingJob
from relight.contracts.ids import (
    MEMO_JOB,
    MONITOR_WORKFLOW,
    RECOVERY_WORKFLOW,
    TASK_QUEUE,
    guard_id,
    monitor_id,
    search_attributes,
)
from relight.contracts.messages import MonitorInput
from relight.scheduler.slurm_cli import SlurmCliScheduler
from relight.scheduler.slurm_run import SlurmCommands

STARTERS = 32
"""Monitors that are started at the same time."""
SAMPLED = 20
"""Monitors whose histories are read."""


async def watch_all(plant: Plant, poll: timedelta) -> dict[str, float]:
    """Starts a monitor for each job, as `relight watch` does, and the sensor; until all are heard of.

    Args:
        plant: the processes.
        poll: how often a monitor looks at the scheduler itself.

    Returns:
        Seconds that it took.
    """
    commands = SlurmCommands(bin_dir=str(plant.root / "bin-worker"))
    infos = await SlurmCliScheduler(commands).jobs([str(n) for n in range(1, plant.jobs + 1)])
    policy, began = Policy(name="scale", poll=poll), time.monotonic()
    limit = asyncio.Semaphore(STARTERS)

    async def one(number: int) -> None:
        info = infos[str(number)]
        job = TrainingJob(
            cluster=CLUSTER,
            run=info.name,
            attempt=Attempt(
                cluster=CLUSTER, job_id=info.job_id, submit_time=info.submit_time, restart_count=0
            ),
            user=user(number),
            partition=info.partition,
            nodes=info.nodes,
            tasks_per_node=8,
            log_paths=(info.std_out,),
            policy=policy,
            mode=Mode.ACT,
        )
        async with limit:
            await plant.client.start_workflow(
                MONITOR_WORKFLOW,
                MonitorInput(job=job, guard_id=guard_id(CLUSTER)),
                id=monitor_id(job.attempt),
                task_queue=TASK_QUEUE,
                memo={MEMO_JOB: job},
                search_attributes=TypedSearchAttributes(search_attributes(job, "watching")),
            )

    await asyncio.gather(*(one(number) for number in range(1, plant.jobs + 1)))
    started = time.monotonic()
    plant.start_sensor()
    await _heard_of_all(plant)
    return {
        "monitors_started_seconds": round(started - began, 2),
        "watched_seconds": round(time.monotonic() - started, 2),
    }


async def _heard_of_all(plant: Plant, seconds: float = 900) -> None:
    """Until the sensor watches all jobs, nothing waits to be sent, and the worker has saved each script."""
    end, calm = time.monotonic() + seconds, 0
    while calm < 3:
        if time.monotonic() > end:
            raise TimeoutError(f"{plant.jobs} jobs were not taken up within {seconds:.0f} s")
        await asyncio.sleep(1)
        try:
            metrics = await asyncio.to_thread(plant.sensor_metrics)
        except OSError:
            continue  # it is still starting
        ready = metrics.get("relight_sensor_jobs") == plant.jobs
        ready = ready and metrics.get("relight_sensor_outbox_signals", 1) < max(5, plant.jobs / 50)
        ready = ready and plant.bench("calls").get("worker scontrol write", 0) >= plant.jobs
        calm = calm + 1 if ready else 0


async def at_rest(plant: Plant, seconds: float) -> dict[str, Any]:
    """What all that costs while every job trains: CPU, memory, calls to the scheduler, the sensor's lag."""
    used = plant.used()
    cpu, calls, began = _cpu(used), plant.bench("calls"), time.monotonic()
    lags: list[float] = []
    while time.monotonic() - began < seconds:
        await asyncio.sleep(min(5.0, seconds / 4))
        metrics = await asyncio.to_thread(plant.sensor_metrics)
        lags.append(metrics.get("relight_sensor_log_lag_seconds", 0.0))
    passed = time.monotonic() - began
    after, calls_after = _cpu(used), plant.bench("calls")
    by_call = {name: count - calls.get(name, 0) for name, count in calls_after.items()}
    return {
        "seconds": round(passed, 1),
        "cpu_percent": {name: round(100 * (after[name] - cpu[name]) / passed, 1) for name in used},
        "memory_mb": {name: round(one.memory() / 1e6, 1) for name, one in used.items()},
        "calls_per_minute": {name: round(count * 60 / passed, 1) for name, count in by_call.items() if count},
        "sensor_calls_per_minute": round(_of(by_call, "sensor") * 60 / passed, 1),
        "worker_calls_per_minute": round(_of(by_call, "worker") * 60 / passed, 1),
        "log_lag_seconds": [round(lag, 2) for lag in lags],
    }


def _cpu(used: dict[str, Used]) -> dict[str, float]:
    return {name: one.cpu() for name, one in used.items()}


def _of(calls: dict[str, int], side: str) -> int:
    return sum(count for name, count in calls.items() if name.startswith(side))


async def histories(plant: Plant) -> Parts:
    """The parts of some monitors' histories."""
    found = Parts()
    sampled = 0
    async for execution in plant.client.list_workflows(f"WorkflowType = '{MONITOR_WORKFLOW}'"):
        history = await plant.client.get_workflow_handle(
            execution.id, run_id=execution.run_id
        ).fetch_history()
        found += parts(history.events)
        sampled += 1
        if sampled == SAMPLED:
            break
    return found


async def faults(plant: Plant, count: int, every: float) -> list[dict[str, float]]:
    """Lets jobs fail one after the other, and follows each recovery to its end.

    Args:
        plant: the processes, whose jobs are all watched.
        count: how many faults.
        every: seconds from one to the next; with fewer jobs than faults the next one waits for the job.

    Returns:
        For each fault the seconds of its phases.
    """
    rows: list[dict[str, float]] = []
    if plant.jobs >= count:
        numbers = [1 + n * plant.jobs // count for n in range(count)]
        times = {}
        for number in numbers:
            times[number] = datetime.fromisoformat(plant.bench("fail", str(number), str(number)))
            await asyncio.sleep(every)
        for number, at in times.items():
            rows.append(await _phases(plant.client, number, at, 0))
        return rows
    for turn in range(count):
        at = datetime.fromisoformat(plant.bench("fail", "1", "1"))
        rows.append(await _phases(plant.client, 1, at, turn))
        await asyncio.sleep(every + 4)  # the sensor has to hear that the new attempt trains
    return rows


async def _phases(client: Client, number: int, at: datetime, earlier: int) -> dict[str, float]:
    """Follows the recovery of a job, which is its first after so many earlier ones."""
    query = f"WorkflowType = '{RECOVERY_WORKFLOW}' AND RelightJobId = '{number}'"
    end = time.monotonic() + 300
    while True:
        found = sorted([w async for w in client.list_workflows(query)], key=lambda w: w.start_time)
        if len(found) > earlier:
            break
        if time.monotonic() > end:
            raise TimeoutError(f"no recovery of job {number} began")
        await asyncio.sleep(0.5)
    handle = client.get_workflow_handle(found[earlier].id, result_type=RecoveryOutcome)
    outcome = await asyncio.wait_for(handle.result(), 300)
    monitor = await anext(aiter(client.list_workflows(_monitor_of(number))))
    signaled = await _first_signal(client, monitor.id, at)
    times = outcome.times
    row = {
        "resumed": float(outcome.outcome.value == "resumed"),
        "detected": _seconds(at, times.detected),
        "signal_to_recovery": _seconds(signaled, found[earlier].start_time),
        "fault_to_recovery": _seconds(at, found[earlier].start_time),
        "acted": _seconds(at, times.acted),
        "running": _seconds(at, times.running),
        "productive": _seconds(at, times.productive),
    }
    return {name: round(value, 3) for name, value in row.items()}


def _monitor_of(number: int) -> str:
    return f"WorkflowType = '{MONITOR_WORKFLOW}' AND RelightJobId = '{number}'"


async def _first_signal(client: Client, monitor: str, since: datetime) -> datetime:
    """When the first anomaly of a fault arrived at the monitor."""
    history = await client.get_workflow_handle(monitor).fetch_history()
    for event in history.events:
        if (
            event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
            and event.workflow_execution_signaled_event_attributes.signal_name == "report_anomaly"
            and event.event_time.ToDatetime(UTC) >= since
        ):
            return event.event_time.ToDatetime(UTC)
    raise ValueError(f"the history of {monitor} has no anomaly since {since}")


def _seconds(begin: datetime, end: datetime | None) -> float:
    return float("nan") if end is None else (end - begin).total_seconds()


async def storm(plant: Plant, seconds: float) -> dict[str, Any]:
    """Lets all jobs fail at once, and waits until the recoveries are over.

    Returns:
        How long it took, how many of them ended how, and the course of it.
    """
    used = plant.used()
    cpu, began = _cpu(used), time.monotonic()
    plant.bench("fail", "1", str(plant.jobs))
    course: list[tuple[float, int, int]] = []
    while time.monotonic() - began < seconds:
        await asyncio.sleep(2)
        states = plant.bench("state")
        back = states["states"].get(JobState.RUNNING.value, 0)
        ended = await plant.client.count_workflows(
            f"WorkflowType = '{RECOVERY_WORKFLOW}' AND ExecutionStatus != 'Running'"
        )
        course.append((round(time.monotonic() - began, 1), back, ended.count))
        if ended.count >= plant.jobs:
            break
    passed, after = time.monotonic() - began, _cpu(used)
    outcomes: dict[str, int] = {}
    taken: dict[str, list[float]] = {}
    async for outcome in _outcomes(plant.client):
        outcomes[outcome.outcome.value] = outcomes.get(outcome.outcome.value, 0) + 1
        for name in ("detected", "acted", "running", "productive"):
            if (at := getattr(outcome.times, name)) is not None and outcome.times.occurred is not None:
                taken.setdefault(name, []).append((at - outcome.times.occurred).total_seconds())
    return {
        "faults": plant.jobs,
        "seconds": round(passed, 1),
        "outcomes": outcomes,
        "drained": sum(outcomes.values()) >= plant.jobs,
        "all_running_again_seconds": next((at for at, back, _ in course if back >= plant.jobs), None),
        "phases": {
            name: {"p50": round(quantile(v, 0.5), 1), "p99": round(quantile(v, 0.99), 1)}
            for name, v in taken.items()
        },
        "cpu_seconds": {name: round(after[name] - cpu[name], 1) for name in used},
        "memory_mb": {name: round(one.memory() / 1e6, 1) for name, one in used.items()},
        "restarts": plant.bench("state")["restarts"],
        "course": course,
    }


async def _outcomes(client: Client) -> Any:
    query = f"WorkflowType = '{RECOVERY_WORKFLOW}'"
    async for execution in client.list_workflows(query):
        if execution.status is WorkflowExecutionStatus.COMPLETED:
            handle = client.get_workflow_handle(execution.id, result_type=RecoveryOutcome)
            yield await handle.result()


def summary(rows: Iterable[dict[str, float]]) -> dict[str, dict[str, float]]:
    """P50, P99 and the longest of each phase."""
    by_phase: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            if name != "resumed" and value == value:
                by_phase.setdefault(name, []).append(value)
    return {
        name: {"p50": quantile(v, 0.5), "p99": quantile(v, 0.99), "max": max(v)}
        for name, v in by_phase.items()
    }
