"""The local scheduler: real processes, real files, several clients."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from relight.contracts import JobInfo, JobState
from relight.scheduler import local_store
from relight.scheduler.local import LocalScheduler
from relight.scheduler.local_output import expand, output_files
from relight.scheduler.local_processes import TOKEN, identity, is_running, signal_members
from relight.scheduler.local_store import Store
from relight.scheduler.port import (
    InvalidRequest,
    NoSuchJob,
    NoSuchName,
    NoSuchNode,
    NotPermitted,
    Scheduler,
    SchedulerUnreachable,
    SubmitRequest,
)
from tests.relight.scheduler.contract import SchedulerContract, Site

SLEEP = "#!/bin/bash\nexec sleep 300\n"


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[LocalScheduler]:
    """A scheduler of four nodes; its jobs end with the test."""
    scheduler = LocalScheduler(tmp_path / "state", requeue_delay=timedelta(minutes=2))
    yield scheduler
    with closing(sqlite3.connect(tmp_path / "state" / "local.db")) as db:
        ids = [str(row[0]) for row in db.execute("SELECT id FROM jobs")]
    for job_id in ids:
        await scheduler.cancel(job_id)
        await until(scheduler, job_id, lambda job: not job.completing)


async def until(
    scheduler: LocalScheduler, job_id: str, test: Callable[[JobInfo], object], timeout: float = 30
) -> JobInfo:
    """The job, once the test holds."""
    async with asyncio.timeout(timeout):
        while True:
            info = await scheduler.job(job_id)
            if test(info):
                return info
            await asyncio.sleep(0.05)


async def until_over(scheduler: LocalScheduler, job_id: str) -> JobInfo:
    return await until(scheduler, job_id, lambda job: job.state.is_over and not job.completing)


async def eventually(test: Callable[[], object]) -> None:
    """Waits until the test holds."""
    async with asyncio.timeout(30):
        while not test():  # noqa: ASYNC110 - what is waited for happens in other processes
            await asyncio.sleep(0.05)


async def until_lines(path: Path, count: int) -> list[str]:
    """The file's lines, once there are so many."""
    await eventually(lambda: path.exists() and len(path.read_text().splitlines()) >= count)
    return path.read_text().splitlines()


def request(tmp_path: Path, script: str, **fields: object) -> SubmitRequest:
    return SubmitRequest.model_validate(
        {"script": script, "work_dir": str(tmp_path), "std_out": "out.log", **fields}
    )


def query(tmp_path: Path, statement: str) -> list[tuple[object, ...]]:
    """Looks into (or changes) the records, past the scheduler."""
    with closing(sqlite3.connect(tmp_path / "state" / "local.db", isolation_level=None)) as db:
        return db.execute(statement).fetchall()


def supervisor(tmp_path: Path, job_id: str) -> int:
    """Process id of the supervisor of the job's open attempt."""
    statement = f"SELECT supervisor FROM attempts WHERE ended IS NULL AND job_id = {job_id}"
    ((found,),) = query(tmp_path, statement)
    return int(str(found).split(":")[1])


class LocalSite(Site):
    """The local scheduler, as the contract wants it."""

    def __init__(self, scheduler: LocalScheduler) -> None:
        self.local = self.scheduler = scheduler

    async def kill_node(self, node: str) -> None:
        await self.local.lose_node(node)

    async def restore_node(self, node: str) -> None:
        await self.local.restore_node(node)


@pytest.fixture
def site(local: LocalScheduler) -> LocalSite:
    return LocalSite(local)


class TestLocal(SchedulerContract):
    """The contract."""


def test_it_is_a_scheduler(tmp_path: Path) -> None:
    assert isinstance(LocalScheduler(tmp_path), Scheduler)


# ---- tasks, and how they end -----------------------------------------------------------------------------


