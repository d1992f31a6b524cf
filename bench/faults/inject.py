"""How faults are made. Each injector returns when and where it happened."""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.faults.stage import Stage
from tests.integration.lab import Training
from tests.integration.test_checkpoints import cut
from tests.integration.test_node_sensor import NodeSensor

RANK = 1
"""The rank that it happens to."""
XIDS = {
    79: "79, pid=1, GPU has fallen off the bus.",
    48: "48, pid=1, An uncorrectable double bit error (DBE) has been detected on GPU.",
    94: "94, pid=1, Contained: SM (0x1). RST: No, D-RST: No",
    13: "13, pid=1, Graphics SM Warp Exception on (GPC 1, TPC 0): Illegal Instruction",
    63: "63, pid=1, Row Remapper: New row marked for remapping",
}
URGENT = "#!/bin/bash\nsleep 3\n"


@dataclass
class Fault:
    """What was done."""

    at: datetime
    node: str = ""
    """The node that it happened to."""


@dataclass
class Scene:
    """One job, and what its fault needs."""

    stage: Stage
    training: Training
    nodes: tuple[str, ...] = ()
    """Of its first attempt."""
    sensors: list[NodeSensor] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    """What goes on behind the scene until the run is over."""

    @property
    def victim(self) -> str:
        """The node of `RANK`."""
        return self.nodes[RANK]


def now() -> datetime:
    """In UTC."""
    return datetime.now(UTC)


async def order(scene: Scene, kind: str, timeout: float = 20) -> Fault:
    """Orders a fault of the script, and waits until it has happened. `always KIND`: in every attempt."""
    fired = scene.training.dir / "faults-fired"
    before = set(fired.iterdir()) if fired.exists() else set()
    always, _, last = kind.rpartition(" ")
    # The same step again and again: a position in the data, or a line of the program.
    step = scene.training.last_step() + 3 if always else 0
    scene.training.fault(last, rank=RANK, step=step, always=bool(always))
    end = time.monotonic() + timeout
    while not (new := (set(fired.iterdir()) if fired.exists() else set()) - before):
        if time.monotonic() > end:
            raise TimeoutError(f"the script did not take the order {kind!r} within {timeout} s")
        await asyncio.sleep(0.02)
    return Fault(datetime.fromtimestamp(new.pop().stat().st_mtime, UTC), scene.victim)


async def nothing(scene: Scene, _: str) -> Fault:
    """Healthy training."""
    return Fault(now())


async def hang_at_start(scene: Scene, _: str) -> Fault:
    """The job's next attempt never makes its first step: the order is in place before it starts."""
    directory, slurm = scene.training.dir, scene.stage.lab.slurm
    (directory / "fault.json").write_text(json.dumps({"kind": "hang", "step": 0, "rank": RANK}))
    slurm.run("scontrol", "release", scene.training.job_id)
    fired = directory / "faults-fired"
    await scene.stage.lab.until_async("it hangs", lambda: fired.exists() and any(fired.iterdir()), 60)
    scene.nodes = slurm.nodes_of(scene.training.job_id)
    return Fault(now(), scene.victim)


async def hang_at_restart(scene: Scene, _: str) -> Fault:
    """A rank raises, and in the attempt that follows it stops before the first step."""
    fault = await order(scene, "exception")
    (scene.training.dir / "fault.json").write_text(json.dumps({"kind": "hang", "step": 0, "rank": RANK}))
    return fault


async def disk_full(scene: Scene, _: str) -> Fault:
    """Fills the file system of the checkpoints."""
    ballast = os.open(scene.training.dir / "checkpoints" / "ballast", os.O_WRONLY | os.O_CREAT)
    try:
        for size in (1 << 20, 1 << 12):  # to the last page
            with contextlib.suppress(OSError):
                while True:
                    os.write(ballast, bytes(size))
    finally:
        os.close(ballast)
    return Fault(now())


async def cut_checkpoint(scene: Scene, _: str) -> Fault:
    """Just after a save, cuts off what was saved, and crashes."""
    directory = scene.training.dir / "checkpoints"
    newest = await _next_checkpoint(scene, directory)
    cut(newest)
    return await order(scene, "exception")


async def bad_pointer(scene: Scene, _: str) -> Fault:
    """Just after a save, the file `latest` names nothing any more, and the job crashes."""
    directory = scene.training.dir / "checkpoints"
    await _next_checkpoint(scene, directory)
    (directory / "latest").write_bytes(b"step_0000\0\0\0")
    return await order(scene, "exception")


async def _next_checkpoint(scene: Scene, directory: Path) -> Path:
    pointer = directory / "latest"
    before = pointer.read_text() if pointer.exists() else ""
    await scene.stage.lab.until_async(
        "a save", lambda: pointer.exists() and pointer.read_text() != before, 30, 0.02
    )
    return directory / pointer.read_text()


async def xid(scene: Scene, argument: str) -> Fault:
    """The kernel log of the victim says an Xid; then the script's own fault, if there is one to follow."""
    number, _, kind = argument.partition(" ")
    sensor = next(s for s in scene.sensors if s.node == scene.victim)
    at = sensor.kernel_says(f"NVRM: Xid (PCI:0000:3b:00): {XIDS[int(number)]}")
    if kind:
        await order(scene, kind)
    return Fault(at, scene.victim)


async def node_loss(scene: Scene, _: str) -> Fault:
    """Kills slurmd and all tasks of the victim."""
    at = now()
    scene.stage.lab.slurm.kill_node(scene.victim)
    return Fault(at, scene.victim)


