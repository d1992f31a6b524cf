"""One diagnosis from many anomalies: kind first, then time; whoever may be blamed; a stable result."""

import random
import subprocess
import sys

import pytest

from relight.contracts import Anomaly, Cause, Role, Source, Suspect, Symptom
from relight.diagnosis.assemble import assemble
from relight.diagnosis.findings import Sighting
from relight.diagnosis.verdict import MAX_EVIDENCE, diagnose
from tests.relight.diagnosis.making import ATTEMPT, NOW, anomaly, findings, job

C = Cause
JOB = job("n1", "n2", "n3", "n4")


@pytest.mark.parametrize(
    ("anomalies", "cause"),
    [
        # A local cause outranks what peers say of it, whatever came first.
        ([anomaly(C.NETWORK_FABRIC, Role.CASCADE, second=1), anomaly(C.USER_CODE, second=9)], C.USER_CODE),
        ([anomaly(C.UNKNOWN, Role.CASCADE, second=1), anomaly(C.GPU_MEMORY_ECC, second=9)], C.GPU_MEMORY_ECC),
        # Hardware explains the exception that it raised.
        (
            [anomaly(C.USER_CODE, second=1), anomaly(C.GPU_FALLEN_OFF_BUS, second=9, source=Source.KERNEL)],
            C.GPU_FALLEN_OFF_BUS,
        ),
        ([anomaly(C.GPU_OOM, second=1), anomaly(C.HOST_OOM, second=2)], C.HOST_OOM),
        # What only the scheduler saw explains least.
        ([anomaly(C.UNKNOWN, source=Source.SCHEDULER, second=1), anomaly(C.STORAGE, second=9)], C.STORAGE),
        # Whoever ends a run on purpose ends it; a fault that was there before is the fault.
        ([anomaly(C.USER_CANCEL, second=1), anomaly(C.USER_CODE, second=9)], C.USER_CANCEL),
        ([anomaly(C.USER_CANCEL, second=9), anomaly(C.USER_CODE, second=1)], C.USER_CODE),
        ([anomaly(C.TIME_LIMIT, second=9), anomaly(C.UNKNOWN, second=1)], C.TIME_LIMIT),
        ([anomaly(C.PREEMPTION, second=1), anomaly(C.NETWORK_FABRIC, Role.CASCADE, second=2)], C.PREEMPTION),
        ([anomaly(C.UNKNOWN, source=Source.SCHEDULER)], C.UNKNOWN),
        # The heavier of two equal ones.
        (
            [anomaly(C.NETWORK_FABRIC, weight=20, second=5), anomaly(C.USER_CODE, weight=-40, second=1)],
            C.NETWORK_FABRIC,
        ),
    ],
)
def test_the_root(anomalies: list[Anomaly], cause: Cause) -> None:
    assert diagnose(anomalies, JOB).cause is cause


def test_the_order_in_which_anomalies_arrive_changes_nothing() -> None:
    anomalies = [
        anomaly(cause, role, second=n, node=f"n{n % 4}", hold_out=n % 2 == 0)
        for n, cause in enumerate(Cause)
        for role in (Role.ROOT, Role.CASCADE)
    ]
    first = diagnose(anomalies, JOB)
    rng = random.Random(1)
    for _ in range(20):
        rng.shuffle(anomalies)
        assert diagnose(anomalies, JOB) == first
    assert len(first.evidence) <= MAX_EVIDENCE


def test_only_nodes_to_hold_out_are_named_as_nodes() -> None:
    hardware = diagnose([anomaly(C.GPU_MEMORY_ECC, node="n2", hold_out=True)], JOB)
    assert hardware.nodes == ("n2",)
    code = diagnose([anomaly(C.USER_CODE, node="n2")], JOB)
    assert code.nodes == ()
    assert "n2" in code.suspects[0].because


def test_what_most_nodes_show_is_not_about_a_node() -> None:
    many = anomaly(C.GPU_HARDWARE, hold_out=True).model_copy(
        update={"suspects": tuple(Suspect(node=n) for n in ("n1", "n2", "n3"))}
    )
    assert diagnose([many], JOB).nodes == ()
    assert diagnose([many], job(*(f"n{n}" for n in range(16)))).nodes == ("n1", "n2", "n3")


