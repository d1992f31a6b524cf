"""What counts as the right word on a simulated fault."""

from datetime import timedelta

import pytest

from relight.cli.simulated_faults import EXPECTED, SAYS, SimulatedFault, judge, kind_of
from relight.contracts import Cause, Diagnosis, Policy, Suspect, Symptom
from relight.demo.trainer import make_fault
from tests.relight.cli.stand_ins import T0


def said(symptom: Symptom, cause: Cause, *nodes: str) -> Diagnosis:
    return Diagnosis(
        symptom=symptom,
        cause=cause,
        retryable=True,
        suspects=tuple(Suspect(node=node) for node in nodes),
        occurred_at=T0,
        detected_at=T0,
    )


@pytest.mark.parametrize(
    ("fault", "diagnosis", "wrong"),
    [
        ("exception", said(Symptom.CRASH, Cause.USER_CODE), ""),
        ("exception", None, "missed: relight noticed nothing"),
        ("exception", said(Symptom.HANG, Cause.USER_CODE), "the symptom is crash, and not hang"),
        (
            "exception",
            said(Symptom.CRASH, Cause.GPU_OOM),
            "the cause is user_code, and not gpu_oom",
        ),
        (
            "exception",
            said(Symptom.CRASH, Cause.USER_CODE, "n1"),
            "it suspects n1, but it happened on n2",
        ),
        ("sigkill", said(Symptom.CRASH, Cause.HOST_OOM), ""),
        ("hang", said(Symptom.HANG, Cause.UNKNOWN, "n2"), ""),
        ("cuda", said(Symptom.CRASH, Cause.GPU_MEMORY_ECC, "n2"), ""),
        ("cuda", said(Symptom.CRASH, Cause.GPU_MEMORY_ECC), "it does not suspect n2, where it happened"),
        (
            "cuda",
            said(Symptom.CRASH, Cause.GPU_MEMORY_ECC, "n1", "n2"),
            "it suspects n1, but it happened on n2",
        ),
        ("pause", None, ""),
        ("pause", said(Symptom.HANG, Cause.UNKNOWN), "a false alarm: hang, though training only paused"),
    ],
)
def test_judge(fault: str, diagnosis: Diagnosis | None, wrong: str) -> None:
    assert judge(SimulatedFault(fault), diagnosis, "n2") == wrong


@pytest.mark.parametrize("fault", SimulatedFault)
def test_every_fault_is_known_to_the_training(fault: SimulatedFault) -> None:
    assert fault in EXPECTED
    assert SAYS[fault]
    assert make_fault(kind_of(fault, Policy()), 0, None, 1, "key").kind == fault.value


@pytest.mark.parametrize(("floor", "kind"), [(60, "pause:20"), (4, "pause:2"), (40, "pause:20")])
def test_a_pause_is_no_hang(floor: int, kind: str) -> None:
    policy = Policy(hang_floor=timedelta(seconds=floor))
    assert kind_of(SimulatedFault.PAUSE, policy) == kind
