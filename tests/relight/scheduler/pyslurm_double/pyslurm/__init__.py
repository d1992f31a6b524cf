"""A double of the few names of pyslurm that relight uses, on the `local` scheduler.

Shapes (names, types, what is None) are those of pyslurm 25.11.2 from PyPI, read from its source,
`pyslurm/core/job/job.pyx`, `core/job/submission.pyx`, `core/node.pyx`, `core/slurmctld/config.pyx`,
`core/error.pyx` and `db/tres.pyx`:

- whatever is 0, NO_VAL or NULL is None, where those files say so; times are whole seconds, limits minutes;
- an empty text or list in a change means "no change" (`cstr.fmalloc`);
- `Job.cancel` passes over jobs that are unknown or over; `_get_exit_code` takes 128 off codes from 128 on.

The numbers of errors stand for Slurm's (2017 is the real one): relight goes by the names.

What a test does to it: `RELIGHT_DOUBLE_STATE` names the directory of
the local scheduler; `RELIGHT_DOUBLE_FAULT` is `exit` (importing ends the process, as libslurm does without a
configuration), `hang` (the calls never return), `old` (an attribute is missing), or a version
that it then claims for Slurm.
"""

import asyncio
import os
import sys
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import hostlist

from relight.contracts import JobInfo, JobState
from relight.scheduler.local import LocalScheduler
from relight.scheduler.port import InvalidRequest, NoSuchJob, NoSuchNode
from relight.scheduler.pyslurm_child import JOB_ATTRIBUTES, NODE_ATTRIBUTES

T = TypeVar("T")

__version__ = "25.11.2"

SLURM_SUCCESS = 0
SLURM_COMMUNICATIONS_CONNECTION_ERROR = 1001
ESLURM_ACCESS_DENIED = 2002
ESLURM_INVALID_JOB_ID = 2017
ESLURM_INVALID_NODE_NAME = 2018
ESLURM_JOB_PENDING = 2024
ESLURM_JOB_NOT_PENDING = 2075

_FAULT = os.environ.get("RELIGHT_DOUBLE_FAULT", "")
_LACKS = {"allocated_tres"} if _FAULT == "old" else set[str]()
if _FAULT == "exit":
    os.write(2, b"fatal: Could not establish a configuration source\n")
    os._exit(1)

_local = LocalScheduler(Path(os.environ["RELIGHT_DOUBLE_STATE"]))


class PyslurmError(Exception):
    """`core/error.pyx`."""


class RPCError(PyslurmError):
    """`core/error.pyx`: `errno` int, `msg` str."""

    def __init__(self, errno: int, msg: str) -> None:
        self.errno, self.msg = errno, msg
        super().__init__(msg)


def _rpc(work: Coroutine[Any, Any, T]) -> T:
    if _FAULT == "hang":
        work.close()
        time.sleep(3600)
    try:
        return asyncio.run(work)
    except NoSuchJob as e:
        raise RPCError(ESLURM_INVALID_JOB_ID, "Invalid job id specified") from e
    except NoSuchNode as e:
        raise RPCError(ESLURM_INVALID_NODE_NAME, "Invalid node name specified") from e
    except InvalidRequest as e:
        raise RPCError(ESLURM_JOB_NOT_PENDING, "Job is no longer pending execution") from e


@dataclass
class JobSubmitDescription:
    """`core/job/submission.pyx`: the attributes that are changed."""

    excluded_nodes: list[str] = field(default_factory=list)
    comment: str | None = None
    begin_time: str | int | None = None


def _seconds(moment: Any) -> int | None:
    return None if moment is None else int(moment.timestamp())


