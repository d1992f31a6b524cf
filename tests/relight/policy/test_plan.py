"""From a confirmed diagnosis to a plan."""

from typing import Any

import pytest

from relight.contracts import Action, Cause, Diagnosis, Mode, Plan, Policy, Symptom
from relight.contracts.messages import PastFailure
from relight.contracts.outcome import CheckpointRef
from relight.contracts.policy import Steer, Then
from relight.contracts.steps import ConfirmResult, LocateResult, RejectedCheckpoint
from relight.policy.plan import explained_by_loss, make_plan, names, nodes_to_exclude
from tests.workflows.samples import QUICK, diagnosis, job

CONFIRMED = ConfirmResult(verdict="confirmed", summary="FAILED")
UNSURE = ConfirmResult(verdict="inconclusive", summary="nobody answers")
LOST = ConfirmResult(verdict="confirmed", summary="n2 is down", nodes_lost=("n2",))
NEWEST = LocateResult(name="iter_0000100", step=100, summary="complete")
BAD = RejectedCheckpoint(name="iter_0000110", state="partial", reason="no marker")
ALL_BAD = LocateResult(name=None, rejected=(BAD,), summary="none is complete")
STALE = LocateResult(
    name="iter_0000100", step=100, layout="megatron", own="iter_0000110", own_problem="corrupt: cut off"
)
OLDER = STALE.model_copy(update={"own": "iter_0000090", "own_problem": ""})
LOCKED = STALE.model_copy(update={"cannot_steer": "no right to write"})
NONE_AT_ALL = LocateResult(name=None, empty=True, summary="no checkpoint yet")

RESTART = (
    "drain_job", "wait_nodes_free", "locate_checkpoint", "resubmit", "verify_running", "verify_resume",
)  # fmt: skip


def plan(
    what: Diagnosis | None = None,
    confirmation: ConfirmResult = CONFIRMED,
    mode: Mode = Mode.ACT,
    checkpoint: LocateResult | None = NEWEST,
    ledger: tuple[PastFailure, ...] = (),
    **more: Any,
) -> Plan:
    policy = QUICK.model_copy(update={k: more.pop(k) for k in list(more) if k in Policy.model_fields})
    return make_plan(job(mode, policy), what or diagnosis(), confirmation, ledger, mode, checkpoint, **more)


def steps(made: Plan) -> tuple[str, ...]:
    return tuple(step.name for step in made.steps)


@pytest.mark.parametrize(
    ("what", "confirmation", "action", "excluded"),
    [
        (diagnosis(), CONFIRMED, Action.RESTART, ()),
        (diagnosis(cause=Cause.UNKNOWN, symptom=Symptom.HANG), CONFIRMED, Action.RESTART, ()),
        (diagnosis(cause=Cause.NVLINK, nodes=("n3",)), CONFIRMED, Action.RESTART_EXCLUDE_NODE, ("n3",)),
        (diagnosis(cause=Cause.NODE_FAILURE), LOST, Action.RESTART_EXCLUDE_NODE, ("n2",)),
        (diagnosis(cause=Cause.NVLINK, nodes=("n3",)), LOST, Action.RESTART_EXCLUDE_NODE, ("n2", "n3")),
        (diagnosis(cause=Cause.NETWORK_FABRIC, nodes=("n1", "n2", "n3")), CONFIRMED, Action.RESTART, ()),
        (diagnosis(cause=Cause.CHECKPOINT_CORRUPT), CONFIRMED, Action.RESTART_PREVIOUS_CHECKPOINT, ()),
        (diagnosis(retryable=False), CONFIRMED, Action.STOP, ()),
        (diagnosis(cause=Cause.USER_CANCEL), CONFIRMED, Action.NONE, ()),
        (diagnosis(cause=Cause.TIME_LIMIT), CONFIRMED, Action.NONE, ()),
        (diagnosis(cause=Cause.PREEMPTION), CONFIRMED, Action.NONE, ()),
        (diagnosis(cause=Cause.HEALTHY, symptom=Symptom.NONE), CONFIRMED, Action.NONE, ()),
        (diagnosis(symptom=Symptom.SLOW, cause=Cause.UNKNOWN), CONFIRMED, Action.NONE, ()),
    ],
)  # fmt: skip
def test_action(
    what: Diagnosis, confirmation: ConfirmResult, action: Action, excluded: tuple[str, ...]
) -> None:
    made = plan(what, confirmation)
    assert (made.action, made.excluded_nodes) == (action, excluded)
    assert made.needs_approval_because == ()
    if action in {Action.NONE, Action.STOP}:
        assert made.steps == ()
    else:
        assert steps(made) == (("isolate_nodes",) if excluded else ()) + RESTART


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (plan(mode=Mode.OBSERVE), "observe mode"),
        (plan(confirmation=UNSURE), "nobody answers"),
        (plan(checkpoint=None), "could not be looked at"),
        (plan(diagnosis(nodes=("n3",)), cannot_exclude="3 of 4 nodes"), "3 of 4 nodes"),
        (plan(diagnosis(symptom=Symptom.SLOW, nodes=("n3",))), "still goes on"),
        (plan(diagnosis(symptom=Symptom.DEGRADED, nodes=("n3",))), "still goes on"),
    ],
)
def test_what_needs_a_person(made: Plan, reason: str) -> None:
    assert len(made.needs_approval_because) == 1
    assert reason in made.needs_approval_because[0]
    assert made.steps


