"""Settings: a TOML file, `RELIGHT_*` environment variables and flags, in that order of increasing precedence.

The file is the first of: `--config`, `RELIGHT_CONFIG`, `./relight.toml`, `relight/relight.toml` in the user's
configuration directory, `/etc/relight/relight.toml`. Environment variables are named after the setting, with
`__` for the dot: `RELIGHT_SENSOR__LOG_POLL=1s`; lists are written there with commas or as JSON, tables as
JSON. Durations are numbers of seconds or texts such as `250ms`, `30s`, `5m`, `1h30m`.

Temporal's address, namespace, TLS and keys are not here: they follow Temporal's own conventions
(`temporalio.envconfig`: `TEMPORAL_ADDRESS`, profiles, ...).
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_origin

import platformdirs
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from relight.addresses import host_and_port
from relight.contracts import Mode, Policy
from relight.contracts.guard import GuardLimits
from relight.contracts.ids import TASK_QUEUE
from relight.contracts.notice import Event
from relight.durations import format_duration, parse_duration
from relight.prometheus.queries import DEFAULTS, fill

ENV_PREFIX = "RELIGHT_"
CONFIG_VARIABLE = "RELIGHT_CONFIG"
"""The environment variable that names the settings file."""
TOKEN_VARIABLE = "RELIGHT_PROMETHEUS_TOKEN"
"""Environment variable with Prometheus' bearer token. Not a setting: it would show in `relight config`."""

SECRETS = {("notify", "url")}
"""Settings whose values are never shown."""


_file_to_read: ContextVar[Path | None] = ContextVar("settings file", default=None)
"""Set while `load_settings` constructs the settings: pydantic reads sources inside the constructor."""


class ConfigError(Exception):
    """The settings cannot be used. The message names the setting, its origin, and what is allowed."""


Written = str | int | float | bool | None | list[str | int]
"""A setting's value as a TOML file has it."""
Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
"""A timedelta that people can write as `30s` or `5m`."""
Interval = Annotated[Duration, Field(gt=timedelta(0))]
"""A duration that cannot be zero."""


HostAndPort = Annotated[str, AfterValidator(host_and_port)]
"""`host:port` to listen on; empty: none. Without a host: on the loopback interface."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SensorSettings(_Section):
    """The cluster sensor."""

    log_poll: Interval = timedelta(seconds=0.25)
    """How often log files are looked at."""
    scheduler_poll: Interval = timedelta(seconds=1)
    """How often the scheduler is asked; one request lists all watched jobs."""
    registry_poll: Interval = timedelta(seconds=2)
    """How often Temporal is asked which jobs are watched."""
    max_line: int = Field(default=64 * 1024, ge=256)
    """Bytes of one log line that are looked at."""
    metrics_address: HostAndPort = ""
    """`host:port` to serve Prometheus metrics on; empty: none."""
    wake_address: HostAndPort = ""
    """`host:port` on which Slurm's hook tells by UDP that a job has ended; empty: nobody does."""


class NodeSettings(_Section):
    """The node sensor."""

    name: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,253}$")
    """The scheduler's name of this node; empty: the host's name up to the first dot."""
    kernel_log: Path = Path("/dev/kmsg")
    """Where kernel messages are read: the device, or a file that takes only the kernel's messages."""
    nvml: bool = True
    """Ask NVIDIA's library about the GPUs."""
    gpus: int = Field(default=0, ge=0, le=64)
    """GPUs that this node should have; 0: as many as the driver shows at the start."""
    gpu_poll: Interval = timedelta(seconds=10)
    """How often the health of the GPUs is looked at. Xid events are told at once."""
    metrics_address: HostAndPort = ""
    """`host:port` to serve Prometheus metrics on; empty: none."""


class WorkerSettings(_Section):
    """The worker."""

    metrics_address: HostAndPort = ""
    """`host:port` to serve Prometheus metrics on; empty: none."""
    max_cached_workflows: int = Field(default=1000, ge=1)
    """So many workflows are kept in memory; the others are read from their history when something happens."""
    graceful_shutdown: Duration = timedelta(seconds=30)
    """How long running activities may take to finish after a stop was asked for."""
    build_id: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    """The version of the code, for Temporal's worker versioning: workflows end on the version that they began
    with, or renew themselves on a newer one. Empty: every worker takes every workflow."""


