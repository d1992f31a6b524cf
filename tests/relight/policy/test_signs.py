"""Independent signs: who says that a node is at fault, and what that lets a plan do."""

from datetime import timedelta

import pytest

from relight.contracts import (
    Action,
    Cause,
    CauseRule,
    Evidence,
    Isolation,
    MayAct,
    Mode,
    Policy,
    Sign,
    Source,
    Symptom,
)
from relight.contracts.messages import PastFailure
from relight.contracts.steps import ConfirmResult, LocateResult, Observation
from relight.diagnosis.verdict import diagnose
from relight.policy import signs
from relight.policy.plan import make_plan
from tests.workflows import samples

FOUND = LocateResult(name="iter_100", step=100)
KERNEL, NVML, PROMETHEUS, LOG, SCHEDULER = (
    Source.KERNEL, Source.NVML, Source.PROMETHEUS, Source.JOB_LOG, Source.SCHEDULER,
)  # fmt: skip


def says(source: Source, node: str = "n2", cause: Cause = Cause.GPU_FALLEN_OFF_BUS, signature: str = "x"):
    evidence = Evidence(source=source, observed_at=samples.T0, text="broken", node=node, signature=signature)
    return samples.anomaly(
        f"{source}{node}{signature}", cause=cause, node=node, evidence=(evidence,), key=cause.value
    )


def confirmed(*sources: Source, node: str | None = None, lost: tuple[str, ...] = ()) -> ConfirmResult:
    seen = tuple(
        Observation(
            source=source.value,
            verdict="confirms",
            text="yes",
            evidence=(Evidence(source=source, observed_at=samples.T0, text="yes", node=node),),
        )
        for source in sources
    )
    return ConfirmResult(verdict="confirmed", summary="sure", observations=seen, nodes_lost=lost)


@pytest.mark.parametrize(
    ("anomalies", "expected"),
    [
        ([says(LOG)], ()),
        ([says(KERNEL)], (KERNEL,)),
        ([says(KERNEL), says(NVML)], (KERNEL, NVML)),
        ([says(KERNEL, signature="kernel.xid-79"), says(NVML, signature="kernel.xid-79")], (KERNEL,)),
        ([says(NVML, signature="kernel.xid-79"), says(PROMETHEUS, signature="dcgm.xid-79")], (KERNEL,)),
        ([says(KERNEL), says(NVML, cause=Cause.GPU_MEMORY_ECC)], (KERNEL, NVML)),
        ([says(KERNEL), says(NVML, cause=Cause.STORAGE)], (KERNEL,)),
        ([says(KERNEL), says(LOG)], (KERNEL,)),
        ([says(KERNEL), says(NVML, node="n3")], (KERNEL,)),
    ],
)
def test_each_source_counts_once_and_an_xid_is_one_event(anomalies, expected) -> None:
    diagnosis = diagnose(anomalies, samples.job())
    found = [s.source for s in diagnosis.signs if s.node == "n2"]
    assert tuple(found) == expected


def test_signs_asked_for_again_and_lost_nodes_count() -> None:
    diagnosis = samples.diagnosis(signs=(Sign(node="n2", source=KERNEL),))
    assert signs.against_node("n2", diagnosis, confirmed(PROMETHEUS, node="n2")) == ("kernel", "prometheus")
    assert signs.against_node("n2", diagnosis, confirmed(SCHEDULER)) == ("kernel",)
    assert signs.against_node("n3", diagnosis, confirmed(lost=("n3",))) == ("scheduler",)
    assert signs.against_node("n2", diagnosis, confirmed(LOG, node="n2")) == ("kernel",)
    assert signs.of_the_fault(diagnosis, confirmed(SCHEDULER, LOG)) == ("job_log", "kernel", "scheduler")


def plan(*sources: Source, cause: Cause = Cause.GPU_FALLEN_OFF_BUS, guarded: bool = True, **policy):
    job = samples.job(policy=Policy(**policy))
    diagnosis = samples.diagnosis(
        cause=cause, nodes=("n2",), signs=tuple(Sign(node="n2", source=source) for source in sources)
    )
    return make_plan(job, diagnosis, confirmed(SCHEDULER), (), Mode.ACT, FOUND, guarded=guarded)