async def test_each_task_knows_its_place(local: LocalScheduler, tmp_path: Path) -> None:
    script = (
        "#!/bin/bash\n"
        'echo "$SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURMD_NODENAME $SLURM_NTASKS $SLURM_NNODES'
        ' $SLURM_JOB_NODELIST $SLURM_JOB_ID ${SLURM_RESTART_COUNT-unset} $GREETING"\n'
    )
    job_id = await local.submit(
        request(tmp_path, script, nodes=2, tasks_per_node=2, environment={"GREETING": "a b"})
    )
    done = await until_over(local, job_id)
    assert (done.state, done.exit_code, done.exit_signal) == (JobState.COMPLETED, 0, None)
    assert sorted((tmp_path / "out.log").read_text().splitlines()) == [
        f"{rank} {rank % 2} {rank // 2} node0{rank // 2 + 1} 4 2 node01,node02 {job_id} unset a b"
        for rank in range(4)
    ]


async def test_nothing_of_the_submitter_but_the_named_variables(
    local: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "hush")
    await until_over(local, await local.submit(request(tmp_path, "#!/bin/bash\nenv\n")))
    text = (tmp_path / "out.log").read_text()
    assert "hush" not in text
    assert f"PATH={os.environ['PATH']}" in text
    assert "hush" not in str(query(tmp_path, "SELECT environment FROM jobs"))


@pytest.mark.parametrize(
    ("command", "code", "by_signal"),
    [("exit 3", 3, None), ("kill -9 $$", 0, 9), ("kill -TERM $$", 0, 15)],
)
async def test_a_failed_task_takes_the_others_down(
    local: LocalScheduler, tmp_path: Path, command: str, code: int, by_signal: int | None
) -> None:
    script = f'#!/bin/bash\nif [ "$SLURM_PROCID" = 1 ]; then {command}; fi\nexec sleep 300\n'
    job_id = await local.submit(request(tmp_path, script, nodes=2))
    failed = await until_over(local, job_id)
    assert (failed.state, failed.exit_code, failed.exit_signal) == (JobState.FAILED, code, by_signal)
    assert failed.end_time is not None
    assert failed.nodes == ("node01", "node02")
    assert await local.finished_job(job_id) == failed


async def test_the_others_have_time_to_say_why(local: LocalScheduler, tmp_path: Path) -> None:
    script = (
        '#!/bin/bash\nif [ "$SLURM_PROCID" = 0 ]; then exit 3; fi\nsleep 0.4; echo connection reset; exit 1\n'
    )
    failed = await until_over(local, await local.submit(request(tmp_path, script, tasks_per_node=2)))
    assert (failed.state, failed.exit_code) == (JobState.FAILED, 3)
    assert (tmp_path / "out.log").read_text() == "connection reset\n"


async def test_the_worst_end_counts_if_tasks_end_together(local: LocalScheduler, tmp_path: Path) -> None:
    script = (
        "#!/bin/bash\n"
        "while [ ! -e go ]; do sleep 0.01; done\n"
        "case $SLURM_PROCID in 0) exit 77;; 1) kill -SEGV $$;; 2) exit 0;; esac\n"
    )
    job_id = await local.submit(request(tmp_path, script, tasks_per_node=3))
    (tmp_path / "go").touch()
    failed = await until_over(local, job_id)
    assert (failed.exit_code, failed.exit_signal) == (0, signal.SIGSEGV)


async def test_what_a_task_leaves_behind_is_killed_before_the_node_is_free(
    local: LocalScheduler, tmp_path: Path
) -> None:
    script = "#!/bin/bash\nsetsid nohup sleep 300 &\necho $!\n"
    await until_over(local, await local.submit(request(tmp_path, script)))
    pid = int((tmp_path / "out.log").read_text())
    assert identity(pid) is None


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"script": "#!/no/such/interpreter\n"}, "No such file"),
        ({"script": SLEEP, "std_out": "no/such/directory/out"}, "no/such/directory/out"),
        ({"script": SLEEP, "work_dir": "/no/such/directory"}, "/no/such/directory"),
    ],
)
async def test_a_job_that_cannot_run_fails_and_says_why(
    local: LocalScheduler, tmp_path: Path, fields: dict[str, str], says: str
) -> None:
    submitted = request(tmp_path, "").model_copy(update=fields)
    failed = await until_over(local, await local.submit(submitted))
    assert failed.state is JobState.FAILED
    assert says in failed.reason