class SlurmSettings(_Section):
    """The `slurm-cli` and `slurm-pyslurm` adapters."""

    bin_dir: str = ""
    """Where squeue, scontrol and the others are; empty: on PATH."""
    timeout: Interval = timedelta(seconds=15)
    """The longest that one Slurm command, or one call of pyslurm, may take."""


class GuardSettings(GuardLimits):
    """How much the cluster's guard allows: its limits, with durations as people write them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator(
        "breaker_window", "breaker_cool_down", "lease", "strike_window", "strike_half_life", mode="before"
    )
    @classmethod
    def _written_durations(cls, value: object) -> object:
        return parse_duration(value)

    def limits(self) -> GuardLimits:
        """As the guard takes them."""
        return GuardLimits.model_validate(self.model_dump())


class PrometheusSettings(_Section):
    """The site's Prometheus, with the metrics of dcgm-exporter and node_exporter."""

    url: str = Field(default="", pattern=r"^(https?://[^\s@]+)?$")
    """`http://host:9090`; empty: there is none. A bearer token goes into `RELIGHT_PROMETHEUS_TOKEN`."""
    timeout: Interval = timedelta(seconds=5)
    """The longest that one query may take."""
    poll: Interval = timedelta(seconds=15)
    """How often the sensor asks for faults, for all watched jobs together."""
    node_labels: tuple[str, ...] = ("Hostname", "node", "nodename", "instance")
    """Labels that may name the node, in the order in which they are tried; port and domain are cut off."""
    match_label: str = Field(default="", pattern=r"^[A-Za-z_]*[A-Za-z0-9_]*$")
    """The label by which queries are limited to the nodes that are asked about; empty: they are not."""
    stale_after: Interval = timedelta(seconds=60)
    """A GPU whose last sample is older says nothing."""
    long_enough: Interval = timedelta(seconds=30)
    """GPUs must have waited for so long before they confirm a hang."""
    fault_window: Interval = timedelta(minutes=5)
    """Counters that rose within this time have just risen."""
    io_busy: float = Field(default=50e6, gt=0)
    """Bytes a second that a node must write and send, at least, to be busy with it."""
    queries: dict[str, str] = Field(default_factory=dict)
    """Queries of the site's own, by the names in `docs/reference.md`."""

    @field_validator("queries")
    @classmethod
    def _known_and_fillable(cls, queries: dict[str, str]) -> dict[str, str]:
        for name, query in queries.items():
            if name not in DEFAULTS:
                raise ValueError(f"there is no query {name!r}; known: {', '.join(sorted(DEFAULTS))}")
            if not query.strip():
                raise ValueError(f"{name} is empty: leave it out for relight's own query")
            try:
                fill(query, window=60, before=60)
            except ValueError as e:
                raise ValueError(f"{name}: {e}; write $$ for a $ that Prometheus shall see") from e
        return queries


class DrainSettings(_Section):
    """What happens to a node that relight drained, once no job is on it.

    Commands are argument vectors; `{node}`, `{cause}` and `{recovery}` in them are replaced.
    """

    repair: tuple[str, ...] = ()
    """The site's own command that mends the node: a reset, a reboot, a ticket. Runs before each check."""
    check: tuple[str, ...] = ()
    """The site's own command that tells by exit code 0 that the node is well; empty: a person tells."""
    release: bool = False
    """Give the node back when the check passes; else a person does (`relight nodes release`)."""
    timeout: Interval = timedelta(minutes=10)
    """The longest that one command may take."""
    tries: int = Field(default=2, ge=1, le=10)
    """So often repair and check are tried before the node is left to a person."""
    again: Interval = timedelta(minutes=30)
    """Time between two tries."""
    dry_run: bool = False
    """Only say which commands would run."""

    @field_validator("repair", "check")
    @classmethod
    def _can_run(cls, command: tuple[str, ...]) -> tuple[str, ...]:
        if command and not command[0].strip():
            raise ValueError("the first part is the program, and it is empty")
        if command and "{" in command[0]:
            raise ValueError("the program itself cannot depend on the node; only its arguments")
        names = {name for part in command for name in re.findall(r"\{(\w+)\}", part)}
        if strange := sorted(names - {"node", "cause", "recovery"}):
            raise ValueError(
                f"{{{strange[0]}}} would stay as it is; known: {{node}}, {{cause}}, {{recovery}}"
            )
        return command

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.release and not self.check:
            raise ValueError("release needs a check: without one nothing tells that the node is well")
        if self.repair and not self.check:
            raise ValueError("repair runs before the check only: without a check it would never run")
        return self