def test_a_spent_budget_stops() -> None:
    tried = PastFailure(root_key="train.py:12", cause=Cause.USER_CODE, step=120)
    made = plan(ledger=(tried,))
    assert (made.action, made.steps) == (Action.STOP, ())
    assert "budget" in made.because


def test_without_a_usable_checkpoint_the_job_is_held() -> None:
    made = plan(checkpoint=ALL_BAD)
    assert (made.action, steps(made)) == (Action.STOP, ("drain_job", "hold_job"))
    assert "none is complete" in made.because
    assert plan(checkpoint=ALL_BAD, mode=Mode.OBSERVE).needs_approval_because


def test_people_see_what_a_restart_costs() -> None:
    text = " ".join(step.does for step in plan().steps)
    assert "iter_0000100" in text
    assert "20 steps to train again" in text
    assert "n1, n2, n3, n4" in text
    assert "passes step 120" in text
    assert "no checkpoint yet" in " ".join(step.does for step in plan(checkpoint=NONE_AT_ALL).steps)


def test_only_what_changes_something_is_marked_so() -> None:
    everything = plan(diagnosis(nodes=("n3",))).steps + plan(checkpoint=ALL_BAD).steps
    everything += plan(checkpoint=STALE, steer=Steer.POINTER, on_divergence=Then.HOLD).steps
    assert {step.name for step in everything if step.mutates} == {
        "drain_job", "steer_checkpoint", "resubmit", "hold_job", "stop_attempt",
    }  # fmt: skip


def test_the_digest_names_the_plan() -> None:
    assert plan().digest == plan().digest
    others = [
        plan(mode=Mode.OBSERVE),
        plan(diagnosis(nodes=("n3",))),
        plan(checkpoint=NONE_AT_ALL),
        plan(diagnosis(cause=Cause.NUMERICAL)),
    ]
    assert len({made.digest for made in (plan(), *others)}) == 5


@pytest.mark.parametrize(
    ("job_nodes", "suspects", "excluded"),
    [
        (("n1",), ("n1",), ("n1",)),
        (("n1", "n2"), ("n1",), ("n1",)),
        (("n1", "n2"), ("n1", "n2"), ()),
        (("n1", "n2", "n3", "n4"), ("n1", "n2"), ("n1", "n2")),
        (("n1", "n2", "n3", "n4"), ("n1", "n2", "n3"), ()),
        ((), ("n1",), ("n1",)),
    ],
)
def test_suspicion_on_most_nodes_names_no_culprit(
    job_nodes: tuple[str, ...], suspects: tuple[str, ...], excluded: tuple[str, ...]
) -> None:
    assert nodes_to_exclude(job(nodes=job_nodes), suspects, CONFIRMED) == excluded


def test_long_lists_of_nodes_are_cut() -> None:
    assert names(("n1", "n2")) == "n1, n2"
    assert names(tuple(f"n{i}" for i in range(20))) == "n0, n1, n2, n3, n4, n5, n6, n7 and 12 more"


