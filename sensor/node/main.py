"""From relight's settings to the node sensor's process."""

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from relight.config import CONFIG_VARIABLE, ENV_PREFIX, ConfigError, Settings


def node_name(settings: Settings) -> str:
    """The scheduler's name of this node.

    Raises:
        ConfigError: there is none.
    """
    name = settings.node.name or socket.gethostname().partition(".")[0]
    if not name:
        raise ConfigError("this host has no name: set node.name to the scheduler's name of this node")
    return name


def exec_node_sensor(settings: Settings, config_file: Path | None, flags: Mapping[str, object]) -> NoReturn:
    """Becomes the node sensor. This process has loaded much that the sensor must not keep in memory.

    Args:
        settings: the effective settings.
        config_file: named on the command line; the courier, which reads the settings itself, is told of it.
        flags: top-level settings given on the command line.

    Raises:
        ConfigError: the settings cannot be used.
    """
    name, node = node_name(settings), settings.node
    from sensor.node.watch import NodeOptions

    options = NodeOptions(
        node=name,
        state=settings.state_dir / f"node-{name}",
        kernel_log=node.kernel_log,
        nvml=node.nvml,
        gpus=node.gpus,
        gpu_every=node.gpu_poll.total_seconds(),
        metrics_address=node.metrics_address,
        signatures=settings.signatures,
    )
    environment = {**os.environ, **{f"{ENV_PREFIX}{key.upper()}": str(value) for key, value in flags.items()}}
    if config_file is not None:
        environment[CONFIG_VARIABLE] = str(config_file.absolute())
    # `-m` looks for modules in the working directory first. That is wanted only where it was done already.
    safe = [] if sys.path[0] in {"", str(Path.cwd())} else ["-P"]
    command = [sys.executable, *safe, "-m", "sensor.node", options.model_dump_json()]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(command[0], command, environment)  # noqa: S606