class EncryptionSettings(_Section):
    """What Temporal may read."""

    key_file: Path | None = None
    """Keys that encrypt what relight stores in Temporal, one `NAME BASE64` a line; none: it is not encrypted.
    Worker, sensors and people's commands need the same file."""

    @field_validator("key_file")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        return path.expanduser().absolute() if path is not None else None


class NotifySettings(_Section):
    """Who is told what by a webhook. Only the worker calls it, and only it needs these settings."""

    url: SecretStr = SecretStr("")
    """Where to post, `https://...`; empty: nobody is told. It is a secret: write it into a settings file that
    only the worker's account can read, or into RELIGHT_NOTIFY__URL."""
    format: Literal["json", "slack"] = "json"
    """`json`: all fields; `slack`: `{"text": ...}`, which Slack, Mattermost and others take."""
    events: tuple[Event, ...] = tuple(Event)
    """Which events are told."""
    timeout: Interval = timedelta(seconds=10)
    """The longest that one try may take."""
    ui: str = ""
    """Address of Temporal's web UI, for links: `https://temporal.example.org`."""

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: SecretStr) -> SecretStr:
        if url.get_secret_value() and not url.get_secret_value().startswith(("https://", "http://")):
            raise ValueError("it must begin with https:// or http://")
        return url


class ArchiveSettings(_Section):
    """Where records of finished recoveries are kept, beyond Temporal's retention."""

    url: str = ""
    """A directory (absolute), or an fsspec URL such as `s3://bucket/relight`; empty: none."""
    max_file: int = Field(default=64 * 1024 * 1024, ge=1)
    """Bytes of one file of a directory; a new one begins with each month, too."""

    @field_validator("url")
    @classmethod
    def _from_the_root(cls, url: str) -> str:
        if url and "://" not in url and not url.startswith(("/", "~")):
            raise ValueError("write an absolute directory, or a URL: a service runs in another directory")
        return url


class WatchdogSettings(_Section):
    """`relight watchdog`, which looks after held jobs when relight itself is gone."""

    mode: Literal["off", "report", "act"] = "report"
    """What it does about jobs that relight held longer than it said: nothing, tell, or release them too."""


class LocalSettings(_Section):
    """The `local` scheduler."""

    nodes: int = Field(default=4, ge=1, le=64)
    """How many nodes it pretends to have."""


class _Environment(EnvSettingsSource):
    """Environment variables, with lists as people write them in a shell."""

    def decode_complex_value(self, field_name: str, field: FieldInfo | None, value: Any) -> Any:
        """A list with commas, or JSON.

        Raises:
            ValueError: it is neither; names the variable.
        """
        text = str(value)
        if field is not None and get_origin(field.annotation) is tuple and not text.lstrip().startswith("["):
            return [part.strip() for part in text.split(",") if part.strip()]
        try:
            return json.loads(text)
        except ValueError as e:
            named = (
                name
                for name, is_now in os.environ.items()
                if is_now == text
                and name.upper().startswith(ENV_PREFIX)
                and name.lower().endswith(field_name)
            )
            variable = next(named, f"{ENV_PREFIX}...{field_name.upper()}")
            example = '["a", "b"]' if text.lstrip().startswith("[") else '{"name": "value"}'
            raise ValueError(f"{variable} is not JSON ({e}); write for example {example}") from e