def test_the_only_node_of_a_job_can_be_blamed() -> None:
    assert diagnose([anomaly(C.GPU_MEMORY_ECC, node="n1", hold_out=True)], job("n1")).nodes == ("n1",)


@pytest.mark.parametrize(
    ("anomalies", "symptom"),
    [
        ([anomaly(C.USER_CODE)], Symptom.CRASH),
        ([anomaly(C.UNKNOWN, symptom=Symptom.HANG)], Symptom.HANG),
        # The process that said why it ended began it; the watchdogs follow.
        ([anomaly(C.GPU_OOM), anomaly(C.UNKNOWN, Role.CASCADE, symptom=Symptom.HANG)], Symptom.CRASH),
        # The kernel saw why; the job only hung.
        (
            [
                anomaly(C.NODE_FAILURE, source=Source.KERNEL),
                anomaly(C.UNKNOWN, Role.CASCADE, symptom=Symptom.HANG),
            ],
            Symptom.HANG,
        ),
        (
            [
                anomaly(C.GPU_HARDWARE, source=Source.KERNEL),
                anomaly(C.UNKNOWN, symptom=Symptom.HANG, detector="no-progress"),
            ],
            Symptom.HANG,
        ),
        (
            [
                anomaly(C.USER_CANCEL, source=Source.SCHEDULER),
                anomaly(C.UNKNOWN, symptom=Symptom.HANG, second=9),
            ],
            Symptom.CRASH,
        ),
    ],
)
def test_the_symptom(anomalies: list[Anomaly], symptom: Symptom) -> None:
    assert diagnose(anomalies, JOB).symptom is symptom


def test_evidence_of_two_sources_is_merged_and_raises_confidence() -> None:
    log = anomaly(C.GPU_MEMORY_ECC, node="n2", hold_out=True)
    kernel = anomaly(C.GPU_MEMORY_ECC, node="n2", hold_out=True, source=Source.KERNEL, second=3)
    both = diagnose([log, kernel], JOB)
    assert {e.source for e in both.evidence} == {Source.JOB_LOG, Source.KERNEL}
    assert both.confidence > diagnose([log], JOB).confidence
    assert both.anomaly_ids == (log.anomaly_id, kernel.anomaly_id)


def test_times_key_and_what_was_dropped() -> None:
    root = anomaly(C.USER_CODE, second=5, key="python.any|KeyError|a/b.py:3", retryable=False)
    found = diagnose([root, anomaly(C.NUMERICAL, weight=-30, second=1)], JOB)
    assert found.root_key == root.key
    assert found.retryable is False
    assert found.occurred_at == root.occurred_at
    assert "numerical" in found.explanation


def test_no_anomalies_are_no_diagnosis() -> None:
    with pytest.raises(ValueError, match="at least one"):
        diagnose([], JOB)


def test_nothing_of_the_engine_is_imported() -> None:
    """It runs inside workflows: no pattern engine, no YAML, no file access at import."""
    code = (
        "import sys, relight.diagnosis.verdict;"
        "bad = {'hyperscan', 'yaml', 'hostlist', 'relight.diagnosis.catalogue'} & set(sys.modules);"
        "sys.exit(', '.join(bad) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_torchruns_summary_says_on_which_node_a_worker_ended() -> None:
    """The line of the agent names a process only, and srun names the node when the agent has ended, later."""
    log = """[rank0]: starting on n1
E1203 05:37:02.394000 25342 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -9) \
local_rank: 0 (pid: 25369) of binary: /opt/python
Root Cause (first observed failure):
[0]:
  time      : 2026-12-03_05:37:02
  host      : localhost
  rank      : 1 (local_rank: 0)
  exitcode  : -9 (pid: 25369)  (SIGKILL)
  error_file: <N/A>
"""
    seen = [Sighting(finding=f, at=NOW) for f in findings(log, nodes=("n1", "n2"), per_node=1)]
    told = assemble(seen, attempt=ATTEMPT, now=NOW, nodes=("n1", "n2"), tasks_per_node=1, ended=False)
    diagnosis = diagnose(told, job("n1", "n2", per_node=1))
    assert diagnosis.where == ("n2",)
    assert diagnosis.nodes == (), "one failure alone is no reason to keep the job off it"
    assert diagnosis.root_key == "dist.elastic-failed|-9"
