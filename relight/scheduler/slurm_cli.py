"""The port `Scheduler` by Slurm's own commands, for Slurm 22.05 and later."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from relight.contracts import JobInfo, NodeInfo, clean_text
from relight.scheduler import slurm_submit, slurm_text
from relight.scheduler.port import (
    InvalidRequest,
    NoSuchJob,
    NoSuchName,
    NotSupported,
    SchedulerError,
    SchedulerUnreachable,
    SchedulerVersion,
    SubmitRequest,
)
from relight.scheduler.slurm_run import SlurmCommands, account_of

_JOB_ID = re.compile(r"[0-9]{1,10}(?:_[0-9]{1,10}|\+[0-9]{1,5})?")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,253}")
_USER = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,63}")
_PARTITION = re.compile(r"[^\s=,]{1,255}")
_ALL_NODES = "ALL"  # scontrol(1): NodeName=ALL means every node

_LISTING = ("--all", "--local", "--array", "--noconvert", "--states=all")
"""Options of squeue: hidden partitions, this cluster only, a row for each task of an array, ended jobs."""

_MAX_IDS = 100_000
"""Characters of ids on one command line (Linux allows 128 KiB for an argument)."""

CREDENTIAL_GAP = timedelta(seconds=1.25)
"""How long after a requeue a job must not start.

