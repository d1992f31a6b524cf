"""A scheduler in memory: for states that a real one is in for moments only, and for lost answers."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from relight.contracts import JobInfo, JobState, NodeInfo
from relight.scheduler.port import (
    InvalidRequest,
    NoSuchJob,
    NoSuchNode,
    NotSupported,
    SchedulerError,
    SchedulerUnreachable,
    SchedulerVersion,
    SubmitRequest,
)

T0 = datetime(2026, 12, 2, 5, 0, tzinfo=UTC)
NODES = ("n1", "n2", "n3", "n4")
SCRIPT = "#!/bin/bash\nsrun train\n"


def running(**fields: Any) -> JobInfo:
    """Job 42 in its first attempt, on n1 and n2."""
    defaults: dict[str, Any] = {
        "job_id": "42",
        "state": JobState.RUNNING,
        "submit_time": T0,
        "nodes": ("n1", "n2"),
        "num_nodes": 2,
    }
    return JobInfo(**(defaults | fields))


class Double:
    """Behaves as Slurm does for one small cluster, and records each command.

    `lose` names commands whose answer is lost: `before` they act, or `after`. `refuse` names those that fail.
    """

    def __init__(self, info: JobInfo | None = None) -> None:
        self.known = {info.job_id: info} if info else {}
        self.accounting: dict[str, JobInfo] | None = None
        self.lost_nodes: set[str] = set()
        self.drained: dict[str, str] = {}
        """Reasons of drained nodes."""
        self.since: datetime | None = None
        self.partitions: dict[str, int] = {}
        self.commands: list[str] = []
        self.lose: dict[str, str] = {}
        self.refuse: dict[str, SchedulerError] = {}
        self.submitted: dict[str, SubmitRequest] = {}

    def set(self, job_id: str = "42", **fields: Any) -> JobInfo:
        self.known[job_id] = self.known[job_id].model_copy(update=fields)
        return self.known[job_id]

    def _begin(self, command: str, *args: object) -> None:
        if command in self.refuse:
            raise self.refuse[command]
        if self.lose.get(command) == "before":
            raise SchedulerUnreachable(f"{command}: no answer")
        self.commands.append(" ".join([command, *map(str, args)]))

    def _end(self, command: str) -> None:
        if self.lose.get(command) == "after":
            raise SchedulerUnreachable(f"{command}: no answer")

    def _pending(self, job_id: str) -> JobInfo:
        info = self.known[job_id]
        if info.state not in (JobState.PENDING, JobState.COMPLETING):
            raise InvalidRequest(f"Job is no longer pending execution for job {job_id}")
        return info

    # ---- reading
    async def version(self) -> SchedulerVersion:
        return SchedulerVersion(name="double", version="1", cluster="lab")

    async def running_since(self) -> datetime | None:
        return self.since

    async def partition_size(self, partition: str) -> int | None:
        if self.lose.get("partition_size"):
            raise SchedulerUnreachable("partition_size: no answer")
        return self.partitions.get(partition)

    async def jobs(self, job_ids: Sequence[str]) -> Mapping[str, JobInfo]:
        if self.lose.get("job"):
            raise SchedulerUnreachable("jobs: no answer")
        return {j: self.known[j] for j in job_ids if j in self.known}

    async def job(self, job_id: str) -> JobInfo:
        if self.lose.get("job"):
            raise SchedulerUnreachable("job: no answer")
        if job_id not in self.known:
            raise NoSuchJob(f"Invalid job id specified: {job_id}")
        return self.known[job_id]

    async def finished_job(self, job_id: str) -> JobInfo:
        if self.accounting is None:
            raise NotSupported("accounting is off")
        if job_id not in self.accounting:
            raise NoSuchJob(f"accounting has no job {job_id}")
        return self.accounting[job_id]

    async def nodes(self, names: Sequence[str] = ()) -> Mapping[str, NodeInfo]:
        if self.lose.get("nodes"):
            raise SchedulerUnreachable("nodes: no answer")
        return {
            n: NodeInfo(
                name=n,
                state="DOWN" if n in self.lost_nodes else "IDLE",
                flags=("DRAIN",) if n in self.drained else (),
                reason=self.drained.get(n, ""),
            )
            for n in NODES
            if not names or n in names
        }

    async def batch_script(self, job_id: str) -> str:
        return (await self.submit_template(job_id)).script

    async def submit_template(self, job_id: str) -> SubmitRequest:
        info = await self.job(job_id)
        if refusal := self.refuse.get("submit_template"):
            raise refusal
        return SubmitRequest(
            script=SCRIPT, nodes=info.num_nodes, comment=info.comment, excluded_nodes=info.excluded_nodes
        )

    async def find_by_comment(self, text: str) -> Sequence[JobInfo]:
        return [info for info in self.known.values() if text in info.comment]

    async def jobs_on(self, node: str) -> Sequence[JobInfo]:
        return [info for info in self.known.values() if node in info.nodes]

    # ---- commands
    async def submit(self, request: SubmitRequest) -> str:
        self._begin("submit")
        job_id = str(43 + len(self.submitted))
        self.submitted[job_id] = request
        self.known[job_id] = JobInfo(
            job_id=job_id,
            state=JobState.PENDING,
            submit_time=T0 + timedelta(hours=1),
            comment=request.comment,
            excluded_nodes=request.excluded_nodes,
            num_nodes=request.nodes,
            held=request.hold,
        )
        self._end("submit")
        return job_id

    async def requeue_hold(self, job_id: str) -> None:
        self._begin("requeue_hold", job_id)
        info = self.known[job_id]
        if info.state is JobState.PENDING:
            raise InvalidRequest(f"Job is pending execution for job {job_id}")
        if not info.requeueable:
            raise InvalidRequest(f"Requested operation is presently disabled for job {job_id}")
        self.set(
            job_id,
            state=JobState.PENDING,
            held=True,
            nodes=(),
            restart_count=info.restart_count + 1,
            submit_time=info.submit_time + timedelta(minutes=10),
            reason="job_requeued_in_held_state",
        )
        self._end("requeue_hold")

    async def exclude_nodes(self, job_id: str, nodes: Sequence[str]) -> None:
        self._begin("exclude_nodes", job_id, ",".join(nodes))
        self._pending(job_id)
        self.set(job_id, excluded_nodes=tuple(nodes))
        self._end("exclude_nodes")

    async def set_comment(self, job_id: str, comment: str) -> None:
        self._begin("set_comment", job_id)
        self.set(job_id, comment=comment)
        self._end("set_comment")

    async def hold(self, job_id: str) -> None:
        self._begin("hold", job_id)
        self.set(job_id, held=True)  # Slurm holds running jobs too
        self._end("hold")

    async def release(self, job_id: str) -> None:
        self._begin("release", job_id)
        self.set(job_id, held=False, reason="None")
        self._end("release")

    async def cancel(self, job_id: str) -> None:
        self._begin("cancel", job_id)
        if not self.known[job_id].state.is_over:
            self.set(job_id, state=JobState.CANCELLED)
        self._end("cancel")

    async def drain_node(self, node: str, reason: str) -> None:
        self._begin("drain_node", node)
        if node not in NODES:
            raise NoSuchNode(node)
        self.drained[node] = reason
        self._end("drain_node")

    async def resume_node(self, node: str) -> None:
        self._begin("resume_node", node)
        if node not in NODES:
            raise NoSuchNode(node)
        self.drained.pop(node, None)
        self._end("resume_node")
