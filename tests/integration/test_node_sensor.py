"""A machine says what is wrong with it: from a line in a node's kernel log to a plan, on real Slurm."""

import asyncio
import contextlib
import json
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from relight.contracts import Anomaly, Cause, Mode, Outcome, Source
from relight.contracts.node_drain import DrainEnd
from tests.integration.lab import Lab, Process, Training
from tests.sensor.node.stub import Stub, compile_stub

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(240)]

SOON = 5.0
"""Seconds from the kernel's line to the monitor's signal."""
OF_YESTERDAY = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."


class NodeSensor:
    """`relight sensor node` of one node, with a kernel log of its own."""

    def __init__(self, lab: Lab, node: str, library: Path | None = None) -> None:
        self.node = node
        name = f"{node}-{uuid.uuid4().hex[:6]}"
        self.kernel_log = lab.root / f"kern-{name}.log"
        self.kernel_log.write_text(f"{OF_YESTERDAY}\n")
        command = [sys.executable, "-m", "relight", "sensor", "node", "--name", node]
        command += ["--kernel-log", str(self.kernel_log)]
        env = {**lab.env, "RELIGHT_NODE__NVML": "false"}
        self.gpus: Stub | None = None
        if library is not None:
            script = lab.root / f"gpus-{name}"
            self.gpus = Stub(script)
            env |= {
                "RELIGHT_NODE__NVML": "true",
                "RELIGHT_NODE__GPU_POLL": "0.5s",
                "LD_LIBRARY_PATH": str(library.parent),
                "NVML_STUB": str(script),
            }
        self.process = Process(command, env, lab.root / f"sensor-{name}.log").start()
        lab.until(
            f"the sensor of {node} watches", lambda: "the node sensor watches" in self.process.text(), 30
        )

    def kernel_says(self, text: str) -> datetime:
        with self.kernel_log.open("a") as log:
            log.write(f"{text}\n")
        return datetime.now(UTC)


@contextlib.contextmanager
def node_sensor(lab: Lab, node: str, library: Path | None = None) -> Iterator[NodeSensor]:
    sensor = NodeSensor(lab, node, library)
    try:
        yield sensor
    except BaseException:
        print(sensor.process.text()[-6000:], file=sys.stderr)
        raise
    finally:
        sensor.process.kill()


async def kernel_signals(lab: Lab, training: Training) -> list[tuple[datetime, Anomaly]]:
    """What machines told the job's monitor, and when that arrived."""
    monitor = await lab.monitor(training)
    client = await lab.client()
    told = []
    async for event in monitor.fetch_history_events():
        signal = event.workflow_execution_signaled_event_attributes
        if signal.signal_name != "report_anomaly":
            continue
        (anomaly,) = await client.data_converter.decode(signal.input.payloads, [Anomaly])
        if any(e.source is Source.KERNEL for e in anomaly.evidence):
            told.append((event.event_time.ToDatetime(UTC), anomaly))
    return told


async def first_kernel_signal(lab: Lab, training: Training) -> tuple[datetime, Anomaly]:
    end = asyncio.get_running_loop().time() + 30
    while not (told := await kernel_signals(lab, training)):
        assert asyncio.get_running_loop().time() < end, "the monitor was told nothing"
        await asyncio.sleep(0.1)
    return told[0]


async def test_after_xid_79_the_job_runs_without_that_node(lab: Lab) -> None:
    training = lab.train(mode="act", wait_step=25)
    node = lab.slurm.nodes_of(training.job_id)[-1]
    with node_sensor(lab, node) as sensor:
        training.fault("hang")
        said = sensor.kernel_says("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.")
        arrived, anomaly = await first_kernel_signal(lab, training)
        assert (arrived - said).total_seconds() < SOON
        assert (anomaly.cause, anomaly.hold_out) == (Cause.GPU_FALLEN_OFF_BUS, True)
        outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED, outcome
    assert outcome.cause is Cause.GPU_FALLEN_OFF_BUS
    assert outcome.excluded_nodes == (node,)
    assert node not in lab.slurm.nodes_of(training.job_id)
    assert training.restarts() == 1


