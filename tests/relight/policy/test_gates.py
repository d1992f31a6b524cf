"""The gates that a job's policy keeps closed."""

from datetime import timedelta
from typing import Any

import pytest

from relight.contracts import Cause, CauseRule, Diagnosis, MayAct, Policy
from relight.contracts.messages import PastFailure
from relight.diagnosis.verdict import diagnose
from relight.policy import gates
from tests.workflows.samples import T0, anomaly, diagnosis, job

HOUR = timedelta(hours=1)
NVLINK = diagnosis(cause=Cause.NVLINK)
APPROVE = {Cause.NVLINK: CauseRule(act=MayAct.APPROVAL)}
LET = {Cause.NVLINK: CauseRule(act=MayAct.AUTOMATIC)}


def by_rules(*rules: tuple[str, ...]) -> Diagnosis:
    return diagnosis(rules=rules)


@pytest.mark.parametrize(
    ("policy", "what", "restarted", "closed"),
    [
        ({}, None, None, []),
        ({}, NVLINK, 0, []),
        ({"act": "never"}, None, None, ["policy"]),
        ({"act": "never"}, NVLINK, None, ["policy"]),
        ({"act": "approval"}, None, None, ["policy"]),
        ({"act": "approval"}, NVLINK, None, ["policy"]),
        ({"causes": APPROVE}, None, None, []),
        ({"causes": APPROVE}, NVLINK, None, ["cause"]),
        ({"causes": APPROVE}, diagnosis(), None, []),
        ({"causes": LET, "act": "never"}, NVLINK, None, []),
        ({"cool_down": HOUR}, None, None, []),
        ({"cool_down": HOUR}, NVLINK, None, []),
        ({"cool_down": HOUR}, NVLINK, 59, ["cool-down"]),
        ({"cool_down": HOUR}, None, 59, ["cool-down"]),
        ({"cool_down": HOUR}, NVLINK, 60, []),
        ({"causes": {Cause.NVLINK: CauseRule(cool_down=HOUR)}}, NVLINK, 59, ["cool-down"]),
        ({"causes": {Cause.NVLINK: CauseRule(cool_down=HOUR)}}, diagnosis(), 59, []),
        ({"observe_only": ("new",)}, by_rules(("log", "new")), None, ["rule that only counts"]),
        ({"observe_only": ("new",), "act": "approval"}, by_rules(("log", "new")), None,
         ["policy", "rule that only counts"]),
    ],
)  # fmt: skip
def test_the_closed_gates(
    policy: dict[str, Any], what: Diagnosis | None, restarted: int | None, closed: list[str]
) -> None:
    watched = job(policy=Policy.model_validate({"name": "p", **policy}))
    at = T0 if restarted is not None else None
    now = T0 + timedelta(minutes=restarted or 0)
    found = gates.closed_gates(watched, what, at, now)
    assert [gate.name for gate in found] == closed
    assert all(gate.why and gate.opens for gate in found)


@pytest.mark.parametrize(
    ("listed", "rules", "counting"),
    [
        ((), [("log", "new")], ()),
        (("new",), [], ()),
        (("new",), [("log", "new")], ("new",)),
        (("log",), [("log", "new")], ("log",)),
        (("new",), [("log", "new", "old")], ()),  # one line of it is known well
        (("new", "old"), [("log", "new", "old")], ("new", "old")),
        (("new",), [("log", "new"), ("kernel", "kernel.xid-79")], ()),  # the kernel says it too
        (("new", "xid-79"), [("log", "new"), ("kernel", "kernel.xid-79")], ("new", "xid-79")),
        (("xid-79",), [("nvml", "nvml.xid-79")], ("xid-79",)),
        (("kernel.xid-79",), [("nvml", "nvml.xid-79")], ()),
        (("xid-7",), [("nvml", "nvml.xid-79")], ()),
        (("79",), [("nvml", "nvml.xid-79")], ()),
        (("sxid-12028",), [("kernel", "kernel.sxid-12028")], ("sxid-12028",)),
        (("no-progress",), [("no-progress",)], ("no-progress",)),
        (("other",), [("no-progress",)], ()),
    ],
)  # fmt: skip
def test_rules_that_only_count(
    listed: tuple[str, ...], rules: list[tuple[str, ...]], counting: tuple[str, ...]
) -> None:
    policy, what = Policy(observe_only=listed), diagnosis(rules=tuple(rules))
    assert gates.counting_rules(policy, what) == counting
    assert gates.count_rules(policy, what, {"before": 2}) == {"before": 2} | dict.fromkeys(counting, 1)


def test_a_diagnosis_knows_what_it_rests_on() -> None:
    new = anomaly("a1", cause=Cause.NVLINK)
    same = anomaly("a2", cause=Cause.NVLINK, detector="kernel", evidence=())
    other = anomaly("a3", cause=Cause.UNKNOWN, detector="job-end")
    assert diagnose([other, same, new], job()).rules == (("test", "python_exception"), ("kernel",))


def test_approval_reasons_stay_the_same_while_time_passes() -> None:
    policy = Policy(cool_down=HOUR, observe_only=("new",), act=MayAct.APPROVAL)
    what = diagnosis(rules=(("log", "new"),))
    ledger = (
        PastFailure(root_key="k", cause=Cause.NVLINK, at=T0),
        PastFailure(root_key="k", cause=Cause.NVLINK),  # noted by an older version
    )
    found = gates.approval_reasons(job(policy=policy), what, ledger, T0 + timedelta(minutes=1))
    assert found == [
        "cool-down of 1h after the restart at 2026-12-02 05:00:00 UTC, until 2026-12-02 06:00:00 UTC",
        "only new says so, and the policy lets it count but not act yet",
    ]
    assert found == gates.approval_reasons(job(policy=policy), what, ledger, T0 + timedelta(minutes=50))
    assert gates.cool_down_until(job(policy=policy), what, ledger) == T0 + HOUR
    assert len(gates.approval_reasons(job(policy=policy), what, ledger, T0 + HOUR)) == 1
    assert gates.approval_reasons(job(policy=policy), diagnosis(), (), T0) == []
