"""What pyslurm says, as contracts and errors of the port."""

import errno
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.contracts import JobState
from relight.scheduler.port import (
    InvalidRequest,
    NoSuchJob,
    NoSuchNode,
    NotPermitted,
    NotSupported,
    SchedulerError,
    SchedulerUnreachable,
)
from relight.scheduler.pyslurm_errors import NAMES, name_of, port_error
from relight.scheduler.pyslurm_records import job_infos, node_infos

# As `pyslurm.Job` of 25.11.2 has a pending job of nobody in particular: None where Slurm has no value.
PENDING: dict[str, object] = {
    "id": 12, "array_id": None, "array_task_id": None, "array_tasks_waiting": None, "heterogeneous_id": None,
    "heterogeneous_offset": None, "name": "train", "user_name": "ada", "partition": "gpu", "state": "PENDING",
    "state_reason": "Priority", "requeue_count": 0, "submit_time": 1_700_000_000, "start_time": 1_700_009_000,
    "end_time": 1_700_012_600, "eligible_time": 1_700_000_000, "time_limit": 60, "allocated_nodes": None,
    "excluded_nodes": None, "num_nodes": 2, "ntasks": 16, "ntasks_per_node": 8, "priority": 4294901700,
    "is_requeueable": True, "is_batch_job": True, "exit_code": 0, "exit_code_signal": 0,
    "standard_output": "/w/slurm-12.out", "standard_error": None, "working_directory": "/w", "comment": None,
    "gpus": {},
}  # fmt: skip