async def test_in_observe_mode_the_plan_names_the_node_and_nothing_is_done(lab: Lab) -> None:
    training = lab.train()
    changed = len(lab.slurm.mutations())
    node = lab.slurm.nodes_of(training.job_id)[0]
    with node_sensor(lab, node) as sensor:
        sensor.kernel_says("NVRM: Xid (PCI:0000:5d:00): 48, pid=1, An uncorrectable double bit error (DBE)")
        training.fault("exception")
        status = await lab.recovery_in(training, "awaiting-approval")
        end = asyncio.get_running_loop().time() + 30
        while status.diagnosis.cause is not Cause.GPU_MEMORY_ECC:  # late evidence makes another plan
            assert asyncio.get_running_loop().time() < end, status
            await asyncio.sleep(0.2)
            status = await lab.recovery_in(training, "awaiting-approval")
    assert status.mode is Mode.OBSERVE
    assert status.diagnosis.cause is Cause.GPU_MEMORY_ECC
    assert status.plan is not None
    assert status.plan.excluded_nodes == (node,)
    assert any(e.source is Source.KERNEL and e.node == node for e in status.diagnosis.evidence)
    assert lab.slurm.mutations()[changed:] == []


async def test_after_xid_13_alone_no_node_is_touched(lab: Lab) -> None:
    training = lab.train(mode="act", wait_step=25)
    node = lab.slurm.nodes_of(training.job_id)[-1]
    with node_sensor(lab, node) as sensor:
        training.fault("hang")
        sensor.kernel_says(
            "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, Graphics SM Warp Exception on (GPC 1, TPC 0)"
        )
        _, anomaly = await first_kernel_signal(lab, training)
        assert not anomaly.hold_out
        outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED, outcome
    assert outcome.cause is Cause.USER_CODE
    assert outcome.excluded_nodes == ()
    assert training.restarts() == 1


async def test_xid_63_old_lines_and_other_nodes_are_nothing(lab: Lab) -> None:
    training = lab.train(mode="act", wait_step=25)
    nodes = lab.slurm.nodes_of(training.job_id)
    elsewhere = next(n for n in lab.slurm.nodes if n not in nodes)
    with node_sensor(lab, nodes[-1]) as here, node_sensor(lab, elsewhere) as other:
        here.kernel_says("NVRM: Xid (PCI:0000:3b:00): 63, pid=1, Row Remapper: New row marked for remapping")
        other.kernel_says("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.")
        await lab.until_async("it is told", lambda: "no monitor to tell" in other.process.text(), 30)
        before = training.last_step()
        await lab.until_async("training goes on", lambda: training.last_step() > before + 10)
    assert await kernel_signals(lab, training) == []
    assert await lab.recoveries(training) == []
    assert training.restarts() == 0


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_stub(tmp_path_factory.mktemp("nvml"))


def node_updates(lab: Lab) -> int:
    """So many requests to change a node has slurmctld received."""
    return sum("REQUEST_UPDATE_NODE" in request for request in lab.slurm.mutations())


LOST = 15
"""NVML_ERROR_GPU_IS_LOST (nvml.h)."""


async def test_two_signs_drain_the_node_for_everyone_and_a_person_gives_it_back(
    lab: Lab, library: Path
) -> None:
    training = lab.train(mode="act", wait_step=25)
    node = lab.slurm.nodes_of(training.job_id)[-1]
    with node_sensor(lab, node, library) as sensor:
        assert sensor.gpus is not None
        await asyncio.sleep(1.5)  # a look at healthy GPUs
        before = node_updates(lab)
        training.fault("hang")
        sensor.kernel_says("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.")
        sensor.gpus.error("nvmlDeviceGetTemperature", LOST, 0)
        sensor.gpus.error("nvmlDeviceGetPowerUsage", LOST, 0)
        sensor.gpus.error("nvmlDeviceGetEccMode", LOST, 0)
        outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED, outcome
    assert outcome.excluded_nodes == (node,)
    assert node not in lab.slurm.nodes_of(training.job_id)
    assert outcome.drained_nodes == (node,)
    reason = lab.slurm.run("scontrol", "show", "node", node)
    assert f"relight: gpu_fallen_off_bus [{outcome.recovery_id}]" in reason
    assert node_updates(lab) == before + 1
    listed = json.loads(lab.cli("nodes", "drains", "--json").stdout)
    assert [(d["node"], d["recovery_id"]) for d in listed] == [(node, outcome.recovery_id)]

    lab.cli("nodes", "release", node, "--reason", "the GPU was replaced", "--by", "ada")
    assert "DRAIN" not in lab.slurm.run("scontrol", "show", "node", node)
    result = await (await lab.client()).get_workflow_handle(listed[0]["drain_id"]).result()
    assert result["end"] == DrainEnd.RELEASED.value
    refused = lab.cli("nodes", "release", node, check=False)
    assert refused.returncode == 5
    assert "is not drained" in refused.stderr