async def node_frozen(scene: Scene, _: str) -> Fault:
    """Stops slurmd of the victim, and leaves its tasks alone."""
    at = now()
    scene.stage.lab.slurm.freeze_node(scene.victim)
    return Fault(at, scene.victim)


async def bad_node(scene: Scene, _: str) -> Fault:
    """From now on whatever the job starts on the victim is killed after 2 s: other jobs are others' runs."""
    scene.stage.switch(f"bad.{scene.training.job_id}", scene.victim).touch()
    return await order(scene, "sigkill")


async def prolog(scene: Scene, when: str) -> Fault:
    """The prolog of a node fails, when the job starts or when it starts again."""
    return await _at_a_start(scene, when, lambda node: scene.stage.switch("prolog", node).touch())


async def launch(scene: Scene, when: str) -> Fault:
    """A node cannot write the script of the job: a file is where its directory should be. Only once."""
    spool = scene.stage.lab.slurm.root / "spool"
    name = f"job{int(scene.training.job_id):05d}"

    def block(node: str) -> None:
        def put() -> None:
            (spool / node / name).write_text("in the way")

        scene.tasks.append(asyncio.create_task(_once(scene, put, spool / node / name)))

    return await _at_a_start(scene, when, block)


async def _once(scene: Scene, put: Callable[[], None], path: Path) -> None:
    """Puts the file there once the old attempt has left, and takes it away after Slurm has met it."""
    slurm = scene.stage.lab.slurm
    while path.is_dir():  # noqa: ASYNC110 - slurmd removes it
        await asyncio.sleep(0.02)
    put()
    reason = ("squeue", "-h", "-o", "%r", "-j", scene.training.job_id)
    while "launch failed" not in slurm.run(*reason, check=False):  # noqa: ASYNC110 - Slurm says it
        await asyncio.sleep(0.2)
    path.unlink(missing_ok=True)


async def _at_a_start(scene: Scene, when: str, block: Callable[[str], None]) -> Fault:
    """Blocks the node on which the job will start: when it is released, or when it starts again."""
    slurm = scene.stage.lab.slurm
    if when == "start":
        first = slurm.nodes[0]
        block(first)
        await asyncio.sleep(0.1)
        at = now()
        slurm.run("scontrol", "release", scene.training.job_id)
        return Fault(at, first)
    block(scene.nodes[0])
    await asyncio.sleep(0)
    fault = await order(scene, "exception")
    return Fault(fault.at, scene.nodes[0])


async def preemption(scene: Scene, _: str) -> Fault:
    """A job of higher priority on the very same nodes; waits until it has taken them."""
    at, lab = now(), scene.stage.lab
    nodes = ",".join(scene.nodes)
    lab.slurm.sbatch(URGENT, "-p", "urgent", "-N", "2", "-w", nodes, "--exclusive", "-o", "/dev/null")
    await lab.until_async("the job is preempted", lambda: scene.training.restarts() > 0, 30)
    return Fault(at)


async def time_limit(scene: Scene, _: str) -> Fault:
    """Sets a limit of one minute, and waits until Slurm has ended the job for it."""
    slurm = scene.stage.lab.slurm
    slurm.run("scontrol", "update", f"JobId={scene.training.job_id}", "TimeLimit=1")
    await asyncio.to_thread(slurm.wait_job, scene.training.job_id, {"TIMEOUT", "COMPLETING"}, 150)
    return Fault(now())


async def scancel(scene: Scene, _: str) -> Fault:
    """As its owner would."""
    at = now()
    scene.stage.lab.slurm.run("scancel", scene.training.job_id)
    return Fault(at)


async def slurmctld_restart(scene: Scene, kind: str) -> Fault:
    """Kills slurmctld for five seconds; an order is carried out meanwhile."""
    slurm = scene.stage.lab.slurm
    await asyncio.sleep(6)  # slurmctld saves new jobs only some seconds later, and forgets the others
    at = now()
    slurm.kill_ctld()
    fault = await order(scene, kind) if kind else Fault(at)
    await asyncio.sleep(5)
    await asyncio.to_thread(slurm.start_ctld)
    return fault


async def sensor_restart(scene: Scene, _: str) -> Fault:
    """The sensor is away for three seconds, and a rank crashes just then."""
    lab = scene.stage.lab
    lab.sensor.kill()
    fault = await order(scene, "exception")
    await asyncio.sleep(3)
    lab.sensor.start()
    return fault


async def worker_kill(scene: Scene, _: str) -> Fault:
    """The worker is killed four seconds after a crash, in the middle of the recovery, and started again."""
    lab = scene.stage.lab
    fault = await order(scene, "exception")
    await asyncio.sleep(4)
    lab.worker.kill()
    await asyncio.sleep(2)
    lab.worker.start()
    return fault


INJECTORS: dict[str, Callable[[Scene, str], Awaitable[Fault]]] = {
    injector.__name__: injector
    for injector in (
        order, nothing, hang_at_start, hang_at_restart, disk_full, cut_checkpoint, bad_pointer, xid,
        node_loss, node_frozen, bad_node, prolog, launch, preemption, time_limit, scancel,
        slurmctld_restart, sensor_restart, worker_kill,
    )
}  # fmt: skip


@contextlib.asynccontextmanager
async def node_sensors(scene: Scene, wanted: bool) -> AsyncIterator[None]:
    """A sensor on the victim, where the fault is one that a node sensor sees."""
    try:
        if wanted:
            scene.sensors.append(await asyncio.to_thread(NodeSensor, scene.stage.lab, scene.victim))
        yield
    finally:
        for sensor in scene.sensors:
            sensor.process.kill()
        for task in scene.tasks:
            task.cancel()