class Job:
    """`core/job/job.pyx`; attributes are properties of the class, which relight looks for."""

    __slots__ = (*JOB_ATTRIBUTES, *({"allocated_tres"} - _LACKS))

    def __init__(self, job_id: int) -> None:
        self.id = job_id

    @classmethod
    def _of(cls, info: JobInfo) -> "Job":
        job = cls(int(info.job_id))
        over = info.state.is_over
        code = info.exit_code or 0
        values = dict(  # noqa: C408 (shorter)
            array_id=None, array_task_id=None, array_tasks_waiting=None,
            heterogeneous_id=4294967294, heterogeneous_offset=None,
            name=info.name, user_name=info.user, partition=info.partition,
            state="COMPLETING" if info.completing else info.state.name,
            state_reason=info.reason or "None",
            requeue_count=info.restart_count,
            submit_time=_seconds(info.submit_time), start_time=_seconds(info.start_time),
            end_time=_seconds(info.end_time), eligible_time=_seconds(info.eligible_time),
            time_limit=int(info.time_limit.total_seconds() // 60) if info.time_limit else None,
            allocated_nodes=hostlist.collect_hostlist(info.nodes) or None,
            excluded_nodes=hostlist.collect_hostlist(info.excluded_nodes) or None,
            num_nodes=info.num_nodes or None, ntasks=info.num_tasks, ntasks_per_node=info.tasks_per_node,
            priority=0 if info.held else 4294901760,
            is_requeueable=info.requeueable, is_batch_job=info.is_batch,
            exit_code=(code - 128 if code >= 128 else code) if over else 0,
            exit_code_signal=(info.exit_signal or 0) if over else 0,
            # slurm_get_job_stdout has no patterns left to expand in names of real jobs' files
            standard_output=info.std_out.replace("%", "%%"), standard_error=info.std_err.replace("%", "%%"),
            working_directory=info.work_dir, comment=info.comment or None,
            allocated_tres=None if info.gpus is None else SimpleNamespace(
                gres={"gpu": SimpleNamespace(count=info.gpus)}
            ),
        )  # fmt: skip
        for name in set(values) - _LACKS:
            setattr(job, name, values[name])
        return job

    def requeue(self, hold: bool = False) -> None:
        assert hold, "relight never requeues without a hold"
        _rpc(_local.requeue_hold(str(self.id)))

    def modify(self, changes: JobSubmitDescription) -> None:
        if changes.excluded_nodes:
            _rpc(_local.exclude_nodes(str(self.id), changes.excluded_nodes))
        if changes.comment:
            _rpc(_local.set_comment(str(self.id), changes.comment))
        if changes.begin_time:
            _rpc(_local.job(str(self.id)))  # the local scheduler's `release` lifts the delay

    def hold(self, mode: str | None = None) -> None:
        _rpc(_local.hold(str(self.id)))

    def release(self) -> None:
        _rpc(_local.release(str(self.id)))

    def cancel(self) -> None:
        try:
            _rpc(_local.cancel(str(self.id)))
        except RPCError as e:
            if e.errno != ESLURM_INVALID_JOB_ID:
                raise

    def get_batch_script(self) -> str:
        return _rpc(_local.batch_script(str(self.id)))


class Jobs(dict[int, Job]):
    """`core/job/job.pyx`: all jobs in one RPC."""

    @staticmethod
    def load(preload_passwd_info: bool = False, frozen: bool = False) -> "Jobs":
        return Jobs({int(i.job_id): Job._of(i) for i in _rpc(_local.find_by_comment(""))})


class Node:
    """`core/node.pyx`; `Node(state=..., reason=...)` is a change."""

    __slots__ = NODE_ATTRIBUTES

    def __init__(self, name: str | None = None, **changes: str) -> None:
        self.name = name
        self.state: str | None = None
        self.reason: str | None = None
        self.reason_user = "root"  # user 0, also where there is no reason
        for attribute, value in changes.items():
            setattr(self, attribute, value)

    def modify(self, changes: "Node") -> None:
        assert self.name is not None
        if changes.state == "DRAIN":
            _rpc(_local.drain_node(self.name, changes.reason or ""))
        else:
            assert changes.state == "RESUME"
            _rpc(_local.resume_node(self.name))


class Nodes(dict[str, Node]):
    """`core/node.pyx`: all nodes in two RPCs (partitions too)."""

    @staticmethod
    def load(preload_passwd_info: bool = False) -> "Nodes":
        def states(base: str, flags: Iterable[str]) -> str:
            return "+".join((base, *flags))

        return Nodes(
            {
                name: Node(
                    name, state=states(info.state, info.flags), reason=info.reason or None,
                    reason_user=info.reason_user or "root",
                )
                for name, info in _rpc(_local.nodes()).items()
            }
        )  # fmt: skip


class _Config:
    """`core/slurmctld/config.pyx`."""

    @staticmethod
    def load() -> SimpleNamespace:
        _rpc(_local.version())
        claimed = _FAULT if _FAULT[:1].isdecimal() else "25.11.7"
        print("libslurm talks", file=sys.stdout, flush=True)  # which must not disturb the answers
        return SimpleNamespace(version=claimed, cluster_name="double")


slurmctld = SimpleNamespace(Config=_Config)

assert JobState.RUNNING.name == "RUNNING"  # names of states are Slurm's own