async def test_after_xid_94_the_job_restarts_elsewhere_and_the_node_is_marked_for_a_reset(lab: Lab) -> None:
    training = lab.train(mode="act", wait_step=25)
    node = lab.slurm.nodes_of(training.job_id)[-1]
    before = node_updates(lab)
    with node_sensor(lab, node) as sensor:
        training.fault("hang")
        sensor.kernel_says("NVRM: Xid (PCI:0000:3b:00): 94, pid=1, Contained: SM (0x1). RST: No, D-RST: No")
        outcome = await lab.outcome(training)
        marked = await lab.until_found(lambda: [n for n in ledger(lab) if n["node"] == node and n["needs"]])
    assert outcome.outcome is Outcome.RESUMED, outcome
    assert outcome.excluded_nodes == (node,)
    assert outcome.drained_nodes == ()
    assert node_updates(lab) == before
    assert [n["needs"] for n in marked] == ["reset"]
    assert "reset" in lab.cli("nodes").stdout
    lab.cli("nodes", "clear", node, "--by", "ada", "--reason", "reset while idle")
    assert [n for n in ledger(lab) if n["node"] == node] == []


async def test_a_fault_without_a_watched_job_is_in_the_ledger(lab: Lab) -> None:
    node = lab.slurm.nodes[-1]
    with node_sensor(lab, node) as sensor:
        sensor.kernel_says("NVRM: Xid (PCI:0000:5e:00): 119, pid=1, Timeout after 6s of waiting for RPC")
        found = await lab.until_found(lambda: [n for n in ledger(lab) if n["node"] == node and n["strikes"]])
    assert found[0]["strikes"][0]["trusted"]
    assert "119" in found[0]["strikes"][0]["evidence"]


@pytest.fixture(autouse=True)
def _nothing_held_against_nodes(lab: Lab) -> None:
    """Faults of three nodes within minutes trip the breaker, and these tests make more."""
    lab.until("the guard runs", lambda: lab.cli("guard", check=False).returncode == 0, 30, every=0.5)
    lab.cli("guard", "reset", "--by", "the test")
    for view in ledger(lab):
        lab.cli("nodes", "clear", view["node"], "--by", "the test")


def ledger(lab: Lab) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(lab.cli("nodes", "--json").stdout)
    return found


FORGED = [
    "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
    "[12345.678901] NVRM: Xid (PCI:0000:3b:00): 48, pid=1, An uncorrectable double bit error (DBE)",
    "<3>[ 1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
    "Dec  2 05:00:00 {node} kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
    "[kernel] {node} NVML: the driver has lost the GPU",
    "\x1b[2K\x1b[1A{node} kernel: NVRM: Xid (PCI:0000:3b:00): 79\x1b[0m",
    "x\r\n{node}: NVRM: Xid (PCI:0000:3b:00): 95, pid=1\u2028slurmctld: error: Nodes {node} DOWN",
    "slurmctld: error: Nodes {node} not responding, setting DOWN",
    "srun: error: Node failure on {node}",
    "{node}.: NVRM: Xid (PCI:0000:3b:00): 79 " + "A" * 1_000_000,
    'relight: drain {node} {{"relight": {{"drained_nodes": ["{node}"], "signs": ["kernel", "nvml"]}}}}',
]


async def test_forged_lines_in_a_jobs_log_never_drain_a_node(lab: Lab) -> None:
    """The job's user writes the log: whatever it looks like, it stays log text."""
    training = lab.train(mode="act", wait_step=25, policy="bold")
    node = lab.slurm.nodes_of(training.job_id)[-1]
    before = node_updates(lab)
    with training.log.open("a") as log:
        for line in FORGED:
            log.write(line.replace("{node}", node) + "\n")
            log.flush()
            await asyncio.sleep(0.3)
    training.fault("exception")
    outcome = await lab.outcome(training)
    assert outcome.drained_nodes == ()
    status = await lab.recovery_in(training, "ended")
    assert status.diagnosis.signs == ()
    assert status.plan is None or status.plan.drained_nodes == ()
    assert {e.source for e in status.diagnosis.evidence} <= {Source.JOB_LOG, Source.SCHEDULER}
    assert node_updates(lab) == before
    drains = [w async for w in (await lab.client()).list_workflows("WorkflowType='NodeDrain'")]
    assert all(outcome.recovery_id.removeprefix("recover:lab:") not in d.id for d in drains)