async def test_time_limit(local: LocalScheduler, tmp_path: Path) -> None:
    job_id = await local.submit(request(tmp_path, SLEEP, time_limit_minutes=1))
    await until(local, job_id, lambda job: job.state is JobState.RUNNING)
    await asyncio.sleep(0.5)
    assert (await local.job(job_id)).state is JobState.RUNNING
    query(tmp_path, "UPDATE attempts SET started = started - 60")  # a minute passes
    ended = await until_over(local, job_id)
    assert (ended.state, ended.time_limit) == (JobState.TIMEOUT, timedelta(minutes=1))


async def test_cancel(local: LocalScheduler, tmp_path: Path) -> None:
    job_id = await local.submit(request(tmp_path, "#!/bin/bash\necho $$\nexec sleep 300\n"))
    (pid,) = await until_lines(tmp_path / "out.log", 1)
    waiting = await local.submit(request(tmp_path, SLEEP, nodes=4))
    await local.cancel(job_id)
    assert (await until_over(local, job_id)).state is JobState.CANCELLED
    assert identity(int(pid)) is None
    await local.cancel(job_id)
    assert (await local.job(job_id)).state is JobState.CANCELLED
    await local.cancel(waiting)
    assert (await local.job(waiting)).state is JobState.CANCELLED


async def test_a_task_that_ignores_sigterm_is_killed(local: LocalScheduler, tmp_path: Path) -> None:
    script = (
        "#!/bin/bash\n[ $SLURM_RESTART_COUNT ] || trap '' TERM\necho ready\nwhile true; do sleep 0.1; done\n"
    )
    job_id = await local.submit(request(tmp_path, script))
    await until_lines(tmp_path / "out.log", 1)
    await local.requeue_hold(job_id)
    completing = await local.job(job_id)
    assert completing.completing
    assert completing.nodes == ("node01",)
    assert (await local.nodes(["node01"]))["node01"].flags == ("COMPLETING",)
    await local.release(job_id)  # it may start, but not beside its old self
    await asyncio.sleep(1)
    assert (await local.job(job_id)).state is JobState.PENDING
    again = await until(local, job_id, lambda job: job.state is JobState.RUNNING)
    assert not again.completing
    assert query(tmp_path, "SELECT count(*) FROM attempts WHERE ended IS NULL") == [(1,)]


# ---- restarts --------------------------------------------------------------------------------------------


async def test_requeue_hold_exclude_release(local: LocalScheduler, tmp_path: Path) -> None:
    script = "#!/bin/bash\necho $SLURMD_NODENAME ${SLURM_RESTART_COUNT-unset}\nexec sleep 300\n"
    job_id = await local.submit(request(tmp_path, script))
    first = await until(local, job_id, lambda job: job.state is JobState.RUNNING)
    await until_lines(tmp_path / "out.log", 1)
    await local.requeue_hold(job_id)
    held = await until(local, job_id, lambda job: not job.completing)
    assert (held.state, held.held, held.restart_count) == (JobState.PENDING, True, 1)
    assert held.submit_time > first.submit_time
    assert held.nodes == ()
    with pytest.raises(InvalidRequest):
        await local.requeue_hold(job_id)
    await local.exclude_nodes(job_id, ["node01", "node02"])
    await local.release(job_id)
    second = await until(local, job_id, lambda job: job.state is JobState.RUNNING)
    assert (second.nodes, second.restart_count) == (("node03",), 1)
    assert second.submit_time == held.submit_time
    assert await until_lines(tmp_path / "out.log", 2) == ["node01 unset", "node03 1"]
    with pytest.raises(InvalidRequest):
        await local.exclude_nodes(job_id, [])


async def test_a_job_can_be_submitted_again_as_it_is_now(local: LocalScheduler, tmp_path: Path) -> None:
    submitted = request(tmp_path, SLEEP, nodes=2, comment="old", hold=True, environment={"A": "1"})
    job_id = await local.submit(submitted)
    await local.set_comment(job_id, "new")
    await local.exclude_nodes(job_id, ["node03"])
    now = submitted.model_copy(update={"comment": "new", "excluded_nodes": ("node03",)})
    assert await local.submit_template(job_id) == now
    assert await local.batch_script(job_id) == SLEEP
    assert [job.job_id for job in await local.find_by_comment("ew")] == [job_id]
    assert await local.find_by_comment("old") == []
    assert await local.find_by_comment("%") == []