@pytest.mark.parametrize(
    ("way", "checkpoint", "says", "asks"),
    [
        (Steer.LEAVE, NEWEST, "", ""),
        (Steer.POINTER, NEWEST, "", ""),
        (Steer.MOVE_ASIDE, NONE_AT_ALL, "", ""),
        (Steer.LEAVE, STALE, "", "would load iter_0000110, which cannot be used (corrupt: cut off)"),
        (Steer.LEAVE, OLDER, "", ""),
        (Steer.POINTER, STALE, "let latest_checkpointed_iteration.txt name", ""),
        (Steer.POINTER, OLDER, "now iter_0000100), and not iter_0000090", ""),
        (Steer.MOVE_ASIDE, STALE, "nothing is deleted", ""),
        (Steer.POINTER, LOCKED, "", "no right to write"),
        (Steer.MOVE_ASIDE, LOCKED, "", "no right to write"),
    ],
)
def test_how_the_job_is_led_to_the_checkpoint(
    way: Steer, checkpoint: LocateResult, says: str, asks: str
) -> None:
    made = plan(checkpoint=checkpoint, steer=way)
    assert made.action is Action.RESTART
    names_of = steps(made)
    assert ("steer_checkpoint" in names_of) is bool(says)
    if says:
        at = names_of.index("steer_checkpoint")
        assert (names_of[at - 1], names_of[at + 1]) == ("locate_checkpoint", "resubmit")
        assert says in made.steps[at].does
    assert len(made.needs_approval_because) == bool(asks)
    assert asks in " ".join(made.needs_approval_because)


@pytest.mark.parametrize("checkpoint", [NEWEST, STALE, OLDER])
def test_a_variable_is_passed_in_every_restart(checkpoint: LocateResult) -> None:
    made = plan(checkpoint=checkpoint, steer=Steer.ENVIRONMENT, resume_variable="RESUME_FROM")
    assert steps(made) == RESTART
    (step,) = [step for step in made.steps if step.name == "resubmit"]
    assert step.mutates
    path = f"{job(Mode.ACT).checkpoint_dir}/iter_0000100"
    assert f"anew with RESUME_FROM naming the newest usable checkpoint (now {path})" in step.does
    assert made.needs_approval_because == ()


def test_without_a_declared_variable_a_person_is_asked() -> None:
    made = plan(checkpoint=STALE, steer=Steer.ENVIRONMENT)
    (why,) = made.needs_approval_because
    assert "iter_0000110" in why
    assert why.endswith("the job declared no variable for it (resume_variable)")
    (step,) = [step for step in made.steps if step.name == "resubmit"]
    assert "start again at once" in step.does


def test_a_policy_that_ends_the_new_attempt_is_shown() -> None:
    made = plan(on_from_scratch=Then.HOLD, on_divergence=Then.HOLD)
    assert steps(made) == (*RESTART, "stop_attempt")
    assert made.steps[-1].does.endswith("if it starts from scratch or it diverges")


def test_behind_a_divergence_the_previous_checkpoint_is_taken() -> None:
    wrong = diagnosis(symptom=Symptom.DEGRADED, cause=Cause.NUMERICAL)
    assert "training still goes on" in plan(wrong).needs_approval_because[0]  # a sensor's finding
    made = plan(wrong, diverged_from=CheckpointRef(name="iter_0000110", step=110))
    assert (made.action, made.checkpoint) == (Action.RESTART_PREVIOUS_CHECKPOINT, "iter_0000100")
    assert made.needs_approval_because == ()


def test_a_crash_of_unknown_cause_is_the_loss_of_the_node_that_the_scheduler_lost() -> None:
    unknown = diagnosis(cause=Cause.UNKNOWN, explanation="Rank 3 is gone.")
    found = explained_by_loss(unknown, ("n2",))
    assert found.cause is Cause.NODE_FAILURE
    assert found.explanation == "Rank 3 is gone. The scheduler has lost n2."
    assert explained_by_loss(unknown, ()) == unknown
    known = diagnosis(cause=Cause.NVLINK)
    assert explained_by_loss(known, ("n2",)) == known
