"""`relight guard`, `nodes`, `pause`, `unpause` and `why`, with the real workflows on a real Temporal."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker
from typer.testing import Result

from relight.cli.devserver import DevServer
from relight.cli.watch import start_monitor
from relight.cli.why import closed_gates
from relight.config import Settings
from relight.contracts import Cause, Mode, TrainingJob
from relight.contracts.guard import GuardLimits, GuardStatus, NodeReport
from relight.contracts.ids import NODE_DRAIN_WORKFLOW, guard_id, monitor_id, node_drain_id
from relight.contracts.messages import EndReason, MonitorStatus, RecoveryStatus
from relight.contracts.node_drain import NodeDrainInput
from relight.guarding import start_guard
from relight.policy.choose import Cap
from relight.policy.file import parse
from tests.relight.cli.conftest import Relight, Temporal
from tests.relight.cli.stand_ins import PLAN
from tests.workflows import samples
from tests.workflows.world import World, activities
from workflows import WORKFLOWS

pytestmark = pytest.mark.temporal

QUEUE = "guarded"


@pytest.fixture(scope="module", autouse=True)
def _worker(server: DevServer) -> Iterator[None]:
    started, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        client = await Client.connect(server.address, data_converter=pydantic_data_converter)
        options: dict[str, Any] = {"workflows": list(WORKFLOWS), "activities": activities(World())}
        async with Worker(client, task_queue=QUEUE, **options):
            started.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(30)
        yield
    finally:
        stop.set()
        thread.join(30)


@pytest.fixture
def cluster(job_id: str) -> str:
    return f"c{job_id}"


@pytest.fixture
def run(relight: Relight, cluster: str) -> Callable[..., Result]:
    def one(*args: str) -> Result:
        return relight(*args, RELIGHT_TASK_QUEUE=QUEUE, RELIGHT_CLUSTER=cluster)

    return one


@pytest.fixture
def guarded(temporal: Temporal, cluster: str) -> str:
    """A cluster whose guard runs; its name."""
    temporal(lambda client: start_guard(client, QUEUE, cluster, GuardLimits()))
    return cluster


def watch(temporal: Temporal, cluster: str, job_id: str, *, guard: bool = True) -> TrainingJob:
    attempt = samples.attempt(job_id=job_id).model_copy(update={"cluster": cluster})
    job = samples.job(Mode.OBSERVE, cluster=cluster, attempt=attempt)
    settings = Settings(task_queue=QUEUE, guard=guard)
    temporal(lambda client: start_monitor(client, settings, job))
    return job


def fail(temporal: Temporal, job: TrainingJob) -> None:
    anomaly = samples.anomaly("a1", attempt=job.attempt)
    handle = monitor_id(job.attempt)
    temporal(lambda client: client.get_workflow_handle(handle).signal("report_anomaly", anomaly))


def until(ask: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    end = time.monotonic() + 30
    while not holds(answer := ask()):
        assert time.monotonic() < end, answer
        time.sleep(0.1)
    return answer


def why(run: Callable[..., Result], job_id: str) -> Any:
    return json.loads(run("why", job_id, "--json").stdout)


def test_guard_shows_budgets_and_breakers(run: Callable[..., Result], guarded: str) -> None:
    shown = run("guard")
    assert shown.exit_code == 0, shown.stderr
    for text in (f"cluster {guarded}", "recoveries at once", "drains per hour", "closed"):
        assert text in shown.stdout
    found = GuardStatus.model_validate_json(run("guard", "--json").stdout)
    assert (found.cluster, found.paused) == (guarded, False)


def test_without_a_guard_it_says_what_to_do(run: Callable[..., Result]) -> None:
    for args in (("guard",), ("nodes",), ("guard", "reset")):
        done = run(*args)
        assert done.exit_code == 5
        assert "relight worker" in done.stderr


def test_nodes_and_a_reset(run: Callable[..., Result], guarded: str, temporal: Temporal) -> None:
    assert "nothing is held against any node" in run("nodes").stdout

    async def faults(client: Client) -> None:
        for n in range(4):
            told = NodeReport(
                nodes=("bad[1]", f"n{n}"), cause=Cause.NVLINK, at=datetime.now(UTC), partition="gpu",
                job=f"{n}", evidence="Xid 74",
            )  # fmt: skip
            await client.get_workflow_handle(guard_id(guarded)).signal("report_node", told)

    temporal(faults)
    found = until(lambda: json.loads(run("nodes", "--json").stdout), lambda nodes: len(nodes) == 5)
    assert (found[0]["node"], found[0]["lemon"], found[0]["jobs"]) == ("bad[1]", True, 4)
    assert run("nodes", "clear", "n9").exit_code == 5
    assert "nothing is held against n3 any more" in run("nodes", "clear", "n3", "--by", "ada").stdout
    until(lambda: json.loads(run("nodes", "--json").stdout), lambda nodes: len(nodes) == 4)
    told = json.loads(run("report", "--json").stdout)["nodes"]
    assert [(node["node"], node["lemon"]) for node in told][:1] == [("bad[1]", True)]
    assert len(told) == 4
    listed = run("nodes", "--lemons").stdout
    assert "bad[1]" in listed
    assert "Xid 74" in listed
    assert "n1" not in listed
    assert "open" in run("guard").stdout
    unknown = run("guard", "reset", "--partition", "gpv")
    assert unknown.exit_code == 5
    assert "it has heard of: gpu" in unknown.stderr
    reset = run("guard", "reset", "--partition", "gpu", "--by", "ada")
    assert "the breaker of gpu is reset" in reset.stdout
    assert "still not closed: cluster" in reset.stdout
    assert "still" not in run("guard", "reset").stdout


def test_pause_and_unpause_of_the_cluster(
    run: Callable[..., Result], cluster: str, job_id: str, temporal: Temporal
) -> None:
    """It starts the guard where none runs, and reaches jobs that ask none."""
    alone = watch(temporal, cluster, job_id, guard=False)
    guarded = watch(temporal, cluster, f"{job_id}7")
    done = run("pause", "--cluster", "--reason", "storage is down", "--by", "ada")
    assert done.exit_code == 0, done.stderr
    assert f"cluster {cluster} is paused" in done.stdout
    assert "storage is down" in run("guard").stdout
    until(lambda: why(run, alone.attempt.job_id), lambda s: s["closed"][0]["gate"] == "job paused")
    gates = why(run, guarded.attempt.job_id)["closed"]
    assert [gate["gate"] for gate in gates] == ["mode", "cluster paused"]
    assert gates[1]["opens"] == "relight unpause --cluster"
    done = run("unpause", "--cluster")
    assert done.exit_code == 0, done.stderr
    assert "paused" not in run("guard").stdout
    until(lambda: why(run, alone.attempt.job_id), lambda s: s["closed"][0]["gate"] == "mode")


def test_pause_of_a_job_and_why(
    run: Callable[..., Result], guarded: str, job_id: str, temporal: Temporal
) -> None:
    job = watch(temporal, guarded, job_id)
    assert "closed: mode" in run("why", job_id).stdout
    fail(temporal, job)
    until(lambda: why(run, job_id), lambda s: s["state"] == "awaiting-approval")
    shown = run("why", job_id).stdout
    assert "closed: approval" in shown
    assert f"relight approve {job_id}" in shown
    assert f"job {job_id} is paused" in run("pause", job_id).stdout
    until(lambda: why(run, job_id), lambda s: s["closed"][0]["gate"] == "job paused")
    assert "goes on" in run("unpause", job_id).stdout
    until(lambda: why(run, job_id), lambda s: s["closed"][0]["gate"] == "approval")


@pytest.mark.parametrize("args", [("pause",), ("unpause",), ("pause", "1", "--cluster")])
def test_say_what_to_pause(run: Callable[..., Result], args: tuple[str, ...]) -> None:
    done = run(*args)
    assert done.exit_code == 2
    assert "--cluster" in done.stderr


def test_two_clusters_need_a_name(relight: Relight, guarded: str, temporal: Temporal) -> None:
    temporal(lambda client: start_guard(client, QUEUE, f"{guarded}b", GuardLimits()))
    done = until(lambda: relight("guard", RELIGHT_TASK_QUEUE=QUEUE), lambda done: "several" in done.stderr)
    assert done.exit_code == 2
    assert "relight --cluster" in done.stderr


JOB = samples.job()
DIAGNOSIS = samples.diagnosis()


def recovering(**fields: Any) -> RecoveryStatus:
    state = {"recovery_id": "recover:1", "state": "draining", "diagnosis": DIAGNOSIS, "plan": PLAN}
    return RecoveryStatus(**(state | fields))


@pytest.mark.parametrize(
    ("monitor", "recovery", "guard", "gone", "gates"),
    [
        (None, None, None, "", ["worker"]),
        (MonitorStatus(job=JOB, state="watching"), None, None, "", []),
        (MonitorStatus(job=JOB, state="ended", end=EndReason.STOPPED), None, None, "", ["watch"]),
        (MonitorStatus(job=JOB, state="paused", paused=True), None, None, "", ["job paused"]),
        (MonitorStatus(job=JOB, state="watching"), None, None, "no guard", ["guard"]),
        (
            MonitorStatus(job=JOB, state="recovering"),
            recovering(permit="waiting", permit_gate="recoveries per hour", permit_reason="200 began"),
            GuardStatus(cluster="lab"), "", ["recoveries per hour"],
        ),
        (
            MonitorStatus(job=JOB, state="recovering"),
            recovering(permit="waiting", permit_gate="cluster paused"),
            GuardStatus(cluster="lab", paused=True), "", ["cluster paused"],
        ),
        (
            MonitorStatus(job=JOB, state="recovering"), recovering(state="awaiting-approval"),
            GuardStatus(cluster="lab", paused=True), "", ["approval", "cluster paused"],
        ),
        (
            MonitorStatus(job=JOB, state="recovering"), recovering(permit="granted"),
            GuardStatus(cluster="lab"), "", [],
        ),
        (
            MonitorStatus(job=JOB, state="watching"), None,
            GuardStatus(cluster="lab", observes=True), "", ["cluster mode"],
        ),
        (
            MonitorStatus(job=JOB, state="ended", end=EndReason.UNWATCHED), recovering(state="verifying"),
            GuardStatus(cluster="lab"), "", ["watch"],
        ),
    ],
)  # fmt: skip
def test_the_closed_gates(
    monitor: MonitorStatus | None,
    recovery: RecoveryStatus | None,
    guard: GuardStatus | None,
    gone: str,
    gates: list[str],
) -> None:
    found = closed_gates(JOB, monitor, recovery, guard, gone, now=samples.T0)
    assert [gate.gate for gate in found] == gates
    assert all(gate.opens for gate in found)


def test_drains_are_listed_and_given_back(
    run: Callable[..., Result], guarded: str, temporal: Temporal
) -> None:
    assert "relight has drained no node" in run("nodes", "drains").stdout
    unknown = run("nodes", "release", "n2")
    assert unknown.exit_code == 5
    assert "relight has not drained a node 'n2'" in unknown.stderr

    async def drain(client: Client) -> None:
        start = NodeDrainInput(
            cluster=guarded, node="n2", cause=Cause.NVLINK, recovery_id="recover:gone", job="7.0",
            evidence_at=datetime.now(UTC), guard_id=guard_id(guarded),
        )  # fmt: skip
        await client.start_workflow(
            NODE_DRAIN_WORKFLOW, start, id=node_drain_id(guarded, "n2", "recover:gone"), task_queue=QUEUE
        )

    temporal(drain)
    (found,) = until(
        lambda: json.loads(run("nodes", "drains", "--json").stdout),
        lambda drains: [d["state"] for d in drains] == ["drained"],
    )
    assert (found["node"], found["cause"], found["job"]) == ("n2", "nvlink", "7.0")
    assert "n2" in run("nodes", "drains").stdout
    assert "n2 is given back" in run("nodes", "release", "n2", "--by", "ada").stdout


@pytest.mark.parametrize(
    ("mode", "policy", "restarted", "recovery", "gates"),
    [
        (Mode.ACT, {}, None, None, []),
        (Mode.OBSERVE, {}, None, None, ["partition", "mode"]),
        (Mode.OBSERVE, {"act": "never"}, None, None, ["policy", "partition", "mode"]),
        (Mode.ACT, {"cool_down": "1h"}, samples.T0, None, ["cool-down"]),
        (Mode.ACT, {"act": "approval"}, None, recovering(), ["policy"]),
        (Mode.ACT, {"act": "approval"}, None, recovering(state="awaiting-approval"), ["approval"]),
    ],
)
def test_the_gates_of_policy_and_policy_file(
    mode: Mode,
    policy: dict[str, Any],
    restarted: datetime | None,
    recovery: RecoveryStatus | None,
    gates: list[str],
) -> None:
    cap = Cap(gate="partition", why="partition cpu only observes", opens="add cpu to `act_in`")
    job = samples.job(mode, parse(json.dumps({"policies": {"p": policy}})).policy("p"))
    monitor = MonitorStatus(job=job, state="watching", last_restart=restarted)
    found = closed_gates(job, monitor, recovery, None, now=samples.T0, caps=(cap,))
    assert [gate.gate for gate in found] == gates


@pytest.mark.parametrize(
    ("end", "recovery", "why", "opens"),
    [
        (EndReason.UNWATCHED, None, "it is watched no more (unwatched)", "relight watch"),
        (EndReason.UNWATCHED, recovering(state="verifying"), "is still open (verifying)", "relight watch"),
        (EndReason.CANCELLED, None, "it is watched no more (cancelled)", "submit it anew"),
        (EndReason.COMPLETED, None, "it is watched no more (completed)", "submit it anew"),
    ],
)
def test_the_gate_of_a_watch_that_is_over(
    end: EndReason, recovery: RecoveryStatus | None, why: str, opens: str
) -> None:
    monitor = MonitorStatus(job=JOB, state="ended", end=end)
    (gate,) = closed_gates(JOB, monitor, recovery, None, now=samples.T0)
    assert gate.gate == "watch"
    assert why in gate.why
    assert opens in gate.opens
