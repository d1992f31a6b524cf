"""What a stage is given, and how it says what it found."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from temporalio.client import Client

from relight.cli.exit_codes import ExitCode
from relight.cli.invocation import Invocation
from relight.cli.shapes import StandStill
from relight.cli.watched import Monitor
from relight.config import Settings
from relight.contracts import JobInfo
from relight.contracts.messages import MonitorStatus
from relight.scheduler.port import Scheduler

T = TypeVar("T")


class Broken(Exception):
    """A stage is broken: what was found, and how to mend it."""

    def __init__(self, found: str, mend: str, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(found)
        self.found, self.mend, self.code = found, mend, code


@dataclass(frozen=True)
class Well:
    """A stage is in order. `note`: it works, but somebody may want to know that."""

    found: str
    note: str = ""


@dataclass
class Bench:
    """What the stages have found out so far; each later one relies on the earlier ones."""

    call: Invocation
    job_id: str = ""
    cluster: str = ""
    """By the settings, or as the scheduler calls it."""
    missing_namespace: str = ""
    """Temporal answered, but has no such namespace: in words."""
    _settings: Settings | None = field(default=None, repr=False)
    _client: Client | None = field(default=None, repr=False)
    _scheduler: Scheduler | None = field(default=None, repr=False)
    monitor: Monitor | None = None
    status: MonitorStatus | None = None
    stands_still: StandStill | None = None
    """The job hangs, and its plan was declined."""
    info: JobInfo | None = None
    """What the scheduler says of the job; None: it does not know it any more, or no job was named."""

    @property
    def settings(self) -> Settings:
        """The effective settings (after the stage `settings`)."""
        return _known(self._settings)

    @settings.setter
    def settings(self, value: Settings) -> None:
        self._settings = value

    @property
    def client(self) -> Client:
        """The connection (after the stage `Temporal`)."""
        return _known(self._client)

    @client.setter
    def client(self, value: Client) -> None:
        self._client = value

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler (after the stage `scheduler commands`)."""
        return _known(self._scheduler)

    @scheduler.setter
    def scheduler(self, value: Scheduler) -> None:
        self._scheduler = value


@dataclass(frozen=True)
class Stage:
    """One stage: its name, and the look that raises `Broken` where it is."""

    name: str
    look: Callable[[Bench], Awaitable[Well]]


def _known(value: T | None) -> T:
    if value is None:
        raise AssertionError("an earlier stage finds this out")
    return value
