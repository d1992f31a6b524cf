"""The `slurm-pyslurm` adapter against a double of pyslurm (see there what it stands for)."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from relight.config import ConfigError, Settings
from relight.contracts import JobState
from relight.scheduler.local import LocalScheduler
from relight.scheduler.opening import open_scheduler
from relight.scheduler.port import NotPermitted, SchedulerUnreachable
from relight.scheduler.pyslurm_probe import probe, version_mismatch
from relight.scheduler.pyslurm_process import PyslurmProcess
from relight.scheduler.slurm_cli import SlurmCliScheduler
from relight.scheduler.slurm_pyslurm import SlurmPyslurmScheduler
from tests.relight.scheduler.contract import SchedulerContract, Site, request
from tests.relight.scheduler.test_local import LocalSite

DOUBLE = Path(__file__).parent / "pyslurm_double"


@pytest.fixture
def double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The double is what a child process imports as pyslurm; the result: the state of its scheduler."""
    state = tmp_path / "state"
    paths = [str(DOUBLE), str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("RELIGHT_DOUBLE_STATE", str(state))
    monkeypatch.syspath_prepend(str(DOUBLE))
    return state


@pytest.fixture
async def local(double: Path) -> AsyncIterator[LocalScheduler]:
    """What the double speaks for, and what stands for Slurm's commands."""
    scheduler = LocalScheduler(double, requeue_delay=timedelta(minutes=2))
    yield scheduler
    with closing(sqlite3.connect(double / "local.db")) as db:
        ids = [str(row[0]) for row in db.execute("SELECT id FROM jobs")]
    for job_id in ids:
        await scheduler.cancel(job_id)


@pytest.fixture
async def adapter(local: LocalScheduler) -> AsyncIterator[SlurmPyslurmScheduler]:
    """Its process runs: starting takes longer than some jobs of the contract."""
    adapter = SlurmPyslurmScheduler(local)
    await adapter.version()
    yield adapter
    adapter.close()


class PyslurmSite(LocalSite):
    """The local scheduler, asked through the adapter and the double."""

    def __init__(self, local: LocalScheduler, adapter: SlurmPyslurmScheduler) -> None:
        super().__init__(local)
        self.scheduler = adapter  # type: ignore[assignment]


@pytest.fixture
def site(local: LocalScheduler, adapter: SlurmPyslurmScheduler) -> Site:
    return PyslurmSite(local, adapter)


class TestPyslurm(SchedulerContract):
    """The contract."""


# ---- reading ---------------------------------------------------------------------------------------------


async def test_one_call_reads_any_number_of_jobs(
    adapter: SlurmPyslurmScheduler, local: LocalScheduler, tmp_path: Path
) -> None:
    ids = [await local.submit(request(tmp_path, hold=True)) for _ in range(3)]
    before = adapter.calls
    found = await adapter.jobs([*ids, *(str(i) for i in range(90_000, 120_000))])
    assert list(found) == ids
    assert adapter.calls - before == 1


async def test_an_exit_code_that_pyslurm_changes_is_the_jobs(
    adapter: SlurmPyslurmScheduler, local: LocalScheduler, tmp_path: Path
) -> None:
    """Pyslurm says 9 for 137."""
    job_id = await local.submit(request(tmp_path, "#!/bin/bash\nexit 137\n"))
    info = await PyslurmSite(local, adapter).until_over(job_id)
    assert (info.state, info.exit_code) == (JobState.FAILED, 137)
    assert (await adapter.jobs([job_id]))[job_id].exit_code == 137


# ---- a call that hangs, and other trouble ----------------------------------------------------------------


async def test_a_call_that_hangs_blocks_nothing(
    double: Path, local: LocalScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the event loop, not other calls beyond the deadline; and the next call gets a new process."""
    monkeypatch.setenv("RELIGHT_DOUBLE_FAULT", "hang")
    adapter = SlurmPyslurmScheduler(local, timeout=4)
    ticks, began = 0, time.monotonic()
    calls = [asyncio.ensure_future(adapter.job("1")) for _ in range(5)]
    changes = asyncio.ensure_future(adapter.hold("1"))
    while not all(call.done() for call in (*calls, changes)):
        await asyncio.sleep(0.05)
        ticks += 1
    took = time.monotonic() - began
    for call in (*calls, changes):
        with pytest.raises(SchedulerUnreachable, match="4 s"):
            call.result()
    assert took < 4 + 2
    assert ticks > 20  # of the 80 that an idle machine makes
    monkeypatch.delenv("RELIGHT_DOUBLE_FAULT")
    patient = SlurmPyslurmScheduler(local, timeout=30)
    assert (await patient.version()).cluster == "double"
    adapter.close()
    patient.close()


async def test_a_process_that_was_killed_is_started_again(double: Path, local: LocalScheduler) -> None:
    process = PyslurmProcess()
    assert (await process.call("version"))["slurm"] == "25.11.7"
    assert process._child is not None
    process._child.kill()
    process._child.wait()
    with pytest.raises(SchedulerUnreachable):
        await process.call("version")
    assert (await process.call("version"))["slurm"] == "25.11.7"
    process.close()


def test_importing_pyslurm_ends_only_the_process_that_tries(
    double: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As libslurm does where it finds no configuration."""
    monkeypatch.setenv("RELIGHT_DOUBLE_FAULT", "exit")
    found = probe()
    assert (found.installed, found.usable) == (True, False)
    assert "Could not establish a configuration source" in found.why_not
    assert "pyslurm" not in sys.modules


# ---- which adapter ---------------------------------------------------------------------------------------


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A directory with what passes for Slurm's commands."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("squeue", "scontrol"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("", None),
        ("exit", "configuration source"),
        ("old", "lacks Job.allocated_tres"),
        ("24.05.1", "build pyslurm 24.5"),
    ],
)
def test_auto_takes_pyslurm_only_where_it_works(
    double: Path, commands: Path, monkeypatch: pytest.MonkeyPatch, fault: str, said: str | None
) -> None:
    monkeypatch.setenv("RELIGHT_DOUBLE_FAULT", fault)
    settings = Settings.model_validate({"scheduler": "auto", "slurm": {"bin_dir": str(commands)}})
    with capture_logs() as logged:
        opened = open_scheduler(settings)
    if said is None:
        assert isinstance(opened, SlurmPyslurmScheduler)
        assert logged == []
        opened.close()
        return
    assert isinstance(opened, SlurmCliScheduler)
    (line,) = logged
    assert said in line["why"]
    with pytest.raises(ConfigError) as refused:
        open_scheduler(settings.model_copy(update={"scheduler": "slurm-pyslurm"}))
    assert said in str(refused.value)


