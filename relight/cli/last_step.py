"""The last step of a job in words: how old it is, and why an old one need not be a hang. Pure."""

from datetime import datetime, timedelta

from relight.cli.output import duration
from relight.cli.shapes import StandStill
from relight.cli.stand_still import in_words
from relight.contracts import Progress

JUST_NOW = timedelta(seconds=5)
"""A step that was seen no longer ago is shown in lists without its age."""
TOLD = "of a healthy job's steps only one is told every 30s to 5m; a hang is told at once"
"""Why a step may look old: `sensor.watch.progress_interval`."""


def step_cell(progress: Progress | None, now: datetime, still: StandStill | None = None) -> str:
    """For a list of jobs: `1234`, or `1234 (12.0s ago)` where that is more than a moment; a dash for None.

    Args:
        progress: the last that the monitor knows.
        now: the time.
        still: the job hangs, and its plan was declined.
    """
    hangs = f", stands still: {still.outcome.value}" if still is not None else ""
    if progress is None:
        return f"-{hangs}"
    age = now - progress.at
    return f"{progress.step}{hangs}" if age <= JUST_NOW else f"{progress.step} ({duration(age)} ago){hangs}"


def step_line(
    progress: Progress | None, now: datetime, *, watching: bool, still: StandStill | None = None
) -> str:
    """For one job, with its pace.

    Args:
        progress: the last that the monitor knows; None: nothing yet.
        now: the time.
        watching: nothing is suspected of the job, so the age of its step is explained.
        still: the job hangs, and its plan was declined.
    """
    hangs = f"; {in_words(still)}" if still is not None else ""
    if progress is None:
        return f"no step seen yet{hangs}"
    age = max(now - progress.at, timedelta(0))
    every = f", one step in {duration(progress.interval)}" if progress.interval else ""
    told = f" ({TOLD})" if watching and still is None and age > JUST_NOW else ""
    return f"step {progress.step}, {duration(age)} ago{every}{told}{hangs}"
