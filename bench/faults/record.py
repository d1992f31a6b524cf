"""What is noted of one run, raw; a line of the suite's JSONL file."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from relight.contracts import RecoveryOutcome
from relight.contracts.base import UtcDatetime
from relight.contracts.messages import EndReason


class StepTime(BaseModel):
    """One step of a recovery, from Temporal's history."""

    model_config = ConfigDict(frozen=True)

    step: str
    scheduled: UtcDatetime
    started: UtcDatetime | None = None
    """A worker began its last try; None: none did, or it was not noted (results before 2026-12-03)."""
    tries: int = 0
    """So often a worker began it; 0: as above."""
    ended: UtcDatetime


class Span(BaseModel):
    """A wait."""

    model_config = ConfigDict(frozen=True)

    began: UtcDatetime
    ended: UtcDatetime


class Recovery(BaseModel):
    """One recovery: its end as relight tells it, and its steps."""

    model_config = ConfigDict(frozen=True)

    recovery_id: str
    outcome: RecoveryOutcome | None = None
    """None: it was still open when the suite looked last."""
    state: str = ""
    """Of an open one."""
    told: UtcDatetime | None = None
    """The sensor's word of the fault reached the monitor; None: it did not, or it was not noted."""
    began: UtcDatetime | None = None
    """The recovery's workflow started; None: it was not noted (results before 2026-12-03)."""
    permit: Span | None = None
    """From the first question to the guard until it said yes; None: it did not, or it was not noted."""
    steps: tuple[StepTime, ...] = ()

    def seconds(self, step: str) -> float:
        """How long a step took, over all its tries; 0 if there was none."""
        return sum((s.ended - s.scheduled).total_seconds() for s in self.steps if s.step == step)


class Run(BaseModel):
    """One job, one fault."""

    model_config = ConfigDict(frozen=True)

    scenario: str
    number: int
    began: UtcDatetime
    jobs_at_once: int
    load: float = 0.0
    """Of the machine in the minute before the fault: processes that run or want to."""
    job_id: str = ""
    victim: str = ""
    start_seconds: float = 0.0
    """From the job's submission to its first steps: what starting costs here."""
    healthy_seconds: float = 0.0
    """Training in which nothing was wrong."""
    false_alarms: tuple[Recovery, ...] = ()
    """Recoveries that were started in that time."""
    fault_at: UtcDatetime | None = None
    fault_step: int = 0
    recoveries: tuple[Recovery, ...] = ()
    """Oldest first."""
    asked_at: UtcDatetime | None = None
    """A plan waited for a person."""
    approved_at: UtcDatetime | None = None
    first_steps: tuple[UtcDatetime, ...] = ()
    """The end of the first step of each attempt, as the training noted it; none in results before
    2026-12-03."""
    restarts: int = 0
    """As Slurm counts them."""
    job_state: str = ""
    last_step: int = 0
    """Of any attempt."""
    trains: bool = False
    """Step lines came after the fault, beyond the step that it happened at."""
    end: EndReason | None = None
    """Of the monitor."""
    end_detail: str = ""
    noticed: tuple[str, ...] = ()
    missed: int = 0
    """Faults that only the monitor's own look found."""
    log_tail: str = ""
    """Of the job's log, where something was not as it should be."""
    problem: str = ""
    """Something went wrong with the suite itself: the run tells nothing about relight."""

    @property
    def outcomes(self) -> tuple[RecoveryOutcome, ...]:
        """Of the recoveries that ended."""
        return tuple(r.outcome for r in self.recoveries if r.outcome is not None)


def read_runs(path: Path) -> list[Run]:
    """All runs of a JSONL file; none where there is no such file."""
    if not path.exists():
        return []
    return [Run.model_validate_json(line) for line in path.read_text().splitlines() if line.strip()]