A requeue revokes the credentials that were made for the job up to that second. A job that starts on one of
its old nodes within the same second is refused there ("Job credential revoked") and fails at once, with exit
code 1 and no output. Slurm itself delays a requeued job by the life of a credential (121 s), which `release`
lifts. Submit times are whole seconds, so that second is over one second after the time shown at the latest
(measured on 22.05: of 24 jobs released within it 17 failed, of 36 released 20 ms and more after it none); the
rest is for clocks that differ.
"""


class SlurmCliScheduler:
    """Slurm, as squeue, sinfo, sacct, scontrol, scancel and sbatch show and change it."""

    def __init__(self, commands: SlurmCommands) -> None:
        """Asks nothing yet."""
        self._commands = commands

    # ---- reading -----------------------------------------------------------------------------------------

    async def version(self) -> SchedulerVersion:
        """See the port."""
        config = slurm_text.settings(await self._commands.run("scontrol", "show", "config"))
        if not config.get("ClusterName") or not config.get("SLURM_VERSION"):
            raise SchedulerUnreachable(
                "scontrol show config: told neither the cluster's name nor the version"
            )
        return SchedulerVersion(name="slurm", version=config["SLURM_VERSION"], cluster=config["ClusterName"])

    async def running_since(self) -> datetime | None:
        """See the port."""
        return slurm_text.boot_time(await self._commands.run("scontrol", "show", "config"))

    async def partition_size(self, partition: str) -> int | None:
        """See the port."""
        if not _PARTITION.fullmatch(partition):
            return None
        listing = await self._commands.run("scontrol", "show", "partition", "--all", "--oneliner")
        return slurm_text.partition_sizes(listing).get(partition)

    async def jobs(self, job_ids: Sequence[str]) -> Mapping[str, JobInfo]:
        """See the port.

        Two listings are read, whatever the number of jobs: the one with all other fields cannot have the
        excluded nodes.
        """
        if not job_ids:
            return {}
        try:
            found = await self._list(job_ids)
        except NoSuchJob:  # what squeue says of a single job that slurmctld has forgotten
            return {}
        return {job_id: found[job_id] for job_id in job_ids if job_id in found}

    async def job(self, job_id: str) -> JobInfo:
        """See the port.

        Raises:
            InvalidRequest: a whole array of jobs has this id.
        """
        try:
            found = await self._list([job_id])
        except NoSuchJob as error:
            raise unknown_job(job_id) from error
        if job_id in found:
            return found[job_id]
        if tasks := sorted(name for name in found if name.startswith(f"{job_id}_")):
            raise InvalidRequest(
                f"job {job_id} is an array of jobs: name one of them, {tasks[0]} for example"
            )
        raise unknown_job(job_id)

    async def finished_job(self, job_id: str) -> JobInfo:
        """See the port."""
        check_job(job_id)
        sep = slurm_text.separator()
        listing = await self._commands.run(
            "sacct",
            "--allocations",
            "--duplicates",
            "--parsable",
            f"--delimiter={sep}",
            f"--jobs={job_id}",
            f"--format={','.join(slurm_text.ACCOUNTING_FIELDS)}",
        )
        info = slurm_text.last_attempt(listing, sep, job_id)
        if info is None:
            raise NoSuchJob(f"sacct --jobs={job_id}: accounting has no such job")
        return info

    async def nodes(self, names: Sequence[str] = ()) -> Mapping[str, NodeInfo]:
        """See the port."""
        for name in names:
            check_node(name)
        sep = slurm_text.separator()
        chosen = [f"--nodes={slurm_text.compact_nodes(names)}"] if names else []
        format_option = slurm_text.format_option(slurm_text.NODE_FIELDS, sep)
        listing = await self._commands.run(
            "sinfo", "--all", "--local", "--Node", *chosen, f"--Format={format_option}"
        )
        return slurm_text.node_infos(listing, sep)

    async def jobs_on(self, node: str) -> Sequence[JobInfo]:
        """See the port."""
        check_node(node)
        found = await self._list(filters=(f"--nodelist={node}",))
        return [info for job_id, info in found.items() if job_id == info.job_id]

    async def batch_script(self, job_id: str) -> str:
        """See the port."""
        check_job(job_id)
        script = await self._commands.ask("scontrol", "write", "batch_script", job_id, "-")
        if "\ufffd" in script:
            raise NotSupported(f"the script of job {job_id} is not UTF-8: it would not come back as it was")
        return script

    async def submit_template(self, job_id: str) -> SubmitRequest:
        """See the port. Slurm does not tell the variables that the job was submitted with."""
        info = await self.job(job_id)
        raw = await self._template_row(info.job_id)
        return slurm_submit.template(info, raw, await self.batch_script(info.job_id))

    async def find_by_comment(self, text: str) -> Sequence[JobInfo]:
        """See the port."""
        found = await self._list()
        return [info for job_id, info in found.items() if job_id == info.job_id and text in info.comment]

    async def open_jobs_of(self, user: str) -> Sequence[JobInfo]:
        """See the port. A user without any may be one that Slurm does not know; that is no error."""
        if not _USER.fullmatch(user):
            return ()
        found = await self._list(filters=(f"--user={user}",))
        return [info for job_id, info in found.items() if job_id == info.job_id and not info.state.is_over]

    # ---- jobs --------------------------------------------------------------------------------------------

    async def submit(self, request: SubmitRequest) -> str:
        """See the port. sbatch runs with the rights of the job's user, never with those of this process."""
        for node in request.excluded_nodes:
            check_node(node)
        account = account_of(request.user)
        printed = await self._commands.run_as(
            account,
            "sbatch",
            *slurm_submit.arguments(request),
            env=slurm_submit.environment(request, account),
            script=request.script,
        )
        job_id = printed.strip().split(";")[0]  # ID;CLUSTER where there are several clusters
        if not _JOB_ID.fullmatch(job_id):
            raise SchedulerError(f"sbatch: submitted, but printed {printed[:80]!r} and no job id")
        return job_id

    async def requeue_hold(self, job_id: str) -> None:
        """See the port."""
        _check_changeable(job_id)
        await self._commands.run("scontrol", "requeuehold", job_id)

    async def exclude_nodes(self, job_id: str, nodes: Sequence[str]) -> None:
        """See the port."""
        for node in nodes:
            check_node(node)
        await self._update(job_id, f"ExcNodeList={slurm_text.compact_nodes(nodes)}")

    async def set_comment(self, job_id: str, comment: str) -> None:
        """See the port. Slurm keeps at most 1024 characters, and refuses more."""
        if "\0" in comment:
            raise InvalidRequest("a comment cannot hold a NUL character")
        await self._update(job_id, f"Comment={comment}")

    async def hold(self, job_id: str) -> None:
        """See the port."""
        _check_changeable(job_id)
        await self._commands.run("scontrol", "hold", job_id)

    async def release(self, job_id: str) -> None:
        """See the port. Takes up to 1.25 s where the job was requeued just now: see `CREDENTIAL_GAP`."""
        await let_credentials_pass(await self.job(job_id))
        await self._update(job_id, "StartTime=now")
        await self._commands.run("scontrol", "release", job_id)

    async def cancel(self, job_id: str) -> None:
        """See the port. A job that Slurm has forgotten has ended, too."""
        _check_changeable(job_id)
        try:
            await self._commands.run("scancel", job_id)
        except (NoSuchJob, InvalidRequest) as e:
            if not re.search(r"Invalid job id|already (completing|finished)", str(e)):
                raise

    # ---- nodes -------------------------------------------------------------------------------------------

    async def drain_node(self, node: str, reason: str) -> None:
        """See the port."""
        check_node(node)
        await self._commands.run(
            "scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={clean_text(reason)}"
        )

    async def resume_node(self, node: str) -> None:
        """See the port."""
        check_node(node)
        try:
            await self._commands.run("scontrol", "update", f"NodeName={node}", "State=RESUME")
        except InvalidRequest:
            info = (await self.nodes([node])).get(node)
            if info is None or info.is_drained:  # otherwise there was no drain to take back
                raise

    # ---- inside ------------------------------------------------------------------------------------------

    async def _list(self, job_ids: Sequence[str] = (), filters: Sequence[str] = ()) -> dict[str, JobInfo]:
        """Jobs (none named: all) by every id that names just one. `filters`: further options of squeue."""
        for job_id in job_ids:
            check_job(job_id)
        ids = ",".join(dict.fromkeys(job_ids))
        chosen = [*filters, *([f"--jobs={ids}"] if 0 < len(ids) <= _MAX_IDS else [])]
        sep = slurm_text.separator()
        columns = slurm_text.format_option(slurm_text.JOB_FIELDS, sep)
        exclusions = "".join(field + sep for field in slurm_text.EXCLUSION_FIELDS)
        # One after the other: a job that is in the first listing only has been forgotten in between.
        main = await self._commands.run("squeue", *_LISTING, *chosen, f"--Format={columns}")
        excluded = await self._commands.run("squeue", *_LISTING, *chosen, f"--format={exclusions}")
        return slurm_text.job_infos(main, excluded, sep)

    async def _template_row(self, job_id: str) -> Mapping[str, str]:
        check_job(job_id)
        sep = slurm_text.separator()
        format_option = slurm_text.format_option(slurm_text.TEMPLATE_FIELDS, sep)
        listing = await self._commands.run(
            "squeue", *_LISTING, f"--jobs={job_id}", f"--Format={format_option}"
        )
        for row in slurm_text.rows(listing, slurm_text.TEMPLATE_FIELDS, sep):
            return row
        raise unknown_job(job_id)

    async def _update(self, job_id: str, change: str) -> None:
        _check_changeable(job_id)
        await self._commands.run("scontrol", "update", f"JobId={job_id}", change)


