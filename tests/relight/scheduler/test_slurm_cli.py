"""The `slurm-cli` adapter on a real Slurm cluster."""

import asyncio
import glob
import os
import pwd
import signal
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from relight.contracts import JobState
from relight.scheduler.port import (
    InvalidRequest,
    NoSuchJob,
    NotPermitted,
    NotSupported,
    Scheduler,
    SchedulerError,
    SchedulerUnreachable,
    SubmitRequest,
)
from relight.scheduler.slurm_cli import SlurmCliScheduler
from relight.scheduler.slurm_run import SlurmCommands, account_of
from tests.relight.scheduler.contract import SLEEP, SchedulerContract, Site, request
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    """As after an installation, a requeued job has to wait much longer than any test does."""
    with SlurmCluster(
        nodes=4, gpus_per_node=8, slurmd_timeout=3, message_timeout=3, cred_expire=120
    ) as started:
        yield started


@pytest.fixture
def commands(cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCommands:
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    monkeypatch.setenv("TZ", "America/Caracas")  # nobody's time zone may matter
    return SlurmCommands()


class SlurmSite(Site):
    """The cluster, as the contract wants it."""

    def __init__(self, cluster: SlurmCluster, scheduler: Scheduler) -> None:
        self.cluster, self.scheduler = cluster, scheduler

    async def kill_node(self, node: str) -> None:
        await asyncio.to_thread(self.cluster.kill_node, node)

    async def restore_node(self, node: str) -> None:
        self.cluster.restore_node(node)  # not in a thread: a daemon ends with the thread that started it


@pytest.fixture
def site(cluster: SlurmCluster, commands: SlurmCommands) -> Iterator[SlurmSite]:
    yield SlurmSite(cluster, SlurmCliScheduler(commands))
    for user in ("root", "nobody"):
        cluster.run("scancel", f"--user={user}")
    cluster.wait_idle()


class TestSlurmCli(SchedulerContract):
    """The contract."""


# ---- reading ---------------------------------------------------------------------------------------------


async def test_two_commands_read_any_number_of_jobs(
    site: SlurmSite, commands: SlurmCommands, tmp_path: Path
) -> None:
    ids = [await site.scheduler.submit(request(tmp_path, hold=True)) for _ in range(5)]
    before, sent = commands.runs, site.cluster.ctld_log().count("REQUEST_JOB_INFO")
    found = await site.scheduler.jobs([*ids, *(str(i) for i in range(90_000, 90_195))])
    assert sorted(found) == sorted(ids)
    assert commands.runs - before == 2
    assert site.cluster.ctld_log().count("REQUEST_JOB_INFO") - sent == 2  # each reads all jobs at once


async def test_more_ids_than_a_command_line_holds(site: SlurmSite, tmp_path: Path) -> None:
    job_id = await site.scheduler.submit(request(tmp_path, hold=True))
    found = await site.scheduler.jobs([job_id, *(str(i) for i in range(90_000, 120_000))])
    assert list(found) == [job_id]


async def test_times_are_utc_wherever_relight_runs(site: SlurmSite, tmp_path: Path) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    info = await site.scheduler.job(await site.scheduler.submit(request(tmp_path)))
    assert before <= info.submit_time <= datetime.now(UTC)


async def test_options_in_the_environment_change_nothing(
    site: SlurmSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "SQUEUE_FORMAT": "%i", "SQUEUE_STATES": "RUNNING", "SQUEUE_USERS": "nobody", "SINFO_FORMAT": "%t",
        "SLURM_TIME_FORMAT": "relative", "SBATCH_HOLD": "", "SBATCH_PARTITION": "nowhere",
        "SLURM_CLUSTERS": "x",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    job_id = await site.scheduler.submit(request(tmp_path))
    running = await site.until_running(job_id)
    assert running.partition == "main"
    assert len(await site.scheduler.nodes()) == 4


async def test_tasks_of_an_array(site: SlurmSite, tmp_path: Path) -> None:
    submitted = request(tmp_path, std_out="", extra_args=("--array=3-5%1",))
    array = await site.scheduler.submit(submitted)
    running = await site.until_running(f"{array}_3")
    pending = await site.scheduler.jobs([f"{array}_4", f"{array}_5", f"{array}_6"])
    assert {job_id: info.job_id for job_id, info in pending.items()} == {
        f"{array}_4": f"{array}_4",
        f"{array}_5": f"{array}_5",
    }
    assert {info.state for info in pending.values()} == {JobState.PENDING}
    assert running.std_out == str(tmp_path / f"slurm-{array}_3.out")
    assert Path(running.std_out).read_text() == "started\n"
    with pytest.raises(InvalidRequest, match="array"):
        await site.scheduler.job(array)
    with pytest.raises(NoSuchJob):
        await site.scheduler.job(f"{array}_9")
    await site.scheduler.requeue_hold(f"{array}_3")
    held = await site.until_held(f"{array}_3")
    assert held.restart_count == 1
    await site.scheduler.cancel(f"{array}_4")
    assert (await site.until_over(f"{array}_4")).state is JobState.CANCELLED
    await site.until_running(f"{array}_5")


async def test_components_of_a_heterogeneous_job(site: SlurmSite, tmp_path: Path) -> None:
    script = "#!/bin/bash\n#SBATCH -n1\n#SBATCH hetjob\n#SBATCH -n1\nsleep 300\n"
    leader = site.cluster.sbatch(script, "-o", str(tmp_path / "out"))
    running = await site.until_running(leader)
    follower = await site.scheduler.job(f"{leader}+1")
    assert running.job_id == leader
    assert follower.job_id == str(int(leader) + 1)
    with pytest.raises(InvalidRequest):
        await site.scheduler.cancel(f"{leader}+1")
    await site.scheduler.cancel(leader)
    await site.until_over(follower.job_id)


NAMES = (
    "plain", "%j", "%x-%j", "%A", "%8j %3a", "%J.%s", "100%%", "%%j", r"off\%j", "%u", "sub/dir-%j", "%",
    "%y", "é %j", "%a", "%N", "%n.%t",
)  # fmt: skip


@pytest.mark.parametrize("options", [("--job-name=a b",), ("--array=7", "--job-name=x%y")])
async def test_output_files_are_where_slurm_writes_them(
    site: SlurmSite, tmp_path: Path, options: tuple[str, ...]
) -> None:
    jobs = {}
    for number, name in enumerate(("", *NAMES)):
        directory = tmp_path / str(number)
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        to = [f"--output={name}"] if name else []
        job_id = site.cluster.sbatch("#!/bin/bash\necho here\n", f"--chdir={directory}", *to, *options)
        jobs[f"{job_id}_7" if "--array=7" in options else job_id] = directory
    for job_id, directory in jobs.items():
        done = await site.until_over(job_id)
        written = [str(path) for path in directory.rglob("*") if path.is_file()]
        assert glob.glob(done.std_out) == written, done.std_out  # noqa: PTH207 - absolute
        assert done.std_err == done.std_out


async def test_accounting_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SlurmCluster(nodes=1, accounting=True, min_job_age=2) as cluster:
        monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
        site = SlurmSite(cluster, SlurmCliScheduler(SlurmCommands()))
        name, comment = "x y=z", "a|b\n2 'c' \"d\" é"
        # Attempts shorter than five seconds reach accounting without names: slurmctld sends starts so rarely.
        script = "#!/bin/bash\n[ $SLURM_RESTART_COUNT ] || sleep 300\nsleep 7\nkill -9 $$\n"
        job_id = await site.scheduler.submit(request(tmp_path, script, name=name, comment=comment))
        await site.until_running(job_id)
        await asyncio.sleep(7)
        await site.scheduler.requeue_hold(job_id)
        await site.until_held(job_id)
        await site.scheduler.release(job_id)
        seen = await site.until_over(job_id)
        end = time.monotonic() + 30
        while (info := await site.scheduler.finished_job(job_id)).state is not JobState.FAILED:
            assert time.monotonic() < end, info
            await asyncio.sleep(0.2)
        for field in (
            "job_id", "name", "user", "partition", "restart_count", "submit_time", "start_time", "end_time",
            "nodes", "num_nodes", "exit_code", "exit_signal", "comment", "work_dir",
        ):  # fmt: skip
            assert getattr(info, field) == getattr(seen, field), field
        assert info.exit_signal == signal.SIGKILL
        with pytest.raises(NoSuchJob):
            await site.scheduler.finished_job("999999")


async def test_no_accounting(site: SlurmSite) -> None:
    with pytest.raises(NotSupported, match="disabled"):
        await site.scheduler.finished_job("1")


# ---- submitting ------------------------------------------------------------------------------------------


async def test_a_job_is_its_owners_and_nobody_elses(site: SlurmSite, tmp_path: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    tmp_path.chmod(0o777)
    for parent in list(tmp_path.parents)[:3]:  # one more where the tests run in several processes
        parent.chmod(0o755)
    script = '#!/bin/bash\nid -u; id -g; id -G; umask; echo "$USER $HOME"\n'
    job_id = await site.scheduler.submit(request(tmp_path, script, user="nobody"))
    done = await site.until_over(job_id)
    assert (done.user, done.state) == ("nobody", JobState.COMPLETED)
    uid, gid, groups, umask, login = (tmp_path / "out.log").read_text().splitlines()
    assert (int(uid), int(gid)) == (nobody.pw_uid, nobody.pw_gid)
    assert "0" not in groups.split()  # sbatch --uid would have left root's group
    assert umask == "0022"
    assert login == f"nobody {nobody.pw_dir}"
    assert (await site.scheduler.submit_template(job_id)).user == "nobody"


async def test_an_unknown_owner(site: SlurmSite, tmp_path: Path) -> None:
    with pytest.raises(NotPermitted, match="no-such-user"):
        await site.scheduler.submit(request(tmp_path, user="no-such-user"))


@pytest.mark.parametrize(
    "environment", [{"SBATCH_UID": "0"}, {"SLURM_CONF": "/x"}, {"A B": "x"}, {"A": "\0"}]
)
async def test_variables_that_cannot_be_set(
    site: SlurmSite, tmp_path: Path, environment: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequest):
        await site.scheduler.submit(request(tmp_path, environment=environment))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"partition": "nope"}, InvalidRequest),
        ({"script": "no interpreter"}, InvalidRequest),
        ({"comment": "x" * 5000}, InvalidRequest),
        ({"excluded_nodes": ("ALL",)}, InvalidRequest),
        ({"extra_args": ("--no-such-option",)}, SchedulerError),
    ],
)
async def test_requests_that_slurm_refuses(
    site: SlurmSite, tmp_path: Path, fields: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await site.scheduler.submit(request(tmp_path).model_copy(update=fields))


async def test_what_a_job_was_submitted_with_is_kept(site: SlurmSite, tmp_path: Path) -> None:
    job_id = site.cluster.sbatch(
        SLEEP, "-N2", "-n3", "--gres=gpu:4", "--cpus-per-task=2", "--mem-per-cpu=1G", "--exclusive", "-t",
        "30", f"--chdir={tmp_path}", "--exclude=node01", "--comment=c d",
    )  # fmt: skip
    template = await site.scheduler.submit_template(job_id)
    assert template == SubmitRequest(
        script=SLEEP,
        name="sbatch",
        user="root",
        partition="main",
        nodes=2,
        tasks_per_node=2,
        work_dir=str(tmp_path),
        comment="c d",
        excluded_nodes=("node01",),
        time_limit_minutes=30,
        extra_args=template.extra_args,
    )
    again = await site.scheduler.submit(template)
    await site.until_running(job_id)
    assert (await site.scheduler.job(job_id)).gpus == 8
    shape = ("NumNodes", "NumTasks", "TresPerNode", "CPUs/Task", "TimeLimit", "ExcNodeList", "OverSubscribe")
    first, second = site.cluster.job(job_id), site.cluster.job(again)
    assert {key: second[key].split("-")[0] for key in shape} == {
        key: first[key].split("-")[0] for key in shape
    }
    assert "--gres=gpu:4" in template.extra_args
    assert any(arg.startswith("--mem=") for arg in template.extra_args)


# ---- what others may do ----------------------------------------------------------------------------------


async def test_not_permitted(site: SlurmSite, tmp_path: Path, commands: SlurmCommands) -> None:
    """What Slurm says to a user who may not."""
    job_id = await site.scheduler.submit(request(tmp_path))
    await site.until_running(job_id)
    nobody = account_of("nobody")
    for argv in (
        ("scontrol", "requeuehold", job_id),
        ("scontrol", "update", f"JobId={job_id}", "Comment=x"),
        ("scontrol", "hold", job_id),
        ("scontrol", "update", "NodeName=node01", "State=DRAIN", "Reason=x"),
        ("scancel", job_id),
    ):
        with pytest.raises(NotPermitted):
            await commands.run_as(nobody, *argv, env={}, script="")
    assert (await site.scheduler.job(job_id)).state is JobState.RUNNING
    assert (await site.scheduler.job(job_id)).comment == ""


HOSTILE_IDS = (
    "",
    "-1",
    "--help",
    "1;reboot",
    "1 2",
    "1,2",
    "1\n",
    "$(id)",
    "1_",
    "1_2_3",
    "+1",
    "ALL",
    "1" * 30,
    "١",
)
HOSTILE_NODES = ("", "ALL", "all", "node[01-04]", "node01,node02", "-n", "a b", "node01\n", "../x", "$(id)")


async def test_what_is_no_id_never_reaches_a_command(cluster: SlurmCluster) -> None:
    commands = SlurmCommands()
    slurm = SlurmCliScheduler(commands)
    by_job: list[Callable[[str], Awaitable[object]]] = [
        slurm.job, slurm.finished_job, slurm.batch_script, slurm.submit_template, slurm.requeue_hold,
        slurm.hold, slurm.release, slurm.cancel, lambda i: slurm.jobs([i]),
        lambda i: slurm.set_comment(i, "x"), lambda i: slurm.exclude_nodes(i, ["node01"]),
    ]  # fmt: skip
    by_node: list[Callable[[str], Awaitable[object]]] = [
        slurm.resume_node,
        lambda n: slurm.drain_node(n, "x"),
        lambda n: slurm.nodes([n]),
        lambda n: slurm.exclude_nodes("1", [n]),
    ]
    for calls, values in ((by_job, HOSTILE_IDS), (by_node, HOSTILE_NODES)):
        for call in calls:
            for value in values:
                with pytest.raises(InvalidRequest):
                    await call(value)
    with pytest.raises(InvalidRequest):
        await slurm.set_comment("1", "a\0b")
    assert commands.runs == 0


# ---- when Slurm does not answer --------------------------------------------------------------------------


def every_call(slurm: Scheduler, directory: Path) -> list[Callable[[], Awaitable[object]]]:
    """Each method of the port."""
    return [
        slurm.version, lambda: slurm.jobs(["1"]), lambda: slurm.jobs(["1", "2"]), lambda: slurm.job("1"),
        slurm.nodes, lambda: slurm.batch_script("1"), lambda: slurm.submit_template("1"),
        lambda: slurm.submit(request(directory)), lambda: slurm.requeue_hold("1"),
        lambda: slurm.exclude_nodes("1", ["node01"]), lambda: slurm.set_comment("1", "x"),
        lambda: slurm.hold("1"), lambda: slurm.release("1"), lambda: slurm.cancel("1"),
        lambda: slurm.find_by_comment("x"), lambda: slurm.drain_node("node01", "x"),
        lambda: slurm.resume_node("node01"),
    ]  # fmt: skip


async def test_slurmctld_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SlurmCluster(nodes=1, message_timeout=2) as cluster:
        monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
        slurm = SlurmCliScheduler(SlurmCommands())
        cluster.kill_ctld()
        for call in every_call(slurm, tmp_path):
            with pytest.raises(SchedulerUnreachable):
                await call()
        cluster.start_ctld()
        assert (await slurm.version()).cluster == cluster.name


async def test_slurmctld_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SlurmCluster(nodes=1, message_timeout=60) as cluster:
        monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
        slurm = SlurmCliScheduler(SlurmCommands(timeout=1))
        cluster.freeze_ctld()
        began = time.monotonic()
        results = await asyncio.gather(
            *(call() for call in every_call(slurm, tmp_path)), return_exceptions=True
        )
        assert time.monotonic() - began < 20
        assert {type(result) for result in results} == {SchedulerUnreachable}
        assert "no answer within 1 s" in str(results[0])
        assert children("squeue", "scontrol", "sbatch", "sinfo", "scancel") == []
        cluster.thaw_ctld()


async def test_no_authentication(
    cluster: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = (cluster.root / "slurm.conf").read_text().replace("/munge/socket", "/munge/nowhere")
    (tmp_path / "slurm.conf").write_text(conf)
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    slurm = SlurmCliScheduler(SlurmCommands(timeout=5))
    for call in (
        slurm.version,
        lambda: slurm.hold("1"),
        lambda: slurm.cancel("1"),
        lambda: slurm.jobs(["1"]),
    ):
        with pytest.raises(SchedulerUnreachable):
            await call()


# ---- commands that fail in other ways --------------------------------------------------------------------


def children(*names: str) -> list[str]:
    """The names of this process's children that still run, if they are among these."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            head, _, tail = (entry / "stat").read_text().rpartition(")")
        except OSError:
            continue
        if tail.split()[1] == str(os.getpid()) and head.split("(", 1)[1] in names:
            found.append(head.split("(", 1)[1])
    return found


def fake(directory: Path, program: str, script: str, timeout: float = 1) -> SlurmCommands:
    """Commands of which one is this script: Slurm in a bad moment."""
    path = directory / program
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return SlurmCommands(str(directory), timeout=timeout, max_output=100_000)


@pytest.mark.parametrize(
    ("script", "error", "says"),
    [
        ("exit 0", SchedulerUnreachable, "not as asked for"),
        ("echo 'JOBID|STATE'", SchedulerUnreachable, "not as asked for"),
        ("kill -9 $$", SchedulerError, "exit status -9"),
        ("echo 'error: Unable to contact slurm controller' >&2; exit 1", SchedulerUnreachable, "contact"),
        ("echo 'Job violates something new' >&2; exit 1", InvalidRequest, "something new"),
        ("echo 'A message from the future' >&2; exit 1", SchedulerError, "from the future"),
        ("echo 'retrying in 1sec' >&2; sleep 60", SchedulerUnreachable, "retrying in 1sec"),
        ("yes", SchedulerError, "more than 100000 bytes"),
        ("yes >&2", SchedulerError, "more than 100000 bytes"),
    ],
)  # fmt: skip
async def test_squeue_in_a_bad_moment(
    tmp_path: Path, script: str, error: type[SchedulerError], says: str
) -> None:
    slurm = SlurmCliScheduler(fake(tmp_path, "squeue", script))
    began = time.monotonic()
    for call in (lambda: slurm.jobs(["1"]), lambda: slurm.job("1"), lambda: slurm.find_by_comment("x")):
        with pytest.raises(SchedulerError) as caught:
            await call()
        assert type(caught.value) is error
        assert says in str(caught.value)
        assert "ormat=" not in str(caught.value), "how a listing looks is nothing to people"
    assert time.monotonic() - began < 15
    assert children("squeue", "sleep", "yes") == []


async def test_a_cancelled_call_leaves_no_process(tmp_path: Path) -> None:
    commands = fake(tmp_path, "squeue", f"echo $$ >> {tmp_path}/pids; sleep 60", timeout=60)
    slurm = SlurmCliScheduler(commands)
    task = asyncio.ensure_future(slurm.jobs(["1"]))
    pids = tmp_path / "pids"
    while not pids.exists() or not pids.read_text().split():  # noqa: ASYNC110 - others write it
        await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for pid in pids.read_text().split():
        assert not Path(f"/proc/{pid}").exists()


async def test_the_commands_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(SchedulerUnreachable, match=r"no command scontrol.*slurm\.bin_dir"):
        await SlurmCliScheduler(SlurmCommands(str(tmp_path))).version()
