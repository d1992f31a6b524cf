"""Stages about one job: watched, known, its logs, its checkpoints, its steps."""

import os
from pathlib import Path

from relight.cli.checkup.base import Bench, Broken, Well
from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.stand_still import in_words
from relight.cli.unwatched import advice, can_be_watched
from relight.cli.watched import find_monitor, look_for_stand_still, monitor_status
from relight.config import Settings
from relight.contracts import JobInfo
from relight.errors import WrongRequestError
from relight.policies import Policies
from relight.scheduler.port import NoSuchJob, SchedulerError
from sensor.optin import BadRequest, opted_in


async def known(bench: Bench) -> Well:
    """The scheduler knows the job."""
    try:
        bench.info = await bench.scheduler.job(bench.job_id)
    except NoSuchJob:
        return Well("the scheduler has forgotten it", "it can only be submitted anew")
    except WrongRequestError as error:
        raise Broken(str(error), "name a job as the scheduler does", ExitCode.USAGE) from error
    except SchedulerError as error:
        mend = f"look yourself: scontrol show job {bench.job_id}"
        raise Broken(str(error), mend, ExitCode.NO_SCHEDULER) from error
    return Well(f"{bench.info.state.value}, attempt {bench.info.restart_count}")


async def watched(bench: Bench) -> Well:
    """It is watched; if not, whether it asked for it, and why that was refused."""
    try:
        bench.monitor = await find_monitor(bench.client, bench.job_id, bench.settings.cluster, ended=True)
    except CommandError as error:
        why, mend = _not_watched(bench.info, bench.cluster, bench.settings, bench.job_id)
        found = f"job {bench.job_id} is not watched" if error.code is ExitCode.NOT_FOUND else str(error)
        raise Broken(f"{found}; {why}", mend, error.code) from error
    bench.status = await monitor_status(bench.client, bench.monitor.id)
    bench.stands_still = await look_for_stand_still(bench.client, bench.monitor, bench.status)
    if not bench.monitor.running:
        end = bench.status.end if bench.status is not None else None
        ended = f"it is watched no more ({end.value})" if end is not None else "it is watched no more"
        detail = (
            f": {bench.status.end_detail}" if bench.status is not None and bench.status.end_detail else ""
        )
        raise Broken(f"{ended}{detail}", advice(bench.job_id, bench.info), ExitCode.NOT_FOUND)
    if bench.status is None:
        found = f"{bench.monitor.id} gives no answer, although a worker polls"
        mend = (
            f"look at it: temporal workflow describe --workflow-id '{bench.monitor.id}', and the worker's log"
        )
        raise Broken(found, mend, ExitCode.NOT_READY)
    return Well(f"by {bench.monitor.id}, mode {bench.status.job.mode.value}")


async def logs(bench: Bench) -> Well:
    """Its log files are there and can be read."""
    status = bench.status
    paths = status.job.log_paths if status is not None else ()
    if not paths:
        raise Broken("no log is known of this job", f"relight watch {bench.job_id} --logs FILE")
    files = [file for path in paths for file in (_files(path) or [path])]
    missing = [file for file in files if not Path(file).exists()]
    for file in files:
        if file not in missing and (trouble := _trouble(file)):
            mend = "give the user of sensor and worker the right to read it, and run the doctor as that user"
            raise Broken(f"{file} cannot be read: {trouble}", mend)
    if len(missing) == len(files):
        mend = f"mount its file system here, or name the log: relight watch {bench.job_id} --logs FILE"
        raise Broken(f"{missing[0]} is not there", mend)
    return Well(f"{len(files) - len(missing)} can be read", f"{missing[0]} is not there" if missing else "")


async def checkpoints(bench: Bench) -> Well:
    """Its checkpoint directory is there and can be read."""
    directory = bench.status.job.checkpoint_dir if bench.status is not None else None
    if directory is None:
        note = f"every plan waits for a person: relight watch {bench.job_id} --checkpoints DIR"
        return Well("no directory was told", note)
    if "://" in directory:
        return Well(directory)
    if not Path(directory).is_dir():
        raise Broken(
            f"checkpoint directory {directory} is not there",
            "mount it here, or watch again with --checkpoints DIR",
        )
    if not os.access(directory, os.R_OK | os.X_OK):
        raise Broken(f"{directory} cannot be read", "give the worker's user the right to read it")
    return Well(f"{directory} can be read")


async def steps(bench: Bench) -> Well:
    """Its log tells steps: without them a hang cannot be noticed."""
    status = bench.status
    if status is not None and status.progress is not None:
        still = bench.stands_still
        return Well(f"at step {status.progress.step}", f"it {in_words(still)}" if still is not None else "")
    mend = (
        "`relight progress test FILE` shows which lines of its log are taken for steps: if none are, set "
        "step_patterns of its policy; just after the start, wait for the first steps"
    )
    raise Broken("no step was seen in its log yet: a hang could not be noticed", mend)


def _files(pattern: str) -> list[str]:
    """The files of an absolute pattern."""
    return sorted(map(str, Path("/").glob(pattern.lstrip("/"))))


def _trouble(file: str) -> str:
    """Why a file cannot be read; empty: it can."""
    try:
        with Path(file).open("rb") as opened:
            opened.read(1)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _not_watched(info: JobInfo | None, cluster: str, settings: Settings, job_id: str) -> tuple[str, str]:
    if info is None or not can_be_watched(info):
        return "it cannot be watched any more", advice(job_id, info)
    mend = f"relight watch {job_id}, or let it ask: #SBATCH --comment='{{\"relight\": {{}}}}'"
    try:
        asked = opted_in(info, cluster, settings, Policies(settings).file)
    except BadRequest as error:
        return (
            f"its comment asks for it, but {error}",
            "correct the comment: scontrol update job=ID comment=...",
        )
    if asked is None:
        return "its comment does not ask for it", mend
    return (
        "its comment asks for it",
        "is the sensor of this cluster at work? It takes up such jobs within seconds",
    )