class Settings(BaseSettings):
    """All settings of relight. `load_settings` reads them; constructed directly, no file is looked for."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True
    )

    cluster: str = Field(default="", pattern=r"^([A-Za-z0-9_][A-Za-z0-9._-]{0,63})?$")
    """This cluster's name in ids and in the web UI; empty: the scheduler's own name for it."""
    scheduler: Literal["auto", "slurm-cli", "slurm-pyslurm", "local"] = "auto"
    """`auto`: pyslurm if it is installed and works with this cluster, else Slurm's commands if they are on
    PATH, else an error that says so."""
    mode: Mode = Mode.OBSERVE
    """The mode of newly watched jobs that do not say otherwise."""
    guard: bool = True
    """Newly watched jobs ask the cluster's guard before relight changes anything, and workers run it."""
    guard_limits: GuardSettings = GuardSettings()
    task_queue: str = TASK_QUEUE
    """The queue of Temporal that workers serve; monitors and recoveries are put into it."""
    state_dir: Path = Path(platformdirs.user_state_dir("relight"))
    """Where the sensor keeps what it has read, and the local scheduler its jobs."""
    policies: dict[str, Policy] = Field(default_factory=dict)
    """Named policies beside `default`."""
    policy_file: Path | None = None
    """The policy file (YAML, `relight policy check`): named policies, who gets which, what may act where."""
    signatures: tuple[Path, ...] = ()
    """Directories with the site's own signatures (`*.yaml`) and Xid table (`xid.yaml`)."""
    sensor: SensorSettings = SensorSettings()
    node: NodeSettings = NodeSettings()
    worker: WorkerSettings = WorkerSettings()
    slurm: SlurmSettings = SlurmSettings()
    prometheus: PrometheusSettings = PrometheusSettings()
    drain: DrainSettings = DrainSettings()
    archive: ArchiveSettings = ArchiveSettings()
    local: LocalSettings = LocalSettings()
    encryption: EncryptionSettings = EncryptionSettings()
    notify: NotifySettings = NotifySettings()

    watchdog: WatchdogSettings = WatchdogSettings()

    @field_validator("state_dir")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        return path.expanduser().absolute()

    @field_validator("policy_file")
    @classmethod
    def _absolute_or_none(cls, path: Path | None) -> Path | None:
        return path.expanduser().absolute() if path is not None else None

    @field_validator("signatures")
    @classmethod
    def _all_absolute(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        return tuple(path.expanduser().absolute() for path in paths)

    @field_validator("policies", mode="before")
    @classmethod
    def _written_policies(cls, value: object) -> object:
        """Reads durations as people write them, and refuses unknown keys (a contract would ignore them)."""
        if not isinstance(value, Mapping):
            return value
        if any(not str(name).strip() for name in value):
            raise ValueError("a policy needs a name, as in [policies.patient]")
        if "never" in value:
            raise ValueError("the policy 'never' is built in (it leaves a job alone): choose another name")
        return {name: _written_policy(str(name), policy) for name, policy in value.items()}

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
        return (
            init_settings,
            _Environment(settings_cls),
            TomlConfigSettingsSource(settings_cls, _file_to_read.get()),
        )


def _written_policy(name: str, policy: object) -> object:
    if not isinstance(policy, Mapping):
        return policy
    allowed = sorted(set(Policy.model_fields) - {"name"})
    read: dict[str, object] = {}
    for key, value in policy.items():
        if key not in allowed:
            raise ValueError(f"policy {name!r} has no setting {key!r}; it may set: {', '.join(allowed)}")
        if Policy.model_fields[key].annotation is timedelta:
            try:
                value = parse_duration(value)
            except ValueError as e:
                raise ValueError(f"{key} = {value!r} of policy {name!r}: {e}") from e
        read[key] = value
    return read


@dataclass(frozen=True)
class Setting:
    """One effective setting and where it comes from."""

    key: str
    """Dotted, as in the file: `sensor.log_poll`."""
    value: Written
    """As one would write it in the file; None: nothing would be written."""
    origin: str
    """`default`, `file PATH`, `environment RELIGHT_...` or `flag`."""


def find_config_file(explicit: Path | None = None) -> Path | None:
    """The settings file, or None where there is none.

    Raises:
        ConfigError: a file was named, by `explicit` or by `RELIGHT_CONFIG`, that is not there.
    """
    named = explicit or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    if named is not None:
        if not named.is_file():
            by = "--config" if explicit else CONFIG_VARIABLE
            raise ConfigError(f"there is no settings file {named} (named by {by})")
        return named.absolute()
    places = (
        Path("relight.toml").absolute(),
        Path(platformdirs.user_config_dir("relight")) / "relight.toml",
        Path("/etc/relight/relight.toml"),
    )
    return next((place for place in places if place.is_file()), None)


def load_settings(config_file: Path | None = None, **flags: object) -> Settings:
    """Reads the settings from file, environment and `flags` (those that are None were not given).

    Raises:
        ConfigError: the file is missing or not TOML, or a setting is unknown or not allowed.
    """
    file = find_config_file(config_file)
    given: dict[str, Any] = {key: value for key, value in flags.items() if value is not None}
    token = _file_to_read.set(file)
    try:
        return Settings(**given)
    except ValidationError as e:
        origins = _origins(file, given)
        raise ConfigError("; ".join(_problem(error, origins) for error in e.errors())) from e
    except SettingsError as e:
        raise ConfigError(f"an environment variable cannot be read: {e.__cause__ or e}") from e
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise ConfigError(f"the settings file {file} is not valid TOML: {e}") from e
    except OSError as e:
        raise ConfigError(f"the settings file {file} cannot be read: {e.strerror or e}") from e
    finally:
        _file_to_read.reset(token)


def effective(settings: Settings, config_file: Path | None = None, **flags: object) -> tuple[Setting, ...]:
    """Every setting with its value and origin; arguments as for `load_settings`."""
    given = {key: value for key, value in flags.items() if value is not None}
    origins = _origins(find_config_file(config_file), given)
    values = _flat(settings.model_dump(exclude={"policies": {"__all__": {"name"}}}), ())
    return tuple(
        Setting(".".join(key), written_value(value), origins.get(key, "default"))
        for key, value in values.items()
    )


def unknown_variables() -> tuple[str, ...]:
    """`RELIGHT_*` variables of the environment that name no setting: most likely misspelt."""
    unknown = []
    for variable in os.environ:
        if not variable.upper().startswith(ENV_PREFIX) or variable in {CONFIG_VARIABLE, TOKEN_VARIABLE}:
            continue
        section, _, rest = variable[len(ENV_PREFIX) :].lower().partition("__")
        field = Settings.model_fields.get(section)
        inner = getattr(field.annotation, "model_fields", None) if field else None
        if field is None or (rest and inner is not None and rest not in inner):
            unknown.append(variable)
    return tuple(sorted(unknown))


def _origins(file: Path | None, flags: Mapping[str, object]) -> dict[tuple[str, ...], str]:
    """The origin of each setting that is not a default."""
    origins: dict[tuple[str, ...], str] = {}
    for key in _flat(TomlConfigSettingsSource(Settings, file)(), ()):
        origins[key] = f"file {file}"
    for key in _flat(_Environment(Settings)(), ()):
        origins[key] = f"environment {ENV_PREFIX}{'__'.join(key).upper()}"
    for key in _flat(dict(flags), ()):
        origins[key] = "flag"
    return origins


def _flat(tree: Mapping[str, Any], above: tuple[str, ...]) -> dict[tuple[str, ...], Any]:
    """The leaves of nested tables."""
    leaves: dict[tuple[str, ...], Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves.update(_flat(value, (*above, str(key))))
        else:
            leaves[(*above, str(key))] = value
    return leaves


def written_value(value: object) -> Written:
    """As one would write it in the settings file."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if isinstance(value, tuple | list):
        return [v if isinstance(v, int) else str(v) for v in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _problem(error: Any, origins: Mapping[tuple[str, ...], str]) -> str:
    """One validation error in words: which setting, where it was set, what is wrong."""
    key = tuple(str(part) for part in error["loc"])
    origin = origins.get(key) or next(
        (where for known, where in origins.items() if known[: len(key)] == key), "default"
    )
    if error["type"] == "extra_forbidden":
        at: Any = Settings
        for part in key[:-1]:
            at = at.model_fields[part].annotation
        message = f"no such setting; known: {', '.join(sorted(at.model_fields))}"
    else:
        message = str(error["msg"]).removeprefix("Value error, ")
        if not isinstance(error["input"], Mapping) and key not in SECRETS:
            message += f" (it is {error['input']!r})"
    return f"setting {'.'.join(key)} ({origin}): {message}"
