"""What the checkpoint gate says: the state of each checkpoint and which one to resume from."""

from datetime import timedelta
from enum import StrEnum

from relight.contracts.base import CleanText, Model, UtcDatetime
from relight.errors import WrongRequestError


class CheckpointError(Exception):
    """The directory cannot be judged at all: missing, unreadable, or asked for in a way that cannot work.

    A damaged checkpoint is never an error: the report says so.
    """


class WronglyAsked(CheckpointError, WrongRequestError):
    """There is no such directory, layout, listing or file system: whoever asks must ask for another."""


class State(StrEnum):
    """What can be done with a checkpoint."""

    USABLE = "usable"
    INCOMPLETE = "incomplete"
    """Something that belongs to it is not there: a save that never ended, or a file that was lost."""
    CORRUPT = "corrupt"
    """A file is there, but its bytes are not what its format says they must be."""
    IN_PROGRESS = "in_progress"
    """Not whole yet, not committed, and written to a moment ago."""


class CheckpointState(Model):
    """One checkpoint."""

    name: str
    """Relative to the directory."""
    step: int | None = None
    state: State
    reason: CleanText = ""
    """Why it must not be used; empty when it is usable."""
    bytes: int = 0
    modified_at: UtcDatetime | None = None
    """When its newest file was last written."""
    age: timedelta | None = None
    """From `modified_at` to the inspection."""
    checked: CleanText = ""
    """What the state rests on: which levels were done, and where one had to stop."""
    unfinished: bool = False
    """Its save did not end, by its own framework's mark or name."""
    entries: tuple[str, ...] = ()
    """The files that it consists of, where it is several beside each other; empty: it is `name` itself."""


class Report(Model):
    """What a directory of checkpoints holds, newest step first."""

    newest_usable: str | None = None
    step: int | None = None
    """Step of `newest_usable`; None where neither its name nor its contents say."""
    layout: str
    """The recognised layout; `unknown` when none was."""
    pointer: str | None = None
    """The checkpoint that the framework's own pointer (`latest`, a tracker file, a `last` link) names."""
    pointer_disagrees: bool = False
    """The pointer names another checkpoint than `newest_usable`: the job would load something else."""
    checkpoints: tuple[CheckpointState, ...] = ()
    empty: bool = False
    """Nothing here looks like a checkpoint, good or bad."""
    summary: str
    notes: tuple[CleanText, ...] = ()
    """Limits of this inspection: what was not looked at, and why."""