@pytest.mark.parametrize(
    ("sources", "options", "drained"),
    [
        ((KERNEL, NVML), {}, ("n2",)),
        ((KERNEL,), {}, ()),
        ((), {}, ()),
        ((KERNEL,), {"signs_to_drain": 1}, ("n2",)),
        ((KERNEL, NVML), {"signs_to_drain": 3}, ()),
        ((KERNEL, NVML), {"isolation": Isolation.EXCLUDE}, ()),
        ((KERNEL, NVML), {"guarded": False}, ()),
        ((KERNEL, NVML), {"cause": Cause.NETWORK_FABRIC}, ()),
        ((KERNEL, NVML), {"causes": {"gpu_fallen_off_bus": CauseRule(isolation=Isolation.EXCLUDE)}}, ()),
        ((KERNEL,), {"causes": {"gpu_fallen_off_bus": CauseRule(signs_to_drain=1)}}, ("n2",)),
    ],
)
def test_a_node_is_drained_only_on_the_word_of_enough_sources(sources, options, drained) -> None:
    made = plan(*sources, **options)
    assert made.drained_nodes == drained
    assert made.excluded_nodes == ("n2",)
    assert [step.name for step in made.steps].count("drain_node") == len(drained)
    assert made.needs_approval_because == ()


def test_the_plan_says_on_whose_word_and_what_is_missing() -> None:
    step = next(s for s in plan(KERNEL, NVML).steps if s.name == "drain_node")
    assert step.mutates
    assert step.does == "drain n2 for everyone, on the word of kernel and nvml, if the guard allows it"
    step = next(s for s in plan(KERNEL).steps if s.name == "isolate_nodes")
    assert (
        "not drained for everyone: that takes 2 independent sources, and accused is n2 by kernel" in step.does
    )
    step = next(s for s in plan().steps if s.name == "isolate_nodes")
    assert "n2 by the job log alone" in step.does


def test_a_lost_node_is_left_to_the_scheduler() -> None:
    diagnosis = samples.diagnosis(
        cause=Cause.GPU_FALLEN_OFF_BUS,
        nodes=("n2",),
        signs=(Sign(node="n2", source=KERNEL), Sign(node="n2", source=NVML)),
    )
    made = make_plan(
        samples.job(), diagnosis, confirmed(lost=("n2",)), (), Mode.ACT, FOUND, guarded=True
    )  # fmt: skip
    assert made.excluded_nodes == ("n2",)
    assert made.drained_nodes == ()


def test_without_isolation_the_job_may_start_there_again() -> None:
    made = plan(KERNEL, NVML, isolation=Isolation.NONE)
    assert (made.action, made.excluded_nodes, made.drained_nodes) == (Action.RESTART, (), ())


@pytest.mark.parametrize(
    ("act", "action", "asks"),
    [
        (MayAct.AUTOMATIC, Action.RESTART_EXCLUDE_NODE, False),
        (MayAct.APPROVAL, Action.RESTART_EXCLUDE_NODE, True),
        (MayAct.NEVER, Action.NONE, False),
    ],
)
def test_the_policy_says_for_each_cause_whether_relight_may_act(act, action, asks) -> None:
    made = plan(KERNEL, causes={Cause.GPU_FALLEN_OFF_BUS: CauseRule(act=act)})
    assert made.action is action
    assert bool(made.needs_approval_because) is asks
    other = plan(KERNEL, causes={Cause.NUMERICAL: CauseRule(act=act)})
    assert other.needs_approval_because == ()


@pytest.mark.parametrize(("needed", "asks"), [(0, False), (1, False), (2, False), (3, True)])
def test_too_few_signs_of_the_fault_ask_a_person(needed: int, asks: bool) -> None:
    made = plan(KERNEL, signs=needed)
    assert bool(made.needs_approval_because) is asks
    if asks:
        assert made.needs_approval_because[0] == (
            "2 of 3 independent sources confirm the fault (kernel, scheduler)"
        )


def test_an_unconfirmed_fault_asks_unless_the_policy_wants_no_sign() -> None:
    diagnosis = samples.diagnosis(symptom=Symptom.HANG)
    doubt = ConfirmResult(verdict="inconclusive", summary="who knows")
    asks = make_plan(samples.job(), diagnosis, doubt, (), Mode.ACT, FOUND).needs_approval_because
    assert "not confirmed" in asks[0]
    bold = samples.job(policy=Policy(signs=0))
    assert make_plan(bold, diagnosis, doubt, (), Mode.ACT, FOUND).needs_approval_because == ()


@pytest.mark.parametrize(("minutes", "asks"), [(5, True), (15, False)])
def test_during_a_cool_down_a_person_is_asked(minutes: int, asks: bool) -> None:
    job = samples.job(policy=Policy(cool_down=timedelta(minutes=10)))
    past = PastFailure(root_key="x", cause=Cause.NETWORK_FABRIC, step=1, at=samples.T0)
    now = samples.T0 + timedelta(minutes=minutes)
    made = make_plan(
        job, samples.diagnosis(), confirmed(SCHEDULER), (past,), Mode.ACT, FOUND, now=now
    )  # fmt: skip
    assert ["cool-down of 10m" in reason for reason in made.needs_approval_because] == (
        [True] if asks else []
    )
