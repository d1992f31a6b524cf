"""What `pyslurm_child` sends of jobs and nodes, as the port's contracts."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from relight.contracts import JobInfo, JobState, NodeInfo
from relight.scheduler.port import SchedulerUnreachable
from relight.scheduler.slurm_paths import output_files
from relight.scheduler.slurm_text import expand_nodes, job_state, node_state

Record = Mapping[str, Any]


def job_infos(records: Sequence[Record]) -> dict[str, JobInfo]:
    """The jobs by every id that names just one, as `slurm_text.job_infos` has them.

    Raises:
        SchedulerUnreachable: a record cannot be understood.
    """
    found: dict[str, JobInfo] = {}
    try:
        for record in records:
            raw, array = str(record["id"]), record["array_id"]
            for task in _tasks(record):
                info = _job_info(record, task)
                found[info.job_id] = info
                if not task or raw != str(array):
                    found.setdefault(raw, info)
            if record["heterogeneous_id"]:
                found[f"{record['heterogeneous_id']}+{record['heterogeneous_offset'] or 0}"] = found[raw]
    except (KeyError, TypeError, ValueError) as e:
        raise SchedulerUnreachable(f"pyslurm's answer cannot be understood: {type(e).__name__}: {e}") from e
    return found


def node_infos(records: Sequence[Record]) -> dict[str, NodeInfo]:
    """The nodes by name.

    Raises:
        SchedulerUnreachable: a record cannot be understood.
    """
    try:
        return {record["name"]: _node_info(record) for record in records}
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise SchedulerUnreachable(f"pyslurm's answer cannot be understood: {type(e).__name__}: {e}") from e


def exit_code_is_sure(info: JobInfo) -> bool:
    """Whether pyslurm's exit code is the job's.

    pyslurm takes 128 off every exit code from there on (`_get_exit_code` of `utils/helpers.pyx`): 137 and 9
    look alike.
    """
    failed = info.state.is_over and info.state is not JobState.COMPLETED
    return not failed or info.exit_signal is not None


def _tasks(record: Record) -> list[str]:
    """Indices in the array of the tasks that a record stands for; one empty text if it is no array's."""
    if record["array_id"] is None:
        return [""]
    if waiting := record["array_tasks_waiting"]:  # pending tasks share a record: 0-3,7 or 1-9:2
        return [task for part in waiting.split(",") for task in _range(part)]
    return [str(record["array_task_id"] or 0)]  # pyslurm has None for index 0


def _range(part: str) -> list[str]:
    span, _, step = part.partition(":")
    first, _, last = span.partition("-")
    return [str(index) for index in range(int(first), int(last or first) + 1, int(step or 1))]


def _job_info(record: Record, task: str) -> JobInfo:
    state, flags = job_state(record["state"] or "")
    raw, array = str(record["id"]), "" if record["array_id"] is None else str(record["array_id"])
    name, user, work_dir = record["name"] or "", record["user_name"] or "", record["working_directory"] or ""
    began = state not in {JobState.PENDING, JobState.CONFIGURING}
    num_nodes = record["num_nodes"] or 0
    std_out, std_err = output_files(
        record["standard_output"] or "",
        record["standard_error"] or "",
        work_dir=work_dir,
        job_id=raw,
        array_job_id=array if task else "",
        array_task_id=task,
        name=name,
        user=user,
    )
    submitted = _time(record["submit_time"])
    if submitted is None:
        raise ValueError(f"job {raw} has no submit time")
    return JobInfo(
        job_id=f"{array}_{task}" if task else raw,
        name=name,
        user=user,
        partition=record["partition"] or "",
        state=state,
        flags=flags,
        reason=_reason(record["state_reason"]),
        restart_count=record["requeue_count"] or 0,
        submit_time=submitted,
        start_time=_time(record["start_time"]) if began else None,  # before, it is Slurm's guess
        end_time=_time(record["end_time"]) if state.is_over else None,
        eligible_time=_time(record["eligible_time"]),
        time_limit=None if record["time_limit"] is None else timedelta(minutes=record["time_limit"]),
        nodes=expand_nodes(record["allocated_nodes"] or ""),
        excluded_nodes=expand_nodes(record["excluded_nodes"] or ""),
        num_nodes=num_nodes,
        num_tasks=record["ntasks"] or num_nodes,
        tasks_per_node=record["ntasks_per_node"],
        gpus=_gpus(record["gpus"]),
        held=record["priority"] == 0 and state is JobState.PENDING,
        requeueable=record["is_requeueable"],
        is_batch=record["is_batch_job"],
        exit_code=record["exit_code"] if state.is_over else None,
        exit_signal=(record["exit_code_signal"] or None) if state.is_over else None,
        std_out=std_out,
        std_err=std_err,
        work_dir=work_dir,
        comment=record["comment"] or "",
    )


def _node_info(record: Record) -> NodeInfo:
    state, flags = node_state(record["state"])
    reason = record["reason"] or ""
    return NodeInfo(
        name=record["name"],
        state=state,
        flags=flags,
        reason=reason,
        reason_user=(record["reason_user"] or "") if reason else "",  # user 0 is what nobody is, too
    )


def _time(seconds: int | None) -> datetime | None:
    """Seconds since 1970."""
    return None if not seconds else datetime.fromtimestamp(seconds, UTC)


def _reason(text: str | None) -> str:
    return "" if not text or text == "None" else text.replace(" ", "_")


def _gpus(counts: Mapping[str, int]) -> int | None:
    """Of `{"gpu": 8, "gpu:a100": 8}`: the first counts all, where it is."""
    return counts.get("gpu", sum(counts.values())) or None