async def test_holding_a_held_job_changes_nothing(local: LocalScheduler, tmp_path: Path) -> None:
    job_id = await local.submit(request(tmp_path, SLEEP))
    await local.requeue_hold(job_id)
    before = await until(local, job_id, lambda job: not job.completing)
    await local.hold(job_id)
    assert await local.job(job_id) == before


async def test_output_is_truncated_if_asked(local: LocalScheduler, tmp_path: Path) -> None:
    script = "#!/bin/bash\necho ${SLURM_RESTART_COUNT-unset}; echo err >&2\n"
    job_id = await local.submit(
        request(tmp_path, script, append_output=False, std_out="%x-%3j.out", std_err="%N-%u.err", name="run")
    )
    info = await until_over(local, job_id)
    out, err = Path(info.std_out), Path(info.std_err)
    assert (out, err) == (tmp_path / "run-001.out", tmp_path / f"node01-{info.user}.err")
    assert (out.read_text(), err.read_text()) == ("unset\n", "err\n")
    await local.requeue_hold(job_id)
    assert (await local.job(job_id)).std_err == ""  # nobody knows yet on which node
    await local.release(job_id)
    await until_over(local, job_id)
    assert (out.read_text(), err.read_text()) == ("1\n", "err\n")


async def test_a_lost_node_requeues_its_job_after_a_delay(local: LocalScheduler, tmp_path: Path) -> None:
    script = "#!/bin/bash\necho $$\nexec sleep 300\n"
    job_id = await local.submit(request(tmp_path, script, nodes=2))
    pids = await until_lines(tmp_path / "out.log", 2)
    await local.drain_node("node02", "tagged")
    await local.lose_node("node02")
    pending = await until(local, job_id, lambda job: not job.completing)
    assert (pending.state, pending.held, pending.restart_count) == (JobState.PENDING, False, 1)
    assert pending.reason == "NodeFail"
    assert pending.eligible_time is not None
    assert pending.eligible_time > pending.submit_time + timedelta(seconds=100)
    assert [identity(int(pid)) for pid in pids] == [None, None]
    node = (await local.nodes())["node02"]
    assert (node.state, node.is_lost, node.is_drained, node.reason) == ("DOWN", True, True, "tagged")
    await local.release(job_id)  # lifts the delay
    again = await until(local, job_id, lambda job: job.state is JobState.RUNNING)
    assert again.nodes == ("node01", "node03")
    await local.restore_node("node02")
    await local.resume_node("node02")
    node = (await local.nodes())["node02"]
    assert (node.state, node.flags, node.reason) == ("IDLE", (), "")


async def test_a_lost_node_ends_a_job_that_may_not_be_requeued(local: LocalScheduler, tmp_path: Path) -> None:
    job_id = await local.submit(request(tmp_path, SLEEP, requeue=False))
    await until(local, job_id, lambda job: job.state is JobState.RUNNING)
    with pytest.raises(InvalidRequest):
        await local.requeue_hold(job_id)
    await local.lose_node("node01")
    assert (await until_over(local, job_id)).state is JobState.NODE_FAIL


async def test_a_job_waits_for_nodes_and_for_their_return(local: LocalScheduler, tmp_path: Path) -> None:
    await local.drain_node("node04", "broken fan")
    job_id = await local.submit(request(tmp_path, SLEEP, nodes=4))
    waiting = await local.job(job_id)
    assert (waiting.state, waiting.reason) == (JobState.PENDING, "Resources")
    small = await local.submit(request(tmp_path, SLEEP, nodes=1))
    assert (await local.job(small)).state is JobState.RUNNING
    await local.cancel(small)
    await local.resume_node("node04")
    assert (await until(local, job_id, lambda job: job.state is JobState.RUNNING)).num_nodes == 4


# ---- clients and supervisors come and go -----------------------------------------------------------------


