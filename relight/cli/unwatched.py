"""What helps with a job that is not watched: `relight watch`, if the scheduler still has such a job."""

from temporalio.client import Client

from relight.cli.exit_codes import CommandError, ExitCode
from relight.cli.watched import Monitor, find_monitor
from relight.config import ConfigError, Settings
from relight.contracts import JobInfo
from relight.errors import WrongRequestError
from relight.scheduler.port import NoSuchJob, SchedulerError

SEEN_EARLIER = "`relight jobs --all` lists what was watched earlier"


def advice(job_id: str, info: JobInfo | None) -> str:
    """What to do about a job that is not watched. Pure.

    Args:
        job_id: the job.
        info: what the scheduler says of it; None: it knows no such job.
    """
    if info is None:
        return f"the scheduler knows no job {job_id} either: check the id; {SEEN_EARLIER}"
    if not can_be_watched(info):
        return (
            f"it has ended ({info.state.value}), so that there is nothing to watch; {SEEN_EARLIER}, and "
            "`relight diagnose LOG` tells from its log what happened"
        )
    return f"`relight watch {job_id}` begins"


def can_be_watched(info: JobInfo) -> bool:
    """It has not ended, or by a fault: that can be recovered from."""
    return not info.state.is_over or info.state.is_failure


async def find_or_advise(client: Client, settings: Settings, target: str) -> Monitor:
    """The monitor of a job, also one that has ended; where there is none, what helps.

    Raises:
        CommandError: as `find_monitor`. Without an answer of the scheduler the advice is a general one.
    """
    try:
        return await find_monitor(client, target, settings.cluster, ended=True)
    except CommandError as error:
        if error.code is not ExitCode.NOT_FOUND or target.startswith(("job:", "recover:")):
            raise
        from relight.scheduler.opening import open_scheduler  # adapters are slow to import

        try:
            info = await open_scheduler(settings).job(target)
        except NoSuchJob:
            info = None
        except WrongRequestError as wrong:
            raise CommandError(str(wrong), ExitCode.USAGE) from wrong
        except (SchedulerError, ConfigError):
            raise error from None
        where = f" on cluster {settings.cluster}" if settings.cluster else ""
        raise CommandError(
            f"job {target} is not watched{where}: {advice(target, info)}", ExitCode.NOT_FOUND
        ) from error
