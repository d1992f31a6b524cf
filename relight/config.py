"""Settings: a TOML file, `RELIGHT_*` environment variables and flags, in that order of increasing precedence.

Temporal's address, namespace, TLS and keys are not here: they follow Temporal's own conventions
(`temporalio.envconfig`: `TEMPORAL_ADDRESS`, profiles, ...).
"""

from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Literal

import platformdirs
from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from relight.contracts import Mode, Policy
from relight.contracts.ids import TASK_QUEUE


class ConfigError(Exception):
    """The settings cannot be used. The message names the setting, its origin, and what is allowed."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SensorSettings(_Section):
    """The cluster sensor."""

    log_poll: timedelta = timedelta(seconds=0.25)
    """How often log files are looked at."""
    scheduler_poll: timedelta = timedelta(seconds=1)
    """How often the scheduler is asked; one request lists all watched jobs."""
    registry_poll: timedelta = timedelta(seconds=2)
    """How often Temporal is asked which jobs are watched."""
    max_line: int = Field(default=64 * 1024, ge=256)
    """Bytes of one log line that are looked at."""
    metrics_address: str = ""
    """`host:port` to serve Prometheus metrics on; empty: none."""


class WorkerSettings(_Section):
    """The worker."""

    metrics_address: str = ""
    """`host:port` to serve Prometheus metrics on; empty: none."""
    max_cached_workflows: int = Field(default=1000, ge=1)
    graceful_shutdown: timedelta = timedelta(seconds=30)
    """How long running activities may take to finish after a stop was asked for."""


class SlurmSettings(_Section):
    """The `slurm-cli` adapter."""

    bin_dir: str = ""
    """Where squeue, scontrol and the others are; empty: on PATH."""
    timeout: timedelta = timedelta(seconds=15)
    """The longest that one Slurm command may take."""


class LocalSettings(_Section):
    """The `local` scheduler."""

    nodes: int = Field(default=4, ge=1, le=64)


class Settings(BaseSettings):
    """All settings of relight."""

    model_config = SettingsConfigDict(
        env_prefix="RELIGHT_", env_nested_delimiter="__", extra="forbid", frozen=True
    )
    toml_file: ClassVar[Path | None] = None

    cluster: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    """This cluster's name in ids and in the web UI; empty: the scheduler's own name for it."""
    scheduler: Literal["auto", "slurm-cli", "local"] = "auto"
    """`auto`: Slurm's commands if they are on PATH, else an error that says so."""
    mode: Mode = Mode.OBSERVE
    """The mode of newly watched jobs that do not say otherwise."""
    task_queue: str = TASK_QUEUE
    state_dir: Path = Path(platformdirs.user_state_dir("relight"))
    """Where the sensor keeps what it has read, and the local scheduler its jobs."""
    policies: dict[str, Policy] = Field(default_factory=dict)
    """Named policies beside `default`."""
    sensor: SensorSettings = SensorSettings()
    worker: WorkerSettings = WorkerSettings()
    slurm: SlurmSettings = SlurmSettings()
    local: LocalSettings = LocalSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags beat the environment, which beats the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, cls.toml_file)

    def policy(self, name: str = "default") -> Policy:
        """The policy of this name.

        Raises:
            ConfigError: no such policy.
        """
        if name in self.policies:
            return self.policies[name].model_copy(update={"name": name})
        if name == "default":
            return Policy()
        known = ", ".join(sorted({"default", *self.policies}))
        raise ConfigError(f"there is no policy {name!r}; known policies: {known}")
