"""The port `Scheduler` by pyslurm, for sites whose pyslurm was built for their Slurm (23.11 and later).

Reads and changes are calls of about a millisecond to a process that stays, in place of a new process each.
What pyslurm cannot do, or not as relight needs it, goes to the `slurm-cli` adapter: accounting, submitting,
tasks of arrays that have no id of their own yet, and taking a comment or an exclusion list away.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from relight.contracts import JobInfo, NodeInfo, clean_text
from relight.scheduler.port import (
    InvalidRequest,
    NoSuchJob,
    NoSuchNode,
    Scheduler,
    SchedulerError,
    SchedulerVersion,
    SubmitRequest,
)
from relight.scheduler.pyslurm_process import PyslurmProcess
from relight.scheduler.pyslurm_records import exit_code_is_sure, job_infos, node_infos
from relight.scheduler.slurm_cli import check_job, check_node, let_credentials_pass, unknown_job


class SlurmPyslurmScheduler:
    """Slurm, as pyslurm shows and changes it."""

    def __init__(self, commands: Scheduler, timeout: float = 15.0) -> None:
        """Asks nothing yet.

        Args:
            commands: does what pyslurm cannot: the `slurm-cli` adapter.
            timeout: the longest that one call may take, in seconds.
        """
        self._commands = commands
        self._reads = PyslurmProcess(timeout)
        self._changes = PyslurmProcess(timeout)  # of its own: a listing that hangs delays no recovery

    @property
    def calls(self) -> int:
        """How many requests went to pyslurm."""
        return self._reads.calls + self._changes.calls

    def close(self) -> None:
        """Ends the processes that use pyslurm; they also end with this one."""
        self._reads.close()
        self._changes.close()

    # ---- reading -----------------------------------------------------------------------------------------

    async def version(self) -> SchedulerVersion:
        """See the port."""
        told = await self._reads.call("version")
        return SchedulerVersion(name="slurm", version=told["slurm"], cluster=told["cluster"])

    async def jobs(self, job_ids: Sequence[str]) -> Mapping[str, JobInfo]:
        """See the port. One RPC, whatever the number of jobs."""
        if not job_ids:
            return {}
        found = await self._find(job_ids)
        return {job_id: found[job_id] for job_id in job_ids if job_id in found}

    async def job(self, job_id: str) -> JobInfo:
        """See the port.

        Raises:
            InvalidRequest: a whole array of jobs has this id.
        """
        found = await self._find([job_id])
        if job_id in found:
            return found[job_id]
        if tasks := sorted(name for name in found if name.startswith(f"{job_id}_")):
            raise InvalidRequest(
                f"job {job_id} is an array of jobs: name one of them, {tasks[0]} for example"
            )
        raise unknown_job(job_id)

    async def finished_job(self, job_id: str) -> JobInfo:
        """See the port."""
        return await self._commands.finished_job(job_id)

    async def running_since(self) -> datetime | None:
        """See the port."""
        return await self._commands.running_since()

    async def partition_size(self, partition: str) -> int | None:
        """See the port."""
        return await self._commands.partition_size(partition)

    async def nodes(self, names: Sequence[str] = ()) -> Mapping[str, NodeInfo]:
        """See the port."""
        for name in names:
            check_node(name)
        return node_infos(await self._reads.call("nodes", names=list(names)))

    async def jobs_on(self, node: str) -> Sequence[JobInfo]:
        """See the port."""
        check_node(node)
        found = await self._listed(node=node)
        if not found and node not in await self.nodes([node]):
            raise NoSuchNode(f"Slurm knows no node {node}")
        return found

    async def batch_script(self, job_id: str) -> str:
        """See the port."""
        if not job_id.isdecimal():
            return await self._commands.batch_script(job_id)
        check_job(job_id)
        return str(await self._reads.call("batch_script", job_id=int(job_id)))

    async def submit_template(self, job_id: str) -> SubmitRequest:
        """See the port."""
        return await self._commands.submit_template(job_id)

    async def find_by_comment(self, text: str) -> Sequence[JobInfo]:
        """See the port."""
        return await self._listed(text=text)

    async def open_jobs_of(self, user: str) -> Sequence[JobInfo]:
        """See the port. By squeue, which asks for one user's jobs alone."""
        return await self._commands.open_jobs_of(user)

    # ---- jobs --------------------------------------------------------------------------------------------

    async def submit(self, request: SubmitRequest) -> str:
        """See the port."""
        return await self._commands.submit(request)

    async def requeue_hold(self, job_id: str) -> None:
        """See the port."""
        if not job_id.isdecimal():
            return await self._commands.requeue_hold(job_id)
        return await self._change("requeue_hold", job_id)

    async def exclude_nodes(self, job_id: str, nodes: Sequence[str]) -> None:
        """See the port."""
        for node in nodes:
            check_node(node)
        if not nodes or not job_id.isdecimal():  # pyslurm: an empty list changes nothing
            return await self._commands.exclude_nodes(job_id, nodes)
        return await self._change("modify", job_id, changes={"excluded_nodes": list(nodes)})

    async def set_comment(self, job_id: str, comment: str) -> None:
        """See the port."""
        if "\0" in comment:
            raise InvalidRequest("a comment cannot hold a NUL character")
        if not comment or not job_id.isdecimal():  # pyslurm: an empty text changes nothing
            return await self._commands.set_comment(job_id, comment)
        return await self._change("modify", job_id, changes={"comment": comment})

    async def hold(self, job_id: str) -> None:
        """See the port."""
        if not job_id.isdecimal():
            return await self._commands.hold(job_id)
        return await self._change("hold", job_id)

    async def release(self, job_id: str) -> None:
        """See the port. Takes up to 1.25 s where the job was requeued just now: see `CREDENTIAL_GAP`."""
        if not job_id.isdecimal():
            return await self._commands.release(job_id)
        await let_credentials_pass(await self.job(job_id))
        await self._change("modify", job_id, changes={"begin_time": "now"})
        return await self._change("release", job_id)

    async def cancel(self, job_id: str) -> None:
        """See the port.

        pyslurm takes whatever errno there is after the call for the call's, an older one too
        (`Job.send_signal` of `core/job/job.pyx`): an error counts only if the job goes on.
        """
        if not job_id.isdecimal():
            return await self._commands.cancel(job_id)
        try:
            await self._change("cancel", job_id)
        except SchedulerError as e:
            if e.retryable:
                raise
            try:
                info = await self.job(job_id)
            except NoSuchJob:
                return None
            if not (info.state.is_over or info.completing):
                raise
        return None

    # ---- nodes -------------------------------------------------------------------------------------------

    async def drain_node(self, node: str, reason: str) -> None:
        """See the port."""
        check_node(node)
        if not (said := clean_text(reason)):
            raise InvalidRequest(f"node {node} cannot be drained without a reason")
        await self._changes.call("set_node", node=node, state="DRAIN", reason=said)

    async def resume_node(self, node: str) -> None:
        """See the port."""
        check_node(node)
        try:
            await self._changes.call("set_node", node=node, state="RESUME")
        except InvalidRequest:
            info = (await self.nodes([node])).get(node)
            if info is None or info.is_drained:  # otherwise there was no drain to take back
                raise

    # ---- inside ------------------------------------------------------------------------------------------

    async def _find(self, job_ids: Sequence[str]) -> dict[str, JobInfo]:
        for job_id in job_ids:
            check_job(job_id)
        found = job_infos(await self._reads.call("jobs", ids=list(dict.fromkeys(job_ids))))
        return await self._with_sure_exit_codes(found)

    async def _listed(self, **chosen: str) -> list[JobInfo]:
        found = await self._with_sure_exit_codes(job_infos(await self._reads.call("jobs", **chosen)))
        return [info for job_id, info in found.items() if job_id == info.job_id]

    async def _with_sure_exit_codes(self, found: dict[str, JobInfo]) -> dict[str, JobInfo]:
        """Exit codes from squeue, where pyslurm's may be another: see `exit_code_is_sure`."""
        unsure = sorted({info.job_id for info in found.values() if not exit_code_is_sure(info)})
        sure = await self._commands.jobs(unsure) if unsure else {}
        codes = {
            job_id: info.exit_code
            for job_id, info in sure.items()
            if info.restart_count == found[job_id].restart_count
        }
        return {
            job_id: info.model_copy(update={"exit_code": codes.get(info.job_id)})
            if info.job_id in unsure
            else info
            for job_id, info in found.items()
        }

    async def _change(self, ask: str, job_id: str, **arguments: object) -> None:
        check_job(job_id)
        await self._changes.call(ask, job_id=int(job_id), **arguments)
