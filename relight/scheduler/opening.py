"""Opens the scheduler that the settings name, and asks nothing of it yet (but for the probe of pyslurm)."""

import importlib.util

import structlog

from relight.config import ConfigError, Settings
from relight.scheduler.port import Scheduler, SchedulerUnreachable

log = structlog.get_logger(__name__)


def open_scheduler(settings: Settings) -> Scheduler:
    """The scheduler of the setting `scheduler`; adapters are imported only when used.

    Raises:
        ConfigError: `auto` found no Slurm here, `slurm.bin_dir` has none, or pyslurm was asked for and cannot
            be used.
        SchedulerUnreachable: the local scheduler's directory cannot be used.
    """
    if settings.scheduler == "local":
        from relight.scheduler.local import LocalScheduler

        return LocalScheduler(settings.state_dir, settings.local.nodes, settings.cluster or "local")

    commands = _commands(settings)
    if settings.scheduler == "slurm-cli":
        return commands
    if settings.scheduler == "auto" and importlib.util.find_spec("pyslurm") is None:
        return commands
    return _pyslurm(settings, commands)


def _commands(settings: Settings) -> Scheduler:
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


def _pyslurm(settings: Settings, commands: Scheduler) -> Scheduler:
    from relight.scheduler.pyslurm_probe import probe
    from relight.scheduler.slurm_pyslurm import SlurmPyslurmScheduler

    timeout = settings.slurm.timeout.total_seconds()
    found = probe(timeout)
    if found.usable:
        return SlurmPyslurmScheduler(commands, timeout)
    if settings.scheduler == "auto":
        log.warning("pyslurm is not used, but Slurm's commands", why=found.why_not)
        return commands
    raise ConfigError(f'scheduler = "slurm-pyslurm": {found.why_not}')
