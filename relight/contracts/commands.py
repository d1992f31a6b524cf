"""Commands that change something in the scheduler, as an activity gave them and as it was answered."""

from relight.contracts.base import CleanText, Model, UtcDatetime


class CommandGiven(Model):
    """One changing command. Operations are named as in the port `relight.scheduler.port.Scheduler`."""

    operation: str
    arguments: tuple[CleanText, ...] = ()
    at: UtcDatetime
    """When it was given."""
    accepted: bool | None = None
    """None: the scheduler did not answer, so it may have acted or not."""
    answer: CleanText = ""
    """What came back, where that says more than `accepted`: the new job's id, or the refusal."""


class CommandsGiven(Model):
    """The commands of a step that failed: the last of its error's details."""

    commands: tuple[CommandGiven, ...] = ()
