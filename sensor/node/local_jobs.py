"""Which jobs have processes on this node, by the control groups that Slurm makes for them.

To ask slurmctld for the jobs of a node costs it the list of all jobs. When a thousand nodes have something to
tell in the same second (a file server, a switch), that is too much; a question about one job costs little.
"""

import re
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
_ROOTS = (
    "system.slice/*slurmstepd.scope",  # version 2
    "freezer/slurm*",  # version 1, by proctrack/cgroup
)
_LEVELS = ("job_*", "uid_*/job_*")
_JOB = re.compile(r"job_(\d{1,10})")
MOST_JOBS = 100
REMEMBERED = 60.0
"""Seconds for which a job that has ended is still counted: what it died of may be seen only now."""


class LocalJobs:
    """Looks again and again, and remembers for a while."""

    def __init__(self, cgroups: Path = CGROUPS) -> None:
        self._cgroups = cgroups
        self._seen_at: dict[str, float] = {}

    def look(self, now: float) -> tuple[str, ...] | None:
        """The ids of the jobs that are here now or were just before.

        Args:
            now: seconds of a clock that only goes forward.

        Returns:
            None where nobody can tell: Slurm makes no control groups here, or too many to be true.
        """
        roots = [path for pattern in _ROOTS for path in self._cgroups.glob(pattern) if path.is_dir()]
        if not roots:
            return None
        self._seen_at |= {job: now for root in roots for job in _jobs(root)}
        self._seen_at = {job: at for job, at in self._seen_at.items() if now - at <= REMEMBERED}
        return tuple(sorted(self._seen_at)) if len(self._seen_at) <= MOST_JOBS else None


def _jobs(root: Path) -> Iterator[str]:
    for level in _LEVELS:
        for path in root.glob(level):
            if (m := _JOB.fullmatch(path.name)) is not None:
                yield m[1]
