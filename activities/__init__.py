"""The steps of the runbook, one module each: each does one thing and can be run twice without harm."""

from collections.abc import Callable
from typing import Any

from activities.common import Context
from activities.logs import warm_up
from activities.runbook import Runbook
from relight.config import Settings
from relight.scheduler.port import Scheduler

__all__ = ["build", "warm_up"]


def build(scheduler: Scheduler, settings: Settings) -> list[Callable[..., Any]]:
    """All activities, for a worker: named as in the design, with the models of `relight.contracts.steps`."""
    return Runbook(Context(scheduler, settings)).all()