def unknown_job(job_id: str) -> NoSuchJob:
    """The error for a job that Slurm does not list."""
    return NoSuchJob(f"Slurm knows no job {job_id}: there never was one, or it was forgotten after its end")


async def let_credentials_pass(info: JobInfo) -> None:
    """Waits for the rest of `CREDENTIAL_GAP`, if the job was requeued just now."""
    if info.restart_count:
        since = datetime.now(UTC) - info.submit_time
        await asyncio.sleep(min(CREDENTIAL_GAP, CREDENTIAL_GAP - since).total_seconds())


def check_job(job_id: str) -> None:
    """Refuses what is no job id.

    Raises:
        NoSuchName: it is none.
    """
    if not _JOB_ID.fullmatch(job_id):
        raise NoSuchName(f"{job_id[:80]!r} is no job id: 123, 123_4 (task of an array) or 123+1 are")


def _check_changeable(job_id: str) -> None:
    check_job(job_id)
    if (
        "+" in job_id
    ):  # for some of its commands Slurm refuses it, for others it does nothing and says nothing
        raise InvalidRequest(
            f"job {job_id} is part of a heterogeneous job: change the whole job, by its first id"
        )


def check_node(node: str) -> None:
    """Refuses what is no name of one node.

    Raises:
        NoSuchName: it is none.
    """
    if not _NODE.fullmatch(node) or node.upper() == _ALL_NODES:
        raise NoSuchName(f"{node[:80]!r} is no name of one node")
