"""Exit codes of the `relight` command, and the errors that carry them."""

from collections.abc import Mapping
from enum import IntEnum


class ExitCode(IntEnum):
    """What a script can tell from `relight`'s exit status; `MEANINGS` has the words."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NO_TEMPORAL = 3
    NO_SCHEDULER = 4
    NOT_FOUND = 5
    REFUSED = 6
    NOT_READY = 7
    OVERDUE = 8
    INTERRUPTED = 130


MEANINGS: Mapping[ExitCode, str] = {
    ExitCode.OK: "it worked",
    ExitCode.FAILURE: "it did not, for a reason without a code of its own",
    ExitCode.USAGE: "wrong arguments or settings",
    ExitCode.NO_TEMPORAL: "Temporal does not answer",
    ExitCode.NO_SCHEDULER: "the scheduler does not answer",
    ExitCode.NOT_FOUND: "no such job, monitor or recovery",
    ExitCode.REFUSED: "refused: by a permission, by the state of things, or by the person asked",
    ExitCode.NOT_READY: (
        "Temporal answers, but no worker does, or the namespace is not set up (`relight setup`)"
    ),
    ExitCode.OVERDUE: "`relight watchdog`: a job is held for longer than relight said, and was not released",
    ExitCode.INTERRUPTED: "interrupted",
}
"""In words, for `relight --help` and the reference."""


class CommandError(Exception):
    """A command cannot go on. The message is one sentence on what is wrong, and one on what to do."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.code = code
