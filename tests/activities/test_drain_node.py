"""A node is taken away and given back at most once, and only if it is relight's own."""

import pytest

from activities.drain_node import drain_node, look_at_node, release_node
from relight.contracts import Cause
from relight.contracts.node_drain import NodeHow, NodeStep
from relight.contracts.steps import REFUSED, UNREACHABLE
from relight.policy.node_drain import reason_for
from relight.scheduler.port import NotPermitted
from tests.activities.conftest import RECOVERY, Runner
from tests.activities.double import T0, Double

GIVEN = NodeStep(node="n1", recovery_id=RECOVERY, cause=Cause.NVLINK, because="link 3 is down")
OURS = reason_for(Cause.NVLINK, RECOVERY, "link 3 is down")
THEIRS = ["bad fan", "Kill task failed", reason_for(Cause.NVLINK, "recover:lab:43:0:ef", "another job's")]


async def test_it_drains_with_a_reason_that_carries_cause_and_recovery(run: Runner, double: Double) -> None:
    look = await run(drain_node, GIVEN)
    assert (look.how, look.idle) == (NodeHow.OURS, True)
    assert look.at is not None
    assert double.drained == {"n1": f"relight: nvlink [{RECOVERY}] link 3 is down"}


async def test_a_second_try_finds_the_first_and_does_nothing(run: Runner, double: Double) -> None:
    await run(drain_node, GIVEN)
    look = await run(drain_node, GIVEN)
    assert look.how is NodeHow.OURS
    assert double.commands == ["drain_node n1"]


@pytest.mark.parametrize("lost", ["before", "after"])
async def test_a_lost_answer_is_looked_up_before_the_next_try(run: Runner, double: Double, lost: str) -> None:
    double.lose["drain_node"] = lost
    await run.fails(drain_node, GIVEN, UNREACHABLE)
    double.lose.clear()
    assert (await run(drain_node, GIVEN)).how is NodeHow.OURS
    assert double.commands == ["drain_node n1"]


@pytest.mark.parametrize("reason", THEIRS)
async def test_what_others_drained_is_never_changed_and_never_given_back(
    run: Runner, double: Double, reason: str
) -> None:
    double.drained["n1"] = reason
    for step in (drain_node, look_at_node, release_node):
        look = await run(step, GIVEN)
        assert look.how not in {NodeHow.OURS, NodeHow.FREE}
        assert reason in look.summary
    assert double.commands == []
    assert double.drained == {"n1": reason}


async def test_a_lost_or_unknown_node_is_not_drained(run: Runner, double: Double) -> None:
    double.lost_nodes.add("n1")
    assert (await run(drain_node, GIVEN)).how is NodeHow.LOST
    assert (await run(drain_node, GIVEN.model_copy(update={"node": "n9"}))).how is NodeHow.UNKNOWN
    assert double.commands == []


async def test_it_gives_its_own_node_back_once(run: Runner, double: Double) -> None:
    double.drained["n1"] = OURS
    assert (await run(release_node, GIVEN)).how is NodeHow.FREE
    assert (await run(release_node, GIVEN)).how is NodeHow.FREE
    assert double.commands == ["resume_node n1"]


async def test_of_a_free_node_it_tells_since_when_the_scheduler_runs(run: Runner, double: Double) -> None:
    double.since = T0
    assert (await run(look_at_node, GIVEN)).scheduler_since == T0
    await run(drain_node, GIVEN)
    assert (await run(look_at_node, GIVEN)).scheduler_since is None


async def test_a_scheduler_that_does_not_answer_changes_nothing(run: Runner, double: Double) -> None:
    double.lose["nodes"] = "before"
    for step in (drain_node, look_at_node, release_node):
        await run.fails(step, GIVEN, UNREACHABLE)
    assert double.commands == []


async def test_who_may_not_drain_is_told(run: Runner, double: Double) -> None:
    double.refuse["drain_node"] = NotPermitted("scontrol: Invalid user id: only an operator may")
    assert "only an operator may" in await run.fails(drain_node, GIVEN, REFUSED)
