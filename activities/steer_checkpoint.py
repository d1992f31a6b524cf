"""Leads a job to the checkpoint that can be used: by its framework's pointer file, or by moving others aside.

It changes names and one small file under the run's checkpoint directory, and deletes nothing.
"""

import asyncio

from temporalio.exceptions import ApplicationError

from activities.common import (
    Context,
    attempt_changed,
    heartbeats,
    in_words,
    read_job,
    refused,
    relate,
    scheduler_errors,
)
from activities.inside import Inside, OutsideError
from activities.locate_checkpoint import UNREADABLE, look
from activities.logs import owner_of_files
from relight.checkpoints.own_choice import in_the_way, own_choice, usable
from relight.checkpoints.report import CheckpointError, CheckpointState, Report
from relight.contracts import JobState
from relight.contracts.policy import Steer
from relight.contracts.steps import SteerInput, SteerResult
from relight.policy.attempts import Relation
from relight.policy.steering import pointer_content, pointer_file
from relight.scheduler.port import NoSuchJob

MAX_CHANGES = 20
"""Changes named in a result, which must stay small."""


async def steer_checkpoint(context: Context, given: SteerInput) -> SteerResult:
    """Looks at the checkpoints again, and changes what makes the job load another one than the usable one.

    Run again, it finds nothing left to change, and tells what an earlier try did.

    Raises:
        ApplicationError: `AttemptChanged` when the job is not out of the way any more; `Refused` when the
            checkpoint cannot be used any more, or the job cannot be led to it; `CheckpointsUnreadable` (may
            be tried again); `SchedulerUnreachable`.
    """
    async with heartbeats():
        with scheduler_errors():
            await _check_attempt(context, given)
        try:
            return await asyncio.to_thread(_steer, given)
        except (OutsideError, PermissionError, ValueError) as error:
            raise refused(f"the job cannot be led to {given.checkpoint.name}: {error}") from error
        except (CheckpointError, OSError) as error:
            text = f"the job could not be led to {given.checkpoint.name}: {error}"
            raise ApplicationError(text, type=UNREADABLE) from error


async def _check_attempt(context: Context, given: SteerInput) -> None:
    """Nothing may be moved under a job that runs."""
    try:
        info = await read_job(context.scheduler, given.attempt.job_id)
    except NoSuchJob:  # it ended long ago, and is to be submitted anew
        return
    waits = info.state in (JobState.PENDING, JobState.COMPLETING) or info.state.is_over
    if relate(info, given.attempt) is not Relation.SAME or not waits:
        raise attempt_changed(
            f"job {info.job_id} was expected off its nodes in attempt {given.attempt.label}, but is "
            f"{in_words(info)}; nothing was changed"
        )


def _steer(given: SteerInput) -> SteerResult:
    directory = given.job.checkpoint_dir or ""
    if not directory.startswith("/"):
        raise OutsideError(f"{directory or 'no directory'} is not in a file system")
    report = look(given.job, directory, given.diverged_from)
    best = usable(report, given.diverged_from)
    if best is None or best.name != given.checkpoint.name:
        now = f"{best.name} is" if best else "none is"
        raise OutsideError(f"it is not the newest usable checkpoint any more: {now} ({report.summary})")
    with Inside.open(directory, owner_of_files(given.job)) as inside:
        steering = _Steering(inside, report, best, given)
        if own_choice(report, best, given.diverged_from) is not None:
            if given.job.policy.steer is Steer.POINTER or pointer_file(report.layout, report.pointer):
                steering.set_pointer()
            if given.job.policy.steer is Steer.MOVE_ASIDE:
                steering.move_aside()
        return steering.result()


class _Steering:
    """What is done for one recovery in one checkpoint directory."""

    def __init__(self, inside: Inside, report: Report, best: CheckpointState, given: SteerInput) -> None:
        self._inside, self._report, self._best, self._given = inside, report, best, given
        name = "".join(c if c.isalnum() else "-" for c in given.recovery_id)[:120]
        above = best.name.rpartition("/")[0]
        self._prefix = f"{above}/" if above else ""
        self._mark = f"relight-{name}"
        self._file = pointer_file(report.layout, report.pointer)
        self._pointer = self._prefix + self._file

    def set_pointer(self) -> None:
        """Lets the framework's pointer file name the checkpoint; its old content stays beside it."""
        wanted = pointer_content(self._report.layout, self._best.name, self._best.step)
        old = self._inside.read(self._pointer)
        if old is not None and old.strip() == wanted:
            return
        if old is not None and not self._inside.exists(self._kept):
            self._inside.write(self._kept, old, like=self._pointer)
        self._inside.write(self._pointer, wanted, like=self._pointer)

    def move_aside(self) -> None:
        """Moves every checkpoint that the job could take by mistake into a directory beside them."""
        for state in in_the_way(self._report, self._best, self._given.diverged_from):
            for entry in state.entries or (state.name,):
                self._inside.move(entry, f"{self._aside}/{entry.removeprefix(self._prefix)}")

    def result(self) -> SteerResult:
        """What was changed, as it is found now: by this try or an earlier one."""
        changed = []
        if self._file:
            old = self._inside.read(self._kept)
            if old is not None:
                new = (self._inside.read(self._pointer) or "").strip()
                changed.append(f"{self._pointer}: {old.strip()} -> {new} (old content in {self._kept})")
        changed += [
            f"{self._prefix}{path} -> {self._aside}/{path}"
            for name in self._inside.names(self._aside)
            for path in self._moved(name)
        ]
        text = "; ".join(changed[:3]) if changed else "nothing had to be changed"
        more = f"; and {len(changed) - 3} more" if len(changed) > 3 else ""
        return SteerResult(
            changed=tuple(changed[:MAX_CHANGES]), summary=f"{text}{more}: the job loads {self._best.name}"
        )

    def _moved(self, name: str) -> list[str]:
        """A directory that others are left in was not moved: files in it were."""
        if not self._inside.exists(self._prefix + name):
            return [name]
        try:
            return [f"{name}/{file}" for file in self._inside.names(f"{self._aside}/{name}")]
        except OutsideError:  # a file, and the job has saved one of that name again
            return [name]

    @property
    def _aside(self) -> str:
        return self._prefix + self._mark

    @property
    def _kept(self) -> str:
        return f"{self._pointer}.{self._mark}"
