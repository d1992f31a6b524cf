"""What to do, from the diagnosis and what was tried before."""

import pytest

from relight.contracts import Action, Cause, Diagnosis, Progress, Suspect, Symptom
from relight.diagnosis.decision import Past, decide
from tests.relight.diagnosis.making import NOW

C, A = Cause, Action
KEY = "k"


def diagnosis(
    cause: Cause,
    *,
    retryable: bool = True,
    nodes: tuple[str, ...] = (),
    step: int | None = None,
    symptom: Symptom = Symptom.CRASH,
) -> Diagnosis:
    return Diagnosis(
        symptom=symptom,
        cause=cause,
        retryable=retryable,
        suspects=tuple(Suspect(node=n) for n in nodes),
        root_key=KEY,
        occurred_at=NOW,
        detected_at=NOW,
        progress=Progress(step=step, at=NOW) if step is not None else None,
    )


def past(
    cause: Cause, step: int | None = None, *, key: str = KEY, nodes: str = "abc", where: str = ""
) -> Past:
    return Past(key, cause, step, tuple(nodes), tuple(where))


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
    assert decide(diagnosis(cause, symptom=symptom)).action is action


def test_what_fails_again_is_stopped_and_a_suspected_node_is_left_out() -> None:
    assert decide(diagnosis(C.USER_CODE, retryable=False)).action is A.STOP
    found = decide(diagnosis(C.GPU_MEMORY_ECC, nodes=("n2",)))
    assert (found.action, found.nodes) == (A.RESTART_EXCLUDE_NODE, ("n2",))


@pytest.mark.parametrize(
    ("cause", "step", "history", "action"),
    [
        # It names what a replay meets again: one confirmation.
        (C.USER_CODE, 100, [past(C.USER_CODE, 100)], A.STOP),
        (C.DATA_LOADER, 205, [past(C.DATA_LOADER, 205)], A.STOP),
        (C.NUMERICAL, 205, [past(C.NUMERICAL, 205)], A.STOP),
        # Progress resets the count, another key or cause does not add to it.
        (C.USER_CODE, 150, [past(C.USER_CODE, 100)], A.RESTART),
        (C.USER_CODE, 100, [past(C.USER_CODE, 100, key="other")], A.RESTART),
        (C.USER_CODE, 100, [past(C.STORAGE, 100)], A.RESTART),
        # Otherwise three times.
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
def test_again(cause: Cause, step: int | None, history: list[Past], action: Action) -> None:
    assert decide(diagnosis(cause, step=step), history, nodes=tuple("abc")).action is action


def test_the_same_node_in_two_attempts_is_left_out() -> None:
    history = [past(C.UNKNOWN, 100, key="other", where="b")]
    found = decide(diagnosis(C.UNKNOWN, step=120), history, nodes=tuple("abc"), where=("b",))
    assert (found.action, found.nodes) == (A.RESTART_EXCLUDE_NODE, ("b",))
    assert decide(diagnosis(C.UNKNOWN), history, nodes=tuple("abc"), where=("a",)).action is A.RESTART
    assert decide(diagnosis(C.STORAGE), history, nodes=tuple("abc"), where=("b",)).nodes == ()
    assert decide(diagnosis(C.UNKNOWN), history, nodes=("b",), where=("b",)).nodes == ()


def test_exit_codes_that_ask_for_something() -> None:
    assert decide(diagnosis(C.UNKNOWN), exit_code=93).action is A.STOP
    elsewhere = decide(diagnosis(C.UNKNOWN), exit_code=16, nodes=("a", "b"), where=("b",))
    assert (elsewhere.action, elsewhere.nodes) == (A.RESTART_EXCLUDE_NODE, ("b",))
    assert decide(diagnosis(C.UNKNOWN), exit_code=16).action is A.RESTART
    assert decide(diagnosis(C.UNKNOWN), exit_code=93, do_not_requeue=frozenset()).action is A.RESTART
