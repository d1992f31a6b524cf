"""Stages about the scheduler: its commands, its answer, accounting, and what this user may do there."""

import asyncio
import importlib.util
import os
import pwd
import re

from relight.cli.checkup.base import Bench, Broken, Well
from relight.cli.exit_codes import ExitCode
from relight.config import ConfigError
from relight.scheduler.opening import open_scheduler
from relight.scheduler.port import NoSuchJob, NotSupported, SchedulerError, SchedulerUnreachable
from relight.scheduler.pyslurm_probe import probe
from relight.scheduler.slurm_run import SlurmCommands

OPERATORS = re.compile(r"Operator|Administrator")
"""Slurm's admin levels that may change other users' jobs (sacctmgr(1), AdminLevel)."""
_NEVER = "1"
"""A job id to ask accounting about; whether there is such a job does not matter."""


def current_user() -> str:
    """The name of this user."""
    return pwd.getpwuid(os.geteuid()).pw_name


async def commands(bench: Bench) -> Well:
    """They are installed."""
    try:
        bench.scheduler = open_scheduler(bench.settings)
    except (ConfigError, SchedulerUnreachable) as error:
        mend = "install slurm-client on this machine, or set slurm.bin_dir"
        if "pyslurm" in str(error):
            mend = 'mend pyslurm as docs/how-to/pyslurm.md says, or set scheduler = "slurm-cli"'
        raise Broken(str(error), mend, ExitCode.NO_SCHEDULER) from error
    if bench.settings.scheduler == "auto" and importlib.util.find_spec("pyslurm") is not None:
        found = await asyncio.to_thread(probe, bench.settings.slurm.timeout.total_seconds())
        return Well("found", "" if found.usable else f"pyslurm is not used: {found.why_not}")
    return Well("found")


async def answers(bench: Bench) -> Well:
    """The scheduler answers."""
    try:
        version = await bench.scheduler.version()
        bench.cluster = bench.settings.cluster or version.cluster
    except SchedulerError as error:
        mend = "check slurmctld (`scontrol ping`), munge, and SLURM_CONF of this user"
        raise Broken(str(error), mend, ExitCode.NO_SCHEDULER) from error
    return Well(f"{version.name} {version.version}, cluster {version.cluster}")


async def accounting(bench: Bench) -> Well:
    """Not needed; without it a job that slurmctld forgot cannot be asked about."""
    try:
        await bench.scheduler.finished_job(_NEVER)
    except NoSuchJob:
        return Well("answers")
    except (NotSupported, SchedulerError) as error:
        note = f"how a job ended that slurmctld has forgotten stays unknown ({error})"
        return Well("none", note)
    return Well("answers")


async def permissions(bench: Bench) -> Well:
    """This user may requeue, hold and release the jobs."""
    me = current_user()
    if bench.settings.scheduler == "local" or me == "root":
        return Well(f"{me} may change all jobs")
    slurm = SlurmCommands(bench.settings.slurm.bin_dir, bench.settings.slurm.timeout.total_seconds())
    try:
        config = await slurm.run("scontrol", "show", "config")
        found = re.search(r"^SlurmUser\s*=\s*([^(\s]+)", config, re.MULTILINE)
        if found and found.group(1) == me:
            return Well(f"{me} is SlurmUser")
        level = await slurm.run("sacctmgr", "-nP", "show", "user", f"name={me}", "format=AdminLevel")
    except SchedulerError as error:
        level, note = "", str(error)
    else:
        note = ""
    if OPERATORS.search(level):
        return Well(f"{me} is {level.strip()}")
    if bench.info is not None and bench.info.user not in ("", me):
        mend = f"run the worker as {bench.info.user}, or make {me} a Slurm operator: "
        mend += f"sacctmgr modify user {me} set adminlevel=operator (and run the doctor as the worker's user)"
        raise Broken(f"{me} may not change jobs of {bench.info.user}", mend, ExitCode.REFUSED)
    return Well(f"{me} may change its own jobs", note or "not those of others: it is no Slurm operator")
