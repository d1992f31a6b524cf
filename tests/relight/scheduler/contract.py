"""What every scheduler adapter must do; the tests of each adapter subclass `SchedulerContract`."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from relight.contracts import JobInfo, JobState
from relight.scheduler.port import (
    InvalidRequest,
    NoSuchJob,
    NoSuchNode,
    Scheduler,
    SubmitRequest,
    log_files,
)

SLEEP = "#!/bin/bash\necho started\nexec sleep 300\n"
HOSTILE = "he said: \"JobState=FAILED\" Reason=None |\n'two lines' \\ , = \t é ☃ $(reboot) `id` --comment=x"
UNKNOWN_JOB = "999999"
UNKNOWN_NODE = "node99"
NODES = ("node01", "node02", "node03", "node04")


class Site(ABC):
    """An idle scheduler with the nodes `NODES`, and what only its surroundings can do."""

    scheduler: Scheduler

    @abstractmethod
    async def kill_node(self, node: str) -> None:
        """Ends the node, and all on it, without telling the scheduler."""

    @abstractmethod
    async def restore_node(self, node: str) -> None:
        """Brings a killed node back, and waits until it can be used."""

    async def until(
        self, job_id: str, test: Callable[[JobInfo], object], what: str, timeout: float = 60
    ) -> JobInfo:
        """The job, once the test holds."""
        end = time.monotonic() + timeout
        while not test(info := await self.scheduler.job(job_id)):
            assert time.monotonic() < end, f"job {job_id} not {what} within {timeout} s: {info}"
            await asyncio.sleep(0.1)
        return info

    async def until_running(self, job_id: str, timeout: float = 60) -> JobInfo:
        return await self.until(job_id, lambda job: job.state is JobState.RUNNING, "running", timeout)

    async def until_over(self, job_id: str) -> JobInfo:
        return await self.until(job_id, lambda job: job.state.is_over and not job.completing, "over")

    async def until_held(self, job_id: str) -> JobInfo:
        """Requeued and held, with no process of the last attempt left."""
        return await self.until(
            job_id, lambda job: job.state is JobState.PENDING and job.held and not job.completing, "held"
        )


def request(directory: Path, script: str = SLEEP, **fields: object) -> SubmitRequest:
    """A small job that writes to `directory/out.log`."""
    return SubmitRequest.model_validate(
        {"script": script, "work_dir": str(directory), "std_out": str(directory / "out.log"), **fields}
    )


class SchedulerContract:
    """The tests. A subclass has the fixture `site`, which ends the jobs it finds after each test."""

    # ---- a job's life ------------------------------------------------------------------------------------

    async def test_says_who_it_is(self, site: Site) -> None:
        version = await site.scheduler.version()
        assert version.name
        assert version.version
        assert version.cluster

    async def test_a_job_runs_and_completes(self, site: Site, tmp_path: Path) -> None:
        submitted = request(
            tmp_path,
            "#!/bin/bash\necho hello; sleep 1.5\n",
            name="my train",
            std_out=str(tmp_path / "%x-%j-%4j.log"),
            time_limit_minutes=10,
        )
        job_id = await site.scheduler.submit(submitted)
        running = await site.until_running(job_id)
        assert (running.job_id, running.name, running.restart_count) == (job_id, "my train", 0)
        assert (running.num_nodes, running.num_tasks, len(running.nodes)) == (1, 1, 1)
        assert running.nodes[0] in NODES
        assert running.time_limit is not None
        assert running.time_limit.total_seconds() == 600
        assert (running.requeueable, running.held, running.is_batch) == (True, False, True)
        assert (running.exit_code, running.end_time) == (None, None)
        done = await site.until_over(job_id)
        assert (done.state, done.exit_code, done.exit_signal) == (JobState.COMPLETED, 0, None)
        assert done.start_time is not None
        assert done.end_time is not None
        assert running.submit_time == done.submit_time <= done.start_time <= done.end_time
        assert done.nodes == running.nodes
        assert done.attempt("c") == running.attempt("c")
        (log,) = log_files(done)
        assert log == tmp_path / f"my train-{job_id}-{job_id:0>4}.log"
        assert log.read_text() == "hello\n"

    @pytest.mark.parametrize(
        ("command", "code", "by_signal"),
        [("exit 3", 3, None), ("kill -9 $$", 0, 9), ("kill -TERM $$", 0, 15)],
    )
    async def test_a_job_fails(
        self, site: Site, tmp_path: Path, command: str, code: int, by_signal: int | None
    ) -> None:
        job_id = await site.scheduler.submit(request(tmp_path, f"#!/bin/bash\n{command}\n"))
        failed = await site.until_over(job_id)
        assert (failed.state, failed.exit_code, failed.exit_signal) == (JobState.FAILED, code, by_signal)

    async def test_standard_error_goes_where_it_is_told(self, site: Site, tmp_path: Path) -> None:
        err = tmp_path / "err.log"
        script = "#!/bin/bash\necho oops >&2\n"
        job_id = await site.scheduler.submit(request(tmp_path, script, std_err=str(err)))
        done = await site.until_over(job_id)
        assert log_files(done) == (tmp_path / "out.log", err)
        assert err.read_text() == "oops\n"

    async def test_cancelling_an_ended_job_is_fine(self, site: Site, tmp_path: Path) -> None:
        job_id = await site.scheduler.submit(request(tmp_path))
        await site.until_running(job_id)
        await site.scheduler.cancel(job_id)
        assert (await site.until_over(job_id)).state is JobState.CANCELLED
        await site.scheduler.cancel(job_id)
        assert (await site.scheduler.job(job_id)).state is JobState.CANCELLED

    async def test_jobs_in_one_request(self, site: Site, tmp_path: Path) -> None:
        assert await site.scheduler.jobs([]) == {}
        assert await site.scheduler.jobs([UNKNOWN_JOB]) == {}
        first, second, third = [await site.scheduler.submit(request(tmp_path, hold=True)) for _ in range(3)]
        assert list(await site.scheduler.jobs([first])) == [first]
        found = await site.scheduler.jobs([third, UNKNOWN_JOB, first])
        assert {job_id: info.job_id for job_id, info in found.items()} == {first: first, third: third}
        assert second not in found
        assert found[first] == await site.scheduler.job(first)

    async def test_unknown_jobs(self, site: Site) -> None:
        scheduler = site.scheduler
        for ask in (
            scheduler.job,
            scheduler.batch_script,
            scheduler.submit_template,
            scheduler.requeue_hold,
            scheduler.hold,
            scheduler.release,
        ):
            with pytest.raises(NoSuchJob):
                await ask(UNKNOWN_JOB)
        with pytest.raises(NoSuchJob):
            await scheduler.set_comment(UNKNOWN_JOB, "x")
        with pytest.raises(NoSuchJob):
            await scheduler.exclude_nodes(UNKNOWN_JOB, ["node01"])

    # ---- restarts ----------------------------------------------------------------------------------------

    async def test_requeue_hold_exclude_release(self, site: Site, tmp_path: Path) -> None:
        """What a recovery does; the job starts soon although a requeued job has to wait otherwise."""
        script = "#!/bin/bash\necho ${SLURM_RESTART_COUNT:-first}\nexec sleep 300\n"
        job_id = await site.scheduler.submit(request(tmp_path, script, nodes=2))
        first = await site.until_running(job_id)
        with pytest.raises(InvalidRequest):  # not while it runs
            await site.scheduler.exclude_nodes(job_id, ["node01"])
        await site.scheduler.requeue_hold(job_id)
        held = await site.until_held(job_id)
        assert (held.job_id, held.restart_count, held.nodes) == (job_id, 1, ())
        assert held.attempt("c") != first.attempt("c")
        with pytest.raises(InvalidRequest):  # it is pending already
            await site.scheduler.requeue_hold(job_id)
        await site.scheduler.exclude_nodes(job_id, first.nodes[:1])
        assert (await site.scheduler.job(job_id)).excluded_nodes == first.nodes[:1]
        await site.scheduler.exclude_nodes(job_id, first.nodes)
        await site.scheduler.release(job_id)
        second = await site.until_running(job_id, timeout=20)
        assert second.excluded_nodes == first.nodes
        assert not set(second.nodes) & set(first.nodes)
        assert second.attempt("c") == held.attempt("c").model_copy(update={"submit_time": second.submit_time})
        await asyncio.sleep(1)
        assert (await site.scheduler.job(job_id)).state is JobState.RUNNING

    async def test_release_at_once_on_the_same_nodes(self, site: Site, tmp_path: Path) -> None:
        """The restart runs, and does not fail because its predecessor has only just ended."""
        job_id = await site.scheduler.submit(request(tmp_path, nodes=4))
        await site.until_running(job_id)
        await site.scheduler.requeue_hold(job_id)
        await site.until_held(job_id)
        await site.scheduler.release(job_id)
        again = await site.until_running(job_id, timeout=20)
        assert again.nodes == NODES
        await asyncio.sleep(1)
        assert (await site.scheduler.job(job_id)).state is JobState.RUNNING

    async def test_requeue_hold_of_a_failed_job(self, site: Site, tmp_path: Path) -> None:
        script = "#!/bin/bash\necho run\n[ $SLURM_RESTART_COUNT ] || exit 3\n"
        job_id = await site.scheduler.submit(request(tmp_path, script))
        assert (await site.until_over(job_id)).state is JobState.FAILED
        await site.scheduler.requeue_hold(job_id)
        held = await site.until_held(job_id)
        assert (held.restart_count, held.exit_code) == (1, None)
        await site.scheduler.release(job_id)
        assert (await site.until_over(job_id)).state is JobState.COMPLETED
        assert (tmp_path / "out.log").read_text() == "run\nrun\n"  # appended to

    async def test_a_job_that_may_not_be_requeued(self, site: Site, tmp_path: Path) -> None:
        job_id = await site.scheduler.submit(request(tmp_path, requeue=False))
        assert not (await site.until_running(job_id)).requeueable
        with pytest.raises(InvalidRequest):
            await site.scheduler.requeue_hold(job_id)

    async def test_hold(self, site: Site, tmp_path: Path) -> None:
        whole_nodes = request(tmp_path, nodes=4, extra_args=("--exclusive",))
        job_id = await site.scheduler.submit(whole_nodes)
        waiting = await site.scheduler.submit(whole_nodes)
        await site.until_running(job_id)
        for _ in range(2):
            await site.scheduler.hold(waiting)
            assert (await site.scheduler.job(waiting)).held
        await site.scheduler.cancel(job_id)
        await site.until_over(job_id)
        await asyncio.sleep(1.5)
        assert (await site.scheduler.job(waiting)).state is JobState.PENDING
        await site.scheduler.release(waiting)
        await site.until_running(waiting, timeout=20)

    # ---- what was submitted ------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "text",
        [HOSTILE, "", '{"relight": {"policy": "default"}}', "'", '"quoted"', "  spaces  ", "+=x", "é" * 500],
    )
    async def test_a_comment_comes_back_as_it_was(self, site: Site, tmp_path: Path, text: str) -> None:
        job_id = await site.scheduler.submit(request(tmp_path, hold=True, comment="before"))
        await site.scheduler.set_comment(job_id, text)
        info = await site.scheduler.job(job_id)
        assert (info.comment, info.state, info.job_id) == (text, JobState.PENDING, job_id)

    async def test_hostile_names_and_comments_change_nothing(self, site: Site, tmp_path: Path) -> None:
        name = 'x JobState=COMPLETED\n1 "; reboot'
        hostile = await site.scheduler.submit(request(tmp_path, hold=True, name=name, comment=HOSTILE))
        plain = await site.scheduler.submit(request(tmp_path, hold=True, comment="plain"))
        found = await site.scheduler.jobs([hostile, plain])
        assert (found[hostile].name, found[hostile].comment) == (name, HOSTILE)
        assert (found[plain].name, found[plain].comment) == ("train", "plain")
        assert {info.state for info in found.values()} == {JobState.PENDING}

    async def test_set_comment_of_a_running_job(self, site: Site, tmp_path: Path) -> None:
        job_id = await site.scheduler.submit(request(tmp_path, comment="before"))
        await site.until_running(job_id)
        await site.scheduler.set_comment(job_id, "after")
        assert (await site.scheduler.job(job_id)).comment == "after"

    async def test_find_by_comment(self, site: Site, tmp_path: Path) -> None:
        mine = await site.scheduler.submit(request(tmp_path, hold=True, comment=f"a {tmp_path} tag"))
        await site.scheduler.submit(request(tmp_path, hold=True, comment="another"))
        assert [info.job_id for info in await site.scheduler.find_by_comment(f"{tmp_path} t")] == [mine]
        assert await site.scheduler.find_by_comment(f"{tmp_path} x") == []

    async def test_the_open_jobs_of_a_user(self, site: Site, tmp_path: Path) -> None:
        mine, ended = [await site.scheduler.submit(request(tmp_path, hold=True)) for _ in range(2)]
        await site.scheduler.cancel(ended)
        await site.until_over(ended)
        user = (await site.scheduler.job(mine)).user
        found = [info.job_id for info in await site.scheduler.open_jobs_of(user)]
        assert mine in found
        assert ended not in found
        assert list(await site.scheduler.open_jobs_of("nobody")) == []

    async def test_jobs_on_a_node(self, site: Site, tmp_path: Path) -> None:
        job_id = await site.scheduler.submit(request(tmp_path, nodes=2))
        await site.scheduler.submit(request(tmp_path, hold=True))
        running = await site.until_running(job_id)
        for node in NODES:
            found = {info.job_id: info for info in await site.scheduler.jobs_on(node)}
            assert (job_id in found) == (node in running.nodes), node
        found = {info.job_id: info for info in await site.scheduler.jobs_on(running.nodes[1])}
        assert found[job_id] == running
        await site.scheduler.cancel(job_id)
        ended = await site.until_over(job_id)
        assert ended in await site.scheduler.jobs_on(running.nodes[0])  # and where it ran
        with pytest.raises((InvalidRequest, NoSuchNode)):
            await site.scheduler.jobs_on(UNKNOWN_NODE)

    @pytest.mark.parametrize("end", ["\n", "", "\n\n\n"])
    async def test_the_script_comes_back_as_it_was(self, site: Site, tmp_path: Path, end: str) -> None:
        script = f"#!/bin/bash\n# é ☃ \t 'quotes' \"and\" $dollars \\ %j\n{' ' * 3}sleep 300{end}"
        job_id = await site.scheduler.submit(request(tmp_path, script, hold=True))
        assert await site.scheduler.batch_script(job_id) == script

    async def test_submit_again(self, site: Site, tmp_path: Path) -> None:
        script = "#!/bin/bash\necho ran\n"
        submitted = request(
            tmp_path,
            script,
            nodes=2,
            tasks_per_node=2,
            name="again",
            comment=HOSTILE,
            excluded_nodes=("node03",),
            std_out=str(tmp_path / "out-%x.log"),
            std_err=str(tmp_path / "err.log"),
            time_limit_minutes=7,
            hold=True,
        )
        first = await site.scheduler.submit(submitted)
        template = await site.scheduler.submit_template(first)
        again = template.model_copy(update={"hold": False, "excluded_nodes": ("node01",)})
        second = await site.scheduler.submit(again)
        assert second != first
        before, after = await site.scheduler.job(first), await site.until_over(second)
        assert after.state is JobState.COMPLETED
        assert after.excluded_nodes == ("node01",)
        for field in ("name", "user", "num_nodes", "num_tasks", "tasks_per_node", "time_limit", "comment",
                      "std_out", "std_err", "work_dir", "partition", "requeueable"):  # fmt: skip
            assert getattr(after, field) == getattr(before, field), field
        assert "ran\n" in (tmp_path / "out-again.log").read_text()

    async def test_the_environment_is_the_one_asked_for(
        self, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET_KEY", "hush")
        variables = {"GREETING": "a b, c=d 'e' é", "EMPTY": ""}
        job_id = await site.scheduler.submit(
            request(tmp_path, '#!/bin/bash\nenv -0 > env; echo "$PATH"\n', environment=variables)
        )
        await site.until_over(job_id)
        env = dict(e.split("=", 1) for e in (tmp_path / "env").read_text().split("\0") if e)
        assert {name: env[name] for name in variables} == variables
        assert "SECRET_KEY" not in env
        assert "/bin" in env["PATH"]

    # ---- nodes -------------------------------------------------------------------------------------------

    async def test_nodes(self, site: Site) -> None:
        assert tuple(sorted(await site.scheduler.nodes())) == NODES
        found = await site.scheduler.nodes(["node02", UNKNOWN_NODE])
        assert list(found) == ["node02"]
        node = found["node02"]
        assert (node.name, node.state, node.is_lost, node.is_drained) == ("node02", "IDLE", False, False)
        assert (node.reason, node.reason_user) == ("", "")

    async def test_what_it_tells_of_itself(self, site: Site, tmp_path: Path) -> None:
        job_id = await site.scheduler.submit(request(tmp_path))
        partition = (await site.until_running(job_id)).partition
        assert await site.scheduler.partition_size(partition) == len(NODES)
        for name in ("no-such-partition", "", "two words", "a=b"):
            assert await site.scheduler.partition_size(name) is None
        since = await site.scheduler.running_since()
        assert since is None or datetime.now(UTC) - timedelta(hours=1) < since <= datetime.now(UTC)

    async def test_drain_and_resume(self, site: Site, tmp_path: Path) -> None:
        reason = "relight: State=IDLE 'fell off the bus' | é"
        await site.scheduler.drain_node("node01", reason)
        node = (await site.scheduler.nodes(["node01"]))["node01"]
        assert (node.is_drained, node.is_lost, node.reason) == (True, False, reason)
        assert node.reason_user
        job_id = await site.scheduler.submit(request(tmp_path, nodes=3))
        assert (await site.until_running(job_id)).nodes == NODES[1:]
        for _ in range(2):
            await site.scheduler.resume_node("node01")
            assert not (await site.scheduler.nodes(["node01"]))["node01"].is_drained

    async def test_a_running_job_stays_on_a_draining_node(self, site: Site, tmp_path: Path) -> None:
        job_id = await site.scheduler.submit(request(tmp_path))
        node = (await site.until_running(job_id)).nodes[0]
        await site.scheduler.drain_node(node, "later")
        assert (await site.scheduler.nodes([node]))[node].is_drained
        assert (await site.scheduler.job(job_id)).state is JobState.RUNNING
        await site.scheduler.resume_node(node)

    async def test_unknown_nodes(self, site: Site, tmp_path: Path) -> None:
        with pytest.raises(NoSuchNode):
            await site.scheduler.drain_node(UNKNOWN_NODE, "x")
        with pytest.raises(NoSuchNode):
            await site.scheduler.resume_node(UNKNOWN_NODE)
        job_id = await site.scheduler.submit(request(tmp_path, hold=True))
        with pytest.raises(NoSuchNode):
            await site.scheduler.exclude_nodes(job_id, [UNKNOWN_NODE])
        with pytest.raises(InvalidRequest):
            await site.scheduler.drain_node("node01", "")

    async def test_a_node_dies(self, site: Site, tmp_path: Path) -> None:
        """The scheduler requeues the job by itself; relight may start it before the delay is over."""
        job_id = await site.scheduler.submit(request(tmp_path, nodes=2))
        first = await site.until_running(job_id)
        lost = first.nodes[1]
        await site.kill_node(lost)
        try:
            requeued = await site.until(job_id, lambda job: job.restart_count == 1, "requeued")
            assert (await site.scheduler.nodes([lost]))[lost].is_lost
            pending = await site.until(
                job_id, lambda job: job.state is JobState.PENDING and not job.completing, "pending"
            )
            assert (requeued.restart_count, pending.restart_count, pending.held) == (1, 1, False)
            await site.scheduler.release(job_id)
            again = await site.until_running(job_id, timeout=30)
            assert lost not in again.nodes
        finally:
            await site.restore_node(lost)
        assert not (await site.scheduler.nodes([lost]))[lost].is_lost
