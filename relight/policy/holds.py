"""How long relight holds a job, and what becomes of a hold that nobody ended. Pure."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum

from relight.contracts import JobInfo, JobState, Model, Policy, UtcDatetime

SLACK = timedelta(hours=6)
"""How long a recovery's steps may wait for a scheduler that is away, beside what a policy bounds."""
REQUEUED_HELD = "job_requeued_in_held_state"
"""Slurm's reason after `scontrol requeuehold`. `scontrol hold` gives the reason JobHeldUser or JobHeldAdmin,
but leaves no trace on a job that is requeued and held already (seen on 22.05): that hold cannot be told."""
LAUNCH_FAILED = "launch_failed_requeued_held"
"""Slurm's reason where it could not start the job: the prolog failed on a node (then that one is drained),
or slurmd could not set the script up. It has requeued the job by then, and holds it (seen on 22.05)."""


def could_not_start(info: JobInfo) -> bool:
    """The scheduler tried to start this attempt, could not, and holds it now."""
    return info.state is JobState.PENDING and info.held and info.reason == LAUNCH_FAILED


class Tag(Model):
    """Relight's mark in a job's comment."""

    recovery_id: str
    held: str = ""
    """Why the job is held; empty: it is not, or nobody could write it down."""
    until: UtcDatetime | None = None
    """When relight will have ended the hold at the latest; None: not written down."""
    person: bool = False
    """The hold waits for a person: relight itself will not end it."""


class Overdue(StrEnum):
    """What the watchdog may do about a hold past its deadline."""

    RELEASE = "release"
    """Let the job start: relight requeued and held it on its way to a restart, and is gone."""
    REPORT = "report"
    """Only tell of it."""


def hold_deadline(policy: Policy, begins: datetime) -> datetime:
    """When a hold that begins now has ended if relight lives: released, or left to a person."""
    whole = begins + policy.drain_window + policy.approval_deadline + SLACK
    return whole.astimezone(UTC).replace(microsecond=0)


def overdue(info: JobInfo, tag: Tag, now: datetime) -> tuple[Overdue, str] | None:
    """What to do about this job, and why; None: it is not held, or its hold may still last.

    A job's comment belongs to its user. So a job is released only where Slurm's own reason says that it was
    requeued and held, and where the mark names this very job in the attempt before this one.
    """
    if not info.held or info.state is not JobState.PENDING:
        return None
    if tag.until is None:
        return Overdue.REPORT, "its mark has no deadline"
    if now < tag.until:
        return None
    if tag.person:
        return Overdue.REPORT, "it waits for a person"
    if info.reason != REQUEUED_HELD:
        return Overdue.REPORT, f"its reason is {info.reason or 'not known'}: somebody else may hold it, too"
    if not _is_about(tag.recovery_id, info):
        return Overdue.REPORT, "its mark is that of another job or attempt"
    return Overdue.RELEASE, "relight held it on its way to a restart, and did not come back to it"


def _is_about(recovery_id: str, info: JobInfo) -> bool:
    """The recovery is one of the attempt before: `recover:CLUSTER:JOB:RESTART:ANOMALY`."""
    parts = recovery_id.split(":")
    return len(parts) == 5 and parts[2:4] == [info.job_id, str(info.restart_count - 1)]
