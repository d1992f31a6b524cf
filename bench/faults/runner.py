"""Runs: one job, one fault, and what came of it; several at once where faults are a job's own."""

import asyncio
import os
import random
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench.faults.follow import Follower
from bench.faults.inject import INJECTORS, Scene, node_sensors
from bench.faults.plan import Due
from bench.faults.record import Run
from bench.faults.scenarios import BY_NAME, Ending, Scenario, Start
from bench.faults.stage import STARTS_FILE, Stage
from relight.contracts import Outcome
from tests.slurm.cluster import ClusterError

FIRST_STEPS = 12
"""So many steps, and a checkpoint, before anything happens."""
HEALTHY = (4.0, 16.0)
"""The shortest and the longest healthy stretch before a fault, in seconds."""
START = 90.0


async def one_run(stage: Stage, scenario: Scenario, number: int, lanes: int) -> Run:
    """One job from its submission to its end."""
    dice = random.Random(f"{scenario.name} {number}")
    began = datetime.now(UTC)
    name = f"{scenario.name}-{number}-{began:%H%M%S}"
    held = scenario.start is Start.HELD
    training = stage.submit(name, tmpfs=scenario.start is Start.TMPFS, hold=held)
    run = Run(scenario=scenario.name, number=number, began=began, jobs_at_once=lanes, job_id=training.job_id)
    scene = Scene(stage, training)
    touched: set[str] = set()
    try:
        return await _play(run, scene, scenario, touched, healthy=scenario.healthy + dice.uniform(*HEALTHY))
    except (AssertionError, TimeoutError, ClusterError) as error:
        problem = f"{type(error).__name__}: {error}"[:1000]
        return run.model_copy(update={"problem": problem, "log_tail": log_tail(scene)})
    finally:
        for task in scene.tasks:
            task.cancel()
        await asyncio.to_thread(stage.tidy, training, tuple(touched | set(scene.nodes)))


async def _play(run: Run, scene: Scene, scenario: Scenario, touched: set[str], healthy: float) -> Run:
    training, follower = scene.training, Follower(scene, scenario)
    begun = time.monotonic()
    seen: dict[str, object] = {}
    if scenario.start is not Start.HELD:
        lab = scene.stage.lab
        await lab.until_async("the first steps", lambda: training.last_step() >= FIRST_STEPS, START)
        scene.nodes = lab.slurm.nodes_of(training.job_id)
        seen["start_seconds"] = time.monotonic() - begun
        await follower.watched()
    injector, _, argument = scenario.inject.partition(":")
    async with node_sensors(scene, wanted=injector == "xid"):
        if scenario.start is not Start.HELD:
            calm = time.monotonic()
            await asyncio.sleep(healthy)
            await follower.look()
            seen["healthy_seconds"] = time.monotonic() - calm
        before = await follower.recoveries()
        seen |= {"false_alarms": before, "load": os.getloadavg()[0]}
        fault = await INJECTORS[injector](scene, argument)
        touched.add(fault.node or (scene.nodes[0] if scene.nodes else scene.stage.lab.slurm.nodes[0]))
        step = training.last_step()
        await follower.until_over(step, len(before))
        recoveries = (await follower.recoveries())[len(before) :]
    if scenario.ending is Ending.UNTOUCHED:
        seen["healthy_seconds"] = time.monotonic() - calm
        seen["false_alarms"] = (*before, *recoveries)
    status = follower.status
    job = training.info()
    touched.update(scene.stage.lab.slurm.nodes_of(training.job_id))
    run = run.model_copy(
        update={
            **seen,
            "victim": fault.node,
            "fault_at": fault.at,
            "fault_step": step,
            "recoveries": recoveries,
            "asked_at": follower.asked_at,
            "approved_at": follower.approved_at,
            "first_steps": first_steps(training.dir),
            "restarts": int(job["Restarts"]),
            "job_state": f"{job['JobState']} {job['Reason']}",
            "last_step": training.last_step(),
            "trains": follower.trains(step),
            "end": status.end if status else None,
            "end_detail": status.end_detail if status else "not watched",
            "noticed": status.noticed if status else (),
            "missed": status.missed if status else 0,
        }
    )
    good = any(o.outcome is Outcome.RESUMED for o in run.outcomes)
    return run if good else run.model_copy(update={"log_tail": log_tail(scene)})


def first_steps(directory: Path) -> tuple[datetime, ...]:
    """When each attempt of the training in this directory was through its first step."""
    noted = directory / STARTS_FILE
    lines = noted.read_text().split() if noted.exists() else []
    return tuple(datetime.fromtimestamp(float(line), UTC) for line in lines)


def log_tail(scene: Scene) -> str:
    """The last lines of the job's log."""
    log = scene.training.log
    return log.read_text(errors="replace")[-3000:] if log.exists() else ""


async def run_all(
    stage: Stage, due: list[Due], lanes: int, keep: Callable[[Run], None], deadline: float
) -> None:
    """Runs what is due, round by round: a job's own faults `lanes` at once, then the cluster's, one by one.

    Args:
        stage: where.
        due: in this order.
        lanes: jobs at once.
        keep: is given each run as soon as it is over.
        deadline: on the clock of `time.monotonic`; nothing begins after it.
    """

    async def lane(waiting: deque[Due], at_once: int) -> None:
        while waiting and time.monotonic() < deadline:
            name, number = waiting.popleft()
            keep(await one_run(stage, BY_NAME[name], number, at_once))

    for number in sorted({n for _, n in due}):
        mine = [d for d in due if d[1] == number]
        shared = deque(d for d in mine if not BY_NAME[d[0]].alone)
        await asyncio.gather(*(lane(shared, lanes) for _ in range(lanes)))
        await lane(deque(d for d in mine if BY_NAME[d[0]].alone), 1)
