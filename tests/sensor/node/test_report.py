"""Whom a fact concerns, and the anomaly it becomes."""

from datetime import timedelta

import pytest

from relight.contracts import Attempt, Cause, JobInfo, JobState, Role, Source, Symptom, TrainingJob
from relight.diagnosis.verdict import diagnose
from sensor.node.report import anomaly, concerned, node_reports
from tests.sensor.making import ATTEMPT, JOB, START, info, requeued
from tests.sensor.node.test_facts import fact

AT = START + timedelta(minutes=5)
MONITOR = "job:lab:42:1"


def tell(*jobs: JobInfo, watched: TrainingJob = JOB, **more: object) -> dict[str, Attempt]:
    return concerned(fact(at=more.pop("at", AT), **more), jobs, {MONITOR: watched}, "lab")


def test_the_watched_job_on_the_node_is_concerned() -> None:
    assert tell(info()) == {MONITOR: ATTEMPT}


def test_a_job_that_nobody_watches_is_not() -> None:
    assert concerned(fact(at=AT), [info()], {}, "lab") == {}
    assert tell(info(job_id="43")) == {}


def test_a_fact_of_another_job_is_not_about_this_one() -> None:
    assert tell(info(), job_id="43") == {}
    assert tell(info(), job_id="42") == {MONITOR: ATTEMPT}


@pytest.mark.parametrize(
    ("job", "is_told"),
    [
        (info(start_time=AT + timedelta(seconds=1)), True),  # whole seconds, another clock
        (info(start_time=AT + timedelta(seconds=10)), False),
        (info(JobState.PENDING, start_time=None), False),
        (info(JobState.FAILED, end_time=AT + timedelta(seconds=2)), True),
        (info(JobState.FAILED, end_time=AT - timedelta(seconds=30)), True),
        (info(JobState.FAILED, end_time=AT - timedelta(minutes=10)), False),
        (info(JobState.COMPLETING), True),
    ],
)
def test_only_who_ran_then_is_told(job: JobInfo, is_told: bool) -> None:
    assert bool(tell(job)) is is_told


def test_a_requeued_job_is_told_of_the_attempt_that_ran() -> None:
    # While the old attempt is completing, Slurm already counts it as the next one.
    completing = requeued(JobState.PENDING, start_time=START, flags=("COMPLETING",), nodes=("node01",))
    assert tell(completing) == {MONITOR: ATTEMPT}
    again = requeued(JobState.RUNNING, start_time=START + timedelta(minutes=2))
    (attempt,) = tell(again).values()
    assert attempt.restart_count == 1


def test_a_job_under_a_reused_id_is_another_job() -> None:
    assert tell(info(submit_time=START + timedelta(days=1), start_time=START)) == {}


def test_the_anomaly_carries_what_decides() -> None:
    told = anomaly(fact(at=AT, count=3), ATTEMPT, AT + timedelta(seconds=1))
    assert (told.symptom, told.cause, told.role) == (Symptom.CRASH, Cause.GPU_FALLEN_OFF_BUS, Role.ROOT)
    assert (told.hold_out, told.count, told.detector, told.key) == (True, 3, "kernel", "kernel.xid|79")
    (evidence,) = told.evidence
    assert (evidence.source, evidence.trust, evidence.node, evidence.gpu) == (
        Source.KERNEL, True, "node01", "0000:3b:00",
    )  # fmt: skip
    diagnosis = diagnose([told], JOB)
    assert diagnosis.nodes == ("node01",)
    assert diagnosis.cause is Cause.GPU_FALLEN_OFF_BUS


def test_a_fact_told_twice_is_one_anomaly_and_of_two_attempts_two() -> None:
    later = ATTEMPT.model_copy(update={"restart_count": 1})
    ids = [anomaly(fact(), a, AT + timedelta(seconds=n)).anomaly_id for n, a in enumerate([ATTEMPT] * 2)]
    assert ids[0] == ids[1]
    assert anomaly(fact(), later, AT).anomaly_id != ids[0]
    assert anomaly(fact(where="kmsg:b:2"), ATTEMPT, AT).anomaly_id != ids[0]


def test_the_guard_is_told_of_a_faulty_node_for_each_job_that_was_hit() -> None:
    told = node_reports(fact(at=AT), [info(), info(job_id="43"), info(job_id="44", start_time=None)])
    assert [(r.nodes, r.job, r.cause) for r in told] == [
        (("node01",), "42", Cause.GPU_FALLEN_OFF_BUS),
        (("node01",), "43", Cause.GPU_FALLEN_OFF_BUS),
    ]
    assert all(r.trusted and r.faulty for r in told)


def test_a_faulty_node_without_a_job_is_told_of_once() -> None:
    (told,) = node_reports(fact(at=AT), [])
    assert (told.nodes, told.job) == (("node01",), "")


@pytest.mark.parametrize(
    ("more", "tells", "faulty"),
    [
        ({}, True, True),
        ({"hold_out": False}, False, False),
        ({"role": Role.CONTEXT}, False, False),
        ({"role": Role.CONTEXT, "hold_out": False, "needs": "reset"}, True, False),
        ({"node": None}, False, False),
    ],
)
def test_only_what_is_wrong_with_the_node_itself_is_told(
    more: dict[str, object], tells: bool, faulty: bool
) -> None:
    plain = fact(at=AT)
    changed = plain.model_copy(update={"finding": plain.finding.model_copy(update=more)})
    told = node_reports(changed, [info()])
    assert [r.faulty for r in told] == ([faulty] if tells else [])
