"""What to do, from the diagnosis and what was tried before."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.contracts import Action, Cause, Diagnosis, Policy, Progress, Suspect, Symptom
from relight.contracts.messages import PastFailure
from relight.policy.decision import Decision, decide
from relight.policy.ledger import fold
from tests.relight.diagnosis.making import NOW

C, A = Cause, Action
KEY = "train.py:12"


def diagnosis(
    cause: Cause,
    *,
    retryable: bool = True,
    nodes: tuple[str, ...] = (),
    where: str = "",
    step: int | None = None,
    symptom: Symptom = Symptom.CRASH,
    key: str = KEY,
) -> Diagnosis:
    return Diagnosis(
        symptom=symptom,
        cause=cause,
        retryable=retryable,
        suspects=tuple(Suspect(node=n) for n in nodes),
        root_key=key,
        occurred_at=NOW,
        detected_at=NOW,
        progress=Progress(step=step, at=NOW) if step is not None else None,
        where=tuple(where),
    )


def past(
    cause: Cause, step: int | None = None, *, key: str = KEY, nodes: str = "abc", where: str = ""
) -> PastFailure:
    return PastFailure(
        root_key=key, cause=cause, step=step, allocation=fold(tuple(nodes)), where=tuple(where)
    )


def decision(what: Diagnosis, ledger: list[PastFailure] | None = None, **more: Any) -> Decision:
    return decide(what, ledger or [], **{"policy": Policy(), **more})


@pytest.mark.parametrize(
    ("cause", "symptom", "action"),
    [
        (C.HEALTHY, Symptom.NONE, A.NONE),
        (C.UNKNOWN, Symptom.CRASH, A.RESTART),
        (C.UNKNOWN, Symptom.HANG, A.RESTART),
        (C.UNKNOWN, Symptom.SLOW, A.NONE),
        (C.DATA_LOADER, Symptom.SLOW, A.RESTART),
        (C.NETWORK_FABRIC, Symptom.CRASH, A.RESTART),
        (C.CHECKPOINT_CORRUPT, Symptom.CRASH, A.RESTART_PREVIOUS_CHECKPOINT),
        (C.NUMERICAL, Symptom.DEGRADED, A.RESTART_PREVIOUS_CHECKPOINT),
        (C.PREEMPTION, Symptom.CRASH, A.RESTART),
        (C.TIME_LIMIT, Symptom.CRASH, A.RESTART),
    ],
)
def test_the_first_time(cause: Cause, symptom: Symptom, action: Action) -> None:
    assert decision(diagnosis(cause, symptom=symptom)).action is action


def test_what_fails_again_is_stopped_and_a_suspected_node_is_left_out() -> None:
    assert decision(diagnosis(C.USER_CODE, retryable=False)).action is A.STOP
    found = decision(diagnosis(C.GPU_MEMORY_ECC, nodes=("n2",)))
    assert (found.action, found.nodes) == (A.RESTART_EXCLUDE_NODE, ("n2",))


@pytest.mark.parametrize(
    ("cause", "step", "ledger", "action"),
    [
        # It names what a replay meets again: one confirmation.
        (C.USER_CODE, 100, [past(C.USER_CODE, 100)], A.STOP),
        (C.USER_CODE, 99, [past(C.USER_CODE, 100)], A.STOP),
        (C.USER_CODE, None, [past(C.USER_CODE, 100)], A.STOP),
        (C.USER_CODE, None, [past(C.USER_CODE)], A.STOP),
        (C.DATA_LOADER, 205, [past(C.DATA_LOADER, 205)], A.STOP),
        (C.NUMERICAL, 205, [past(C.NUMERICAL, 205)], A.STOP),
        # Progress resets the count, another key or cause does not add to it.
        (C.USER_CODE, 150, [past(C.USER_CODE, 100)], A.RESTART),
        (C.USER_CODE, 100, [past(C.USER_CODE, 100, key="other")], A.RESTART),
        (C.USER_CODE, 100, [past(C.STORAGE, 100)], A.RESTART),
        # Three restarts for one cause are the end, also when it names another line each time.
        (C.USER_CODE, 100, [past(C.USER_CODE, 100, key=f"{n}.py:1") for n in range(3)], A.STOP),
        (C.USER_CODE, 101, [past(C.USER_CODE, 100, key=f"{n}.py:1") for n in range(3)], A.RESTART),
        (C.UNKNOWN, 100, [past(C.UNKNOWN, 100)] * 2, A.RESTART),
        (C.UNKNOWN, 100, [past(C.UNKNOWN, 100)] * 3, A.STOP),
        (C.UNKNOWN, None, [past(C.UNKNOWN)] * 3, A.STOP),
        (C.STORAGE, 100, [past(C.STORAGE, 90)] * 9, A.RESTART),
        # Nobody's failure burns no budget.
        (C.PREEMPTION, 100, [past(C.PREEMPTION, 100)] * 9, A.RESTART),
        (C.NODE_FAILURE, 100, [past(C.NODE_FAILURE, 100)] * 9, A.RESTART),
        # The same on entirely different nodes is not about a node.
        (C.UNKNOWN, None, [past(C.UNKNOWN, nodes="xyz")] * 2, A.STOP),
        (C.UNKNOWN, None, [past(C.UNKNOWN, nodes="xyz")], A.RESTART),
    ],
)
def test_again(cause: Cause, step: int | None, ledger: list[PastFailure], action: Action) -> None:
    found = decision(diagnosis(cause, step=step), ledger, nodes=tuple("abc"))
    assert found.action is action
    assert (action is A.STOP) is ("no step gained" in found.because)


def test_a_cause_that_names_nothing_has_the_general_budget() -> None:
    nameless = diagnosis(C.USER_CODE, key="", step=100)
    assert decision(nameless, [past(C.USER_CODE, 100, key="")] * 2).action is A.RESTART
    assert decision(nameless, [past(C.USER_CODE, 100, key="")] * 3).action is A.STOP


def test_the_budgets_are_policy() -> None:
    assert decision(diagnosis(C.UNKNOWN), policy=Policy(retries_general=0)).action is A.STOP
    patient = Policy(retries_confirmation=3, retries_general=5)
    again = [past(C.USER_CODE, 100)]
    assert decision(diagnosis(C.USER_CODE, step=100), again * 2, policy=patient).action is A.RESTART
    assert decision(diagnosis(C.USER_CODE, step=100), again * 3, policy=patient).action is A.STOP


def test_the_same_node_in_two_attempts_is_left_out() -> None:
    ledger = [past(C.UNKNOWN, 100, key="other", where="b")]
    found = decision(diagnosis(C.UNKNOWN, step=120, where="b"), ledger, nodes=tuple("abc"))
    assert (found.action, found.nodes) == (A.RESTART_EXCLUDE_NODE, ("b",))
    assert decision(diagnosis(C.UNKNOWN, where="a"), ledger, nodes=tuple("abc")).action is A.RESTART
    assert decision(diagnosis(C.STORAGE, where="b"), ledger, nodes=tuple("abc")).nodes == ()
    assert decision(diagnosis(C.UNKNOWN, where="b"), ledger, nodes=("b",)).nodes == ()


def test_exit_codes_that_ask_for_something() -> None:
    assert decision(diagnosis(C.UNKNOWN), exit_code=93).action is A.STOP
    elsewhere = decision(diagnosis(C.UNKNOWN, where="b"), exit_code=16, nodes=("a", "b"))
    assert (elsewhere.action, elsewhere.nodes) == (A.RESTART_EXCLUDE_NODE, ("b",))
    assert decision(diagnosis(C.UNKNOWN), exit_code=16).action is A.RESTART
    other = Policy(do_not_requeue=(7,), restart_elsewhere=())
    assert decision(diagnosis(C.UNKNOWN), exit_code=93, policy=other).action is A.RESTART
    assert decision(diagnosis(C.UNKNOWN), exit_code=7, policy=other).action is A.STOP


@given(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.integers(0, 3)), min_size=1, max_size=40))
def test_a_crash_loop_always_ends(failures: list[tuple[str, int]]) -> None:
    """Whatever fails in turn, in whatever order: restarts end where training no longer gets further."""
    ledger: list[PastFailure] = []
    restarts_at_furthest, furthest = 0, -1
    for key, step in failures:
        if step > furthest:
            restarts_at_furthest, furthest = 0, step
        failed = diagnosis(C.USER_CODE, key=key, step=step)
        if decision(failed, ledger).action is A.STOP:
            break
        ledger = [*ledger, past(C.USER_CODE, step, key=key)][-20:]
        restarts_at_furthest += 1
        assert restarts_at_furthest <= Policy().retries_general
