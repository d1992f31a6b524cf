"""What Slurm's commands say when they fail, as the port's errors.

The texts are those of slurm_strerror(3) and of the commands themselves; they have kept their wording from
Slurm 22.05 to 25.11.
"""

import re

from relight.contracts import clean_text
from relight.scheduler.port import (
    InvalidRequest,
    NoSuchJob,
    NoSuchNode,
    NotPermitted,
    NotSupported,
    SchedulerError,
    SchedulerUnreachable,
)

# The first that matches counts: that no answer came outweighs what a command concluded from it.
_MEANINGS: tuple[tuple[type[SchedulerError], re.Pattern[str]], ...] = tuple(
    (error, re.compile(pattern, re.IGNORECASE))
    for error, pattern in (
        (
            SchedulerUnreachable,
            r"unable to contact slurm|connection (?:refused|reset)|timed out|zero bytes were transmitted"
            r"|no route to host|network is unreachable|connection failure|unable to create socket"
            r"|authentication (?:error|credential)|munge (?:en|de)code failed|unexpected message received"
            r"|unable to process configuration|could not establish a configuration|cannot stat file"
            r"|standby mode|temporarily un(?:able|available)|rate limit|problem talking to the database",
        ),
        (NoSuchJob, r"invalid job id specified"),
        (NoSuchNode, r"invalid node name specified"),
        (InvalidRequest, r"individual component of heterogeneous job"),
        (
            NotPermitted,
            r"access/permission denied|invalid user id|operation not permitted|permission denied"
            r"|only permitted by|user not found on host|must be root",
        ),
        (
            NotSupported,
            r"accounting storage is disabled|unrecognized option|invalid option|not supported"
            r"|invalid field requested",
        ),
        (
            InvalidRequest,
            r"no longer pending execution|is pending execution|presently disabled|already finished"
            r"|already completing|invalid|illegal|not available|too long|violates|denied|unable to open file"
            r"|batch script|not batch|exceeds|more processors requested|required node",
        ),
    )
)


def meaning(asked: str, said: str) -> SchedulerError:
    """The error that a failed command means.

    Args:
        asked: the command, for the message.
        said: what it printed to standard error.
    """
    kind = next((error for error, pattern in _MEANINGS if pattern.search(said)), SchedulerError)
    return kind(f"{asked}: {clean_text(said) or 'failed and did not say why'}")