def test_without_pyslurm_nothing_changes(commands: Path) -> None:
    """In a process of its own: the adapter's modules are not even imported."""
    program = (
        "import sys; from relight.config import Settings\n"
        "from relight.scheduler.opening import open_scheduler\n"
        f"s = Settings.model_validate({{'scheduler': 'auto', 'slurm': {{'bin_dir': {str(commands)!r}}}}})\n"
        "print(type(open_scheduler(s)).__name__, [m for m in sys.modules if 'pyslurm' in m])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout.strip(), done.stderr) == ("SlurmCliScheduler []", "")
    settings = Settings.model_validate({"scheduler": "slurm-pyslurm", "slurm": {"bin_dir": str(commands)}})
    with pytest.raises(ConfigError, match="pyslurm is not installed"):
        open_scheduler(settings)


@pytest.mark.parametrize(
    ("pyslurm", "slurm", "match"),
    [
        ("25.11.2", "25.11.7", True),
        ("25.11.2", "25.5.1", False),
        ("25.5.0", "25.05.3", True),
        ("23.11.0", "24.05.0", False),
    ],
)
def test_versions(pyslurm: str, slurm: str, match: bool) -> None:
    assert (version_mismatch(pyslurm, slurm) == "") is match


async def test_what_slurm_says_reaches_the_caller(adapter: SlurmPyslurmScheduler) -> None:
    with pytest.raises(Exception, match="pyslurm hold: Invalid job id specified") as refused:
        await adapter.hold("999999")
    assert not isinstance(refused.value, NotPermitted)
