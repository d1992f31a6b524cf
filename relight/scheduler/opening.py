"""Opens the scheduler that the settings name, and asks nothing of it yet."""

from relight.config import ConfigError, Settings
from relight.scheduler.port import Scheduler, SchedulerUnreachable


def open_scheduler(settings: Settings) -> Scheduler:
    """The scheduler of the setting `scheduler`; adapters are imported only when used.

    Raises:
        ConfigError: `auto` found no Slurm here, or `slurm.bin_dir` has none.
        SchedulerUnreachable: the local scheduler's directory cannot be used.
    """
    if settings.scheduler == "local":
        from relight.scheduler.local import LocalScheduler

        return LocalScheduler(settings.state_dir, settings.local.nodes, settings.cluster or "local")

    from relight.scheduler.slurm_cli import SlurmCliScheduler
    from relight.scheduler.slurm_run import SlurmCommands

    commands = SlurmCommands(settings.slurm.bin_dir, settings.slurm.timeout.total_seconds())
    try:
        for program in ("squeue", "scontrol"):
            commands.path(program)
    except SchedulerUnreachable as e:
        instead = (
            '; for a machine without Slurm, set scheduler = "local"' if settings.scheduler == "auto" else ""
        )
        raise ConfigError(f"{e}{instead}") from e
    return SlurmCliScheduler(commands)
