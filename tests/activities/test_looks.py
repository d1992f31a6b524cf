"""The steps that ask the scheduler: isolate_nodes, wait_nodes_free, verify_running, hold_job, look_at_job."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from activities.hold_job import hold_job
from activities.isolate_nodes import isolate_nodes
from activities.look_at_job import look_at_job
from activities.snapshot_job import snapshot_job
from activities.verify_running import verify_running
from activities.wait_nodes_free import wait_nodes_free
from relight.contracts import Attempt, Cause, JobState
from relight.contracts.steps import (
    ATTEMPT_CHANGED,
    NOT_YET,
    RESUME_FAILED,
    TOO_FEW_NODES,
    UNREACHABLE,
    HoldInput,
    IsolateInput,
    NodesFreeInput,
    PollInput,
    VerifyInput,
)
from relight.policy.holds import LAUNCH_FAILED
from relight.scheduler.port import NotSupported
from tests.activities.conftest import FIRST, RECOVERY, Runner, training
from tests.activities.double import T0, Double, running

JOB = training()


# ---- isolate_nodes


def isolate(*nodes: str, readmitted: tuple[str, ...] = ()) -> IsolateInput:
    return IsolateInput(job=JOB, attempt=FIRST, nodes=nodes, readmitted=readmitted, recovery_id=RECOVERY)


async def test_isolate_merges_and_drops(run: Runner, double: Double) -> None:
    double.set(excluded_nodes=("n4",))
    result = await run(isolate_nodes, isolate("n2", "n99"))
    assert result.excluded_nodes == ("n2", "n4")
    assert (result.added, result.dropped) == (("n2",), ("n99",))
    assert "n99" in result.summary
    assert double.commands == []


async def test_isolate_counts_the_nodes_that_are_left(run: Runner, double: Double) -> None:
    double.lost_nodes = {"n3"}
    assert (await run(isolate_nodes, isolate("n2"))).excluded_nodes == ("n2",)
    message = await run.fails(isolate_nodes, isolate("n1", "n2"), TOO_FEW_NODES)
    assert "needs 2 nodes" in message
    assert "only 1 of 3" in message


async def test_isolate_an_exclusion_that_has_expired_makes_room(run: Runner, double: Double) -> None:
    double.set(excluded_nodes=("n1", "n4"))
    assert "only 1 of 4" in await run.fails(isolate_nodes, isolate("n3"), TOO_FEW_NODES)
    result = await run(isolate_nodes, isolate("n3", readmitted=("n1",)))
    assert (result.excluded_nodes, result.added) == (("n3", "n4"), ("n3",))
    assert "it may run again on n1" in result.summary


async def test_isolate_keeps_a_node_that_is_suspected_again(run: Runner, double: Double) -> None:
    double.set(excluded_nodes=("n1", "n4"))
    result = await run(isolate_nodes, isolate("n1", readmitted=("n1",)))
    assert (result.excluded_nodes, result.added) == (("n1", "n4"), ())


async def test_isolate_a_job_that_slurm_has_forgotten(run: Runner, double: Double) -> None:
    double.set(excluded_nodes=("n4",))
    await run(snapshot_job, PollInput(job=JOB))
    double.known.clear()
    assert (await run(isolate_nodes, isolate("n2"))).excluded_nodes == ("n2", "n4")


# ---- wait_nodes_free

HELD = FIRST.model_copy(update={"restart_count": 1, "submit_time": T0 + timedelta(hours=5)})


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"state": JobState.COMPLETING, "restart_count": 1, "held": True}, NOT_YET),
        ({"state": JobState.PENDING, "flags": ("COMPLETING",), "restart_count": 1, "held": True}, NOT_YET),
        ({"state": JobState.UNKNOWN, "restart_count": 1}, NOT_YET),
        ({"state": JobState.RUNNING, "restart_count": 1}, ATTEMPT_CHANGED),
        ({"state": JobState.PENDING, "restart_count": 2}, ATTEMPT_CHANGED),
        ({"state": JobState.PENDING, "restart_count": 1, "held": True}, None),
        ({"state": JobState.CANCELLED, "restart_count": 1}, None),
    ],
)
async def test_wait_nodes_free(run: Runner, double: Double, fields: dict[str, Any], kind: str | None) -> None:
    double.set(**fields)
    given = NodesFreeInput(job=JOB, attempt=HELD, nodes=("n1", "n2"))
    if kind is None:
        assert "no process" in await run(wait_nodes_free, given)
    else:
        await run.fails(wait_nodes_free, given, kind)


async def test_nothing_is_left_of_a_forgotten_job(run: Runner, double: Double) -> None:
    double.known.clear()
    assert "forgotten" in await run(wait_nodes_free, NodesFreeInput(job=JOB, attempt=FIRST, nodes=()))


# ---- verify_running


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({}, None),
        ({"state": JobState.COMPLETED}, None),
        ({"state": JobState.PENDING}, NOT_YET),
        ({"state": JobState.CONFIGURING}, NOT_YET),
        ({"flags": ("CONFIGURING",)}, NOT_YET),
        ({"state": JobState.COMPLETING}, NOT_YET),
        ({"state": JobState.COMPLETING, "reason": "NonZeroExitCode"}, RESUME_FAILED),
        ({"state": JobState.FAILED}, RESUME_FAILED),
        ({"state": JobState.TIMEOUT}, RESUME_FAILED),
        ({"nodes": ("n1", "n3")}, RESUME_FAILED),
        ({"state": JobState.PENDING, "held": True}, ATTEMPT_CHANGED),
        ({"state": JobState.CANCELLED}, ATTEMPT_CHANGED),
        ({"restart_count": 1}, ATTEMPT_CHANGED),
        ({"restart_count": 1, "state": JobState.COMPLETING}, NOT_YET),
        ({"restart_count": 1, "state": JobState.PENDING}, ATTEMPT_CHANGED),
        (
            {"restart_count": 1, "state": JobState.PENDING, "held": True, "reason": LAUNCH_FAILED},
            RESUME_FAILED,
        ),
    ],
)
async def test_verify_running(run: Runner, double: Double, fields: dict[str, Any], kind: str | None) -> None:
    double.set(**fields)
    given = VerifyInput(job=JOB, attempt=FIRST, excluded_nodes=("n3",))
    if kind is None:
        result = await run(verify_running, given)
        assert result.nodes == ("n1", "n2")
        assert result.attempt == FIRST
    else:
        await run.fails(verify_running, given, kind)


# ---- hold_job


def hold(attempt: Attempt = HELD) -> HoldInput:
    return HoldInput(job=JOB, attempt=attempt, recovery_id=RECOVERY, reason="no usable checkpoint")


@pytest.mark.parametrize("held", [False, True])
async def test_hold(run: Runner, double: Double, held: bool) -> None:
    double.set(state=JobState.PENDING, restart_count=1, held=held, comment="mine")
    text = await run(hold_job, hold())
    assert "scontrol release 42" in text
    assert double.known["42"].held
    assert double.commands == [*([] if held else ["hold 42"]), "set_comment 42"]
    assert 'relight-held="no usable checkpoint"' in double.known["42"].comment
    assert "relight-held-for=person" in double.known["42"].comment
    double.commands.clear()
    await run(hold_job, hold())
    assert double.commands == []


async def test_hold_says_when_the_comment_cannot_be_set(run: Runner, double: Double) -> None:
    double.set(state=JobState.PENDING, restart_count=1)
    double.refuse["set_comment"] = NotSupported("off")
    assert "comment could not be set" in await run(hold_job, hold())


@pytest.mark.parametrize(
    "fields",
    [{"state": JobState.RUNNING, "restart_count": 1}, {"state": JobState.PENDING, "restart_count": 2}],
)
async def test_hold_steps_back(run: Runner, double: Double, fields: dict[str, Any]) -> None:
    double.set(**fields)
    await run.fails(hold_job, hold(), ATTEMPT_CHANGED)
    assert double.commands == []


async def test_nothing_to_hold(run: Runner, double: Double) -> None:
    double.set(state=JobState.FAILED)
    assert "has ended" in await run(hold_job, hold(FIRST))
    double.known.clear()
    assert "forgotten" in await run(hold_job, hold(FIRST))


async def test_hold_unreachable(run: Runner, double: Double) -> None:
    double.set(state=JobState.PENDING, restart_count=1)
    double.lose["hold"] = "before"
    await run.fails(hold_job, hold(), UNREACHABLE)


# ---- look_at_job

LOOK = PollInput(job=JOB)


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({}, None),
        ({"state": JobState.COMPLETED}, None),
        ({"state": JobState.CANCELLED}, None),
        ({"state": JobState.FAILED, "exit_code": 3}, Cause.UNKNOWN),
        ({"state": JobState.NODE_FAIL}, Cause.NODE_FAILURE),
        ({"state": JobState.OUT_OF_MEMORY}, Cause.HOST_OOM),
        ({"state": JobState.COMPLETING, "reason": "NonZeroExitCode"}, Cause.UNKNOWN),
    ],
)
async def test_look(run: Runner, double: Double, fields: dict[str, Any], cause: Cause | None) -> None:
    double.set(**fields)
    result = await run(look_at_job, LOOK)
    assert result.known is True
    assert result.info is not None
    if cause is None:
        assert result.anomaly is None
    else:
        assert result.anomaly is not None
        assert (result.anomaly.cause, result.anomaly.detector) == (cause, "poll")
        assert result.anomaly.attempt == FIRST
        again = await run(look_at_job, LOOK)
        assert again.anomaly is not None
        assert again.anomaly.anomaly_id == result.anomaly.anomaly_id


async def test_a_newer_attempt_failed(run: Runner, double: Double) -> None:
    double.set(state=JobState.FAILED, restart_count=1)
    result = await run(look_at_job, LOOK)
    assert result.anomaly is not None
    assert result.anomaly.attempt.restart_count == 1


async def test_no_answer_is_no_failure(run: Runner, double: Double) -> None:
    double.lose["job"] = "before"
    assert (await run(look_at_job, LOOK)).known is None


async def test_another_job_has_the_id(run: Runner, double: Double) -> None:
    double.set(submit_time=T0 + timedelta(days=9), state=JobState.FAILED)
    result = await run(look_at_job, LOOK)
    assert (result.known, result.info, result.anomaly) == (False, None, None)


async def test_forgotten(run: Runner, double: Double) -> None:
    double.known.clear()
    assert (await run(look_at_job, LOOK)).known is False
    double.accounting = {}
    assert (await run(look_at_job, LOOK)).known is False
    double.accounting["42"] = running(state=JobState.FAILED)
    result = await run(look_at_job, LOOK)
    assert result.known is False
    assert result.info is not None
    assert result.anomaly is not None


async def test_the_look_at_a_running_job_sees_its_checkpoints(
    run: Runner, double: Double, tmp_path: Path
) -> None:
    for step in (10, 20):
        saved = tmp_path / f"step_{step:08d}"
        saved.mkdir()
        (saved / "model.json").write_text("{}")
        if step == 10:
            (saved / "COMPLETE").touch()
    os.utime(tmp_path / "step_00000020" / "model.json", (1, 1))
    os.utime(tmp_path / "step_00000020", (1, 1))
    found = (await run(look_at_job, PollInput(job=training(checkpoint_dir=str(tmp_path))))).checkpoints
    assert found is not None
    assert found.saved_at is not None
    assert [(b.name, b.state) for b in found.bad] == [("step_00000020", "incomplete")]
    gone = training(checkpoint_dir=str(tmp_path / "none"))
    assert (await run(look_at_job, PollInput(job=gone))).checkpoints is None
    double.set(state=JobState.PENDING)
    assert (await run(look_at_job, PollInput(job=training(checkpoint_dir=str(tmp_path))))).checkpoints is None