async def test_a_job_outlives_its_client(local: LocalScheduler, tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from relight.scheduler.local import LocalScheduler\n"
        "from relight.scheduler.port import SubmitRequest\n"
        "request = SubmitRequest.model_validate_json(sys.argv[2])\n"
        "print(asyncio.run(LocalScheduler(Path(sys.argv[1])).submit(request)))\n"
    )
    script = "#!/bin/bash\nwhile [ ! -e go ]; do sleep 0.1; done\nexit 5\n"
    argv = [
        sys.executable,
        "-c",
        program,
        str(tmp_path / "state"),
        request(tmp_path, script).model_dump_json(),
    ]
    client = await asyncio.to_thread(lambda: subprocess.run(argv, check=True, capture_output=True, text=True))
    job_id = client.stdout.strip()
    assert (await local.job(job_id)).state is JobState.RUNNING
    (tmp_path / "go").touch()
    # nobody asks while it ends: its supervisor records it
    await eventually(lambda: query(tmp_path, "SELECT state, exit_code FROM jobs") == [("FAILED", 5)])
    assert (await local.job(job_id)).exit_code == 5


async def test_many_clients_start_each_job_once(local: LocalScheduler, tmp_path: Path) -> None:
    script = "#!/bin/bash\necho $SLURM_JOB_ID\n"
    clients = [LocalScheduler(tmp_path / "state") for _ in range(4)]
    held = [await local.submit(request(tmp_path, script, hold=True)) for _ in range(8)]
    query(tmp_path, "UPDATE jobs SET held = 0")  # without a client noticing: all see it at the same time
    await asyncio.gather(*(client.jobs(held) for client in clients for _ in range(3)))
    for job_id in held:
        assert (await until_over(local, job_id)).state is JobState.COMPLETED
    assert sorted((tmp_path / "out.log").read_text().split()) == sorted(held)


async def test_a_lost_supervisor_is_no_silent_success(local: LocalScheduler, tmp_path: Path) -> None:
    job_id = await local.submit(
        request(tmp_path, "#!/bin/bash\necho $$\nexec sleep 300\n", nodes=2, tasks_per_node=2)
    )
    pids = await until_lines(tmp_path / "out.log", 4)
    os.kill(supervisor(tmp_path, job_id), signal.SIGKILL)
    lost = await until_over(local, job_id)
    assert lost.state is JobState.NODE_FAIL
    assert "supervisor" in lost.reason
    assert (lost.exit_code, lost.exit_signal) == (None, None)
    assert [identity(int(pid)) for pid in pids] == [None] * 4
    assert {node.state for node in (await local.nodes()).values()} == {"IDLE"}
    await local.requeue_hold(job_id)  # and it can be restarted
    await local.release(job_id)
    await until_lines(tmp_path / "out.log", 8)


async def test_a_supervisor_that_never_came_is_replaced(local: LocalScheduler, tmp_path: Path) -> None:
    script = "#!/bin/bash\necho ran\nexec sleep 300\n"
    job_id = await local.submit(request(tmp_path, script, hold=True))
    store = Store(tmp_path / "state")
    with store.writing() as db:  # a client that dies between the record and the start
        local_store.update_job(db, int(job_id), held=0)
        (token,) = local_store.start_jobs(db)
    assert (await local.job(job_id)).state is JobState.RUNNING
    assert not (tmp_path / "out.log").exists()
    query(tmp_path, "UPDATE attempts SET started = started - 40")
    await local.job(job_id)
    assert await until_lines(tmp_path / "out.log", 1) == ["ran"]
    with store.writing() as db:  # the first one, should it come late, gets nothing to run
        assert not local_store.claim_attempt(db, token, "late")


async def test_a_job_cancelled_before_its_supervisor_came_never_runs(
    local: LocalScheduler, tmp_path: Path
) -> None:
    job_id = await local.submit(request(tmp_path, SLEEP, hold=True))
    store = Store(tmp_path / "state")
    with store.writing() as db:
        local_store.update_job(db, int(job_id), held=0)
        (token,) = local_store.start_jobs(db)
    await local.cancel(job_id)
    with store.writing() as db:
        assert not local_store.claim_attempt(db, token, "late")
    info = await local.job(job_id)
    assert (info.state, info.completing) == (JobState.CANCELLED, False)