def test_a_pending_job() -> None:
    job = job_infos([PENDING])["12"]
    assert (job.state, job.reason, job.held, job.time_limit) == (
        JobState.PENDING,
        "Priority",
        False,
        timedelta(hours=1),
    )
    assert (job.start_time, job.end_time, job.exit_code, job.exit_signal) == (None, None, None, None)
    assert (job.nodes, job.num_nodes, job.num_tasks, job.tasks_per_node) == ((), 2, 16, 8)
    assert (job.std_out, job.std_err) == ("/w/slurm-12.out", "/w/slurm-12.out")
    assert (job.comment, job.gpus, job.submit_time.timestamp()) == ("", None, 1_700_000_000)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"priority": 0, "state_reason": "JobHeldUser"}, {"held": True, "reason": "JobHeldUser"}),
        ({"priority": 0, "state": "RUNNING"}, {"held": False, "state": JobState.RUNNING}),
        ({"time_limit": None}, {"time_limit": None}),
        ({"state": "RUNNING", "allocated_nodes": "n[01-02]"}, {"nodes": ("n01", "n02")}),
        ({"excluded_nodes": "n[1,3]"}, {"excluded_nodes": ("n1", "n3")}),
        ({"state": "FAILED", "exit_code_signal": 9}, {"exit_code": 0, "exit_signal": 9}),
        ({"state": "COMPLETING"}, {"state": JobState.COMPLETING, "completing": True}),
        ({"state": "REQUEUE_HOLD"}, {"state": JobState.PENDING, "flags": ("REQUEUE_HOLD",)}),
        ({"state": "WHAT_COMES_NEXT"}, {"state": JobState.UNKNOWN}),
        ({"state_reason": "None"}, {"reason": ""}),
        ({"state_reason": "launch failed requeued held"}, {"reason": "launch_failed_requeued_held"}),
        ({"gpus": {"gpu": 16}}, {"gpus": 16}),
        ({"gpus": {"gpu": 16, "gpu:a100": 16}}, {"gpus": 16}),
        ({"gpus": {"gpu:a100": 8, "gpu:v100": 4}}, {"gpus": 12}),
        ({"num_nodes": None, "ntasks": 1}, {"num_nodes": 0, "num_tasks": 1}),
        ({"comment": "é"}, {"comment": "é"}),
    ],
)
def test_a_job(changed: dict[str, object], expected: dict[str, object]) -> None:
    job = job_infos([{**PENDING, **changed}])["12"]
    assert {name: getattr(job, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("records", "ids"),
    [
        # pending tasks share a record, that has the id of the whole array
        (
            [{"id": 12, "array_id": 12, "array_tasks_waiting": "1-3,7"}],
            {"12_1": "12_1", "12_2": "12_2", "12_3": "12_3", "12_7": "12_7"},
        ),
        (
            [{"id": 12, "array_id": 12, "array_tasks_waiting": "1-5:2"}],
            dict.fromkeys(("12_1", "12_3", "12_5")),
        ),
        ([{"id": 14, "array_id": 12, "array_task_id": 2}], {"12_2": "12_2", "14": "12_2"}),
        ([{"id": 13, "array_id": 12, "array_task_id": None}], {"12_0": "12_0", "13": "12_0"}),
        (
            [
                {"id": 12, "heterogeneous_id": 12},
                {"id": 13, "heterogeneous_id": 12, "heterogeneous_offset": 1},
            ],
            {"12": "12", "12+0": "12", "13": "13", "12+1": "13"},
        ),
    ],
)
def test_ids(records: list[dict[str, object]], ids: dict[str, str | None]) -> None:
    found = job_infos([{**PENDING, **record} for record in records])
    assert {name: info.job_id for name, info in found.items()} == {k: v or k for k, v in ids.items()}


def test_a_record_that_lacks_something_is_no_answer() -> None:
    everything = {
        **PENDING,
        "state": "FAILED",
        "array_id": 11,
        "array_task_id": 2,
        "heterogeneous_id": 12,
        "heterogeneous_offset": 0,
    }
    assert set(job_infos([everything])) == {"11_2", "12", "12+0"}
    for attribute in everything:
        with pytest.raises(SchedulerUnreachable, match="cannot be understood"):
            job_infos([{name: value for name, value in everything.items() if name != attribute}])
    with pytest.raises(SchedulerUnreachable):
        job_infos([{**PENDING, "submit_time": None}])
    with pytest.raises(SchedulerUnreachable):
        node_infos([{"name": "n1", "state": None, "reason": None, "reason_user": None}])


@pytest.mark.parametrize(
    ("state", "reason", "drained", "lost", "user"),
    [
        ("IDLE", None, False, False, ""),
        ("IDLE+DRAIN", "bad", True, False, "root"),
        ("ALLOCATED+DRAIN", "bad", True, False, "root"),
        ("DOWN*", "Not responding", False, True, "root"),
        ("IDLE+NOT_RESPONDING", None, False, True, ""),
    ],
)
def test_a_node(state: str, reason: str | None, drained: bool, lost: bool, user: str) -> None:
    record = {"name": "n1", "state": state, "reason": reason, "reason_user": "root"}
    node = node_infos([record])["n1"]
    assert (node.is_drained, node.is_lost, node.reason_user) == (drained, lost, user)


@pytest.mark.parametrize(
    ("number", "name", "said", "kind"),
    [
        (2017, "ESLURM_INVALID_JOB_ID", "Invalid job id specified", NoSuchJob),
        (2018, "ESLURM_INVALID_NODE_NAME", "Invalid node name specified", NoSuchNode),
        (2002, "ESLURM_ACCESS_DENIED", "Access/permission denied", NotPermitted),
        (2075, "ESLURM_JOB_NOT_PENDING", "Job is no longer pending execution", InvalidRequest),
        (
            1001,
            "SLURM_COMMUNICATIONS_CONNECTION_ERROR",
            "Communication connection failure",
            SchedulerUnreachable,
        ),
        (2999, "", "Unable to contact slurm controller (connect failure)", SchedulerUnreachable),
        (2998, "", "Job violates accounting/QOS policy", InvalidRequest),
        (2997, "", "something new", SchedulerError),
        (errno.ECONNREFUSED, "", "Connection refused", SchedulerUnreachable),
        (errno.ETIMEDOUT, "", "?", SchedulerUnreachable),
        (errno.EPERM, "", "?", NotPermitted),
        (0, "ESLURM_NOT_SUPPORTED", "not UTF-8", NotSupported),
    ],
)
def test_errors(number: int, name: str, said: str, kind: type[SchedulerError]) -> None:
    error = port_error("pyslurm hold", number, name, said)
    assert type(error) is kind
    assert said in str(error)


@given(st.integers(-(2**31), 2**31), st.sampled_from(["", *NAMES]), st.text(max_size=80))
def test_any_error_is_one_of_the_ports(number: int, name: str, said: str) -> None:
    error = port_error("pyslurm job", number, name, said)
    assert isinstance(error, SchedulerError)
    if name:
        assert type(error) is NAMES[name]


@given(st.dictionaries(st.sampled_from(sorted(NAMES)), st.integers(1000, 9000)), st.integers(1000, 9000))
def test_names_of_numbers(values: dict[str, int], number: int) -> None:
    """Whatever numbers a version of Slurm gives to the names, and whichever names it lacks."""
    name = name_of(number, values.get)
    assert values[name] == number if name else number not in values.values()