async def test_a_supervisor_that_cannot_start_is_told(
    local: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    job_id = await local.submit(request(tmp_path, SLEEP))
    assert "its supervisor did not start" in (await local.job(job_id)).reason


# ---- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"user": "somebody-else"}, NotPermitted),
        ({"nodes": 5}, InvalidRequest),
        ({"nodes": 0}, InvalidRequest),
        ({"tasks_per_node": 0}, InvalidRequest),
        ({"script": "echo no interpreter"}, InvalidRequest),
        ({"excluded_nodes": ("node77",)}, NoSuchNode),
    ],
)
async def test_submissions_that_are_refused_leave_nothing(
    local: LocalScheduler, tmp_path: Path, fields: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await local.submit(request(tmp_path, SLEEP).model_copy(update=fields))
    assert query(tmp_path, "SELECT count(*) FROM jobs") == [(0,)]


@pytest.mark.parametrize(
    ("job_id", "error"),
    [
        ("77", NoSuchJob),
        ("9" * 30, NoSuchJob),
        ("1_2", NoSuchJob),
        ("", NoSuchName),
        ("-1", NoSuchName),
        ("1 OR 1=1", NoSuchName),
        ("٣", NoSuchName),
    ],
)
async def test_unknown_jobs(local: LocalScheduler, job_id: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await local.job(job_id)
    with pytest.raises(error):
        await local.cancel(job_id)
    assert await local.jobs([job_id]) == {}


async def test_unknown_nodes(local: LocalScheduler) -> None:
    for call in (
        local.lose_node("x"),
        local.restore_node("x"),
        local.resume_node("x"),
        local.drain_node("x", "y"),
    ):
        with pytest.raises(NoSuchNode):
            await call
    with pytest.raises(InvalidRequest):
        await local.drain_node("node01", "")


async def test_running_and_ended_jobs_refuse_what_is_for_pending_ones(
    local: LocalScheduler, tmp_path: Path
) -> None:
    job_id = await local.submit(request(tmp_path, SLEEP))
    for _ in range(2):
        for call in (local.hold(job_id), local.release(job_id), local.exclude_nodes(job_id, [])):
            with pytest.raises(InvalidRequest):
                await call
        await local.cancel(job_id)
    with pytest.raises(InvalidRequest):
        await local.set_comment(job_id, "too late")


async def test_a_broken_state_directory_is_unreachable_not_empty(tmp_path: Path) -> None:
    local = LocalScheduler(tmp_path / "state")
    for file in (tmp_path / "state").glob("local.db*"):
        file.unlink()
    with pytest.raises(SchedulerUnreachable):
        await local.job("1")
    (tmp_path / "file").touch()
    with pytest.raises(SchedulerUnreachable):
        LocalScheduler(tmp_path / "file" / "state")


# ---- the parts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("slurm-%j.out", "slurm-42.out"),
        ("%x_%u_%N.log", "run_me_node01.log"),
        ("%5j%%j", "00042%j"),
        ("%99j", "0000000042"),
        ("%q-%", "%q-%"),
    ],
)
def test_filename_patterns(pattern: str, name: str) -> None:
    assert expand(pattern, {"j": "42", "x": "run", "u": "me", "N": "node01"}) == name


def test_output_files_of_a_job_without_names() -> None:
    fields = {"std_out": "", "std_err": "", "work_dir": "/w", "name": "run"}
    assert output_files(fields, 7, "me", []) == ("/w/slurm-7.out", "/w/slurm-7.out")
    assert output_files({**fields, "std_out": "/abs/%%N"}, 7, "me", []) == ("/abs/%N", "/abs/%N")


def test_a_process_is_known_by_more_than_its_number() -> None:
    with subprocess.Popen(["sleep", "300"], env={**os.environ, TOKEN: "t1"}) as process:
        known = identity(process.pid)
        assert known is not None
        assert is_running(known)
        assert not is_running(known + "0")
        assert signal_members("t", signal.SIGKILL) == 0
        assert signal_members("t1", signal.SIGKILL, "node01") == 0
        assert signal_members("t1", signal.SIGKILL) == 1
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, but still a zombie
        assert not is_running(known)
        assert signal_members("t1", signal.SIGKILL) == 0
