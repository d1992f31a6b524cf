"""What the sensor's tests are made of: one job, readings, views and a clock that the test moves."""

from datetime import UTC, datetime, timedelta
from typing import Any

from relight.contracts import (
    Anomaly,
    Attempt,
    Cause,
    JobInfo,
    JobState,
    NodeInfo,
    Policy,
    Role,
    Symptom,
    TrainingJob,
)
from relight.contracts.messages import AttemptReport
from relight.diagnosis.findings import Event, Finding, StepLine
from sensor.memory import Memory
from sensor.messages import REPORT_ANOMALY, Message
from sensor.reading import Reading, Seen
from sensor.view import View
from sensor.watch import JobWatch

START = datetime(2026, 12, 2, 5, 0, tzinfo=UTC)
ATTEMPT = Attempt(cluster="lab", job_id="42", submit_time=START, restart_count=0)
NODES = ("node01", "node02")
JOB = TrainingJob(
    cluster="lab",
    run="train",
    attempt=ATTEMPT,
    log_paths=("/logs/train.log",),
    policy=Policy(hang_floor=timedelta(seconds=4), hang_factor=3.0),
)
LOG = "/logs/train.log"


def info(state: JobState = JobState.RUNNING, **more: Any) -> JobInfo:
    """What the scheduler says of the job."""
    fields: dict[str, Any] = {
        "job_id": "42",
        "state": state,
        "submit_time": START,
        "start_time": START,
        "nodes": NODES if state is not JobState.PENDING else (),
        "std_out": LOG,
    }
    return JobInfo(**{**fields, **more})


def requeued(state: JobState = JobState.PENDING, **more: Any) -> JobInfo:
    """The same job, one attempt later."""
    later = START + timedelta(seconds=60)
    return info(state, **{"restart_count": 1, "submit_time": later, "start_time": None, **more})


def step(number: int, *, offset: int = 0, loss: float | None = None) -> StepLine:
    return StepLine(step=number, file=LOG, line=number, offset=offset or number * 100, loss=loss)


def finding(signature: str = "python.exception", **more: Any) -> Finding:
    """A line that ends a rank, unless told otherwise."""
    fields: dict[str, Any] = {
        "role": Role.ROOT,
        "symptom": Symptom.CRASH,
        "cause": Cause.USER_CODE,
        "file": LOG,
        "line": 7,
        "offset": 700,
        "text": "RuntimeError: boom",
        "ends_rank": True,
        "rank": 3,
        "node": "node02",
    }
    return Finding(signature=signature, **{**fields, **more})


class Scene:
    """A watch over the job; the clock and the scheduler are as the test says."""

    def __init__(self, memory: Memory | None = None, job: TrainingJob = JOB) -> None:
        self.errors: list[tuple[str, Exception]] = []
        self.watch = JobWatch("job:lab:42:1", job, memory, lambda part, e: self.errors.append((part, e)))
        self.now = START + timedelta(seconds=1)
        self.says: JobInfo | None = info()
        self.nodes: dict[str, NodeInfo] | None = {n: NodeInfo(name=n, state="ALLOCATED") for n in NODES}
        self.reachable = True
        self.view = View(asked_at=START - timedelta(days=1), reachable=False)
        self.behind = False
        self.troubles: dict[str, str] = {}
        self.files = 1
        self.messages: list[Message] = []

    def ask(self) -> None:
        """The scheduler is asked now."""
        if not self.reachable:
            self.view = View(asked_at=self.now, reachable=False)
            return
        jobs = {self.says.job_id: self.says} if self.says is not None else {}
        self.view = View(asked_at=self.now, jobs=jobs, nodes=self.nodes)

    def tick(
        self,
        *events: Event,
        after: float = 0.25,
        ask: bool = True,
        historic: bool = False,
        grew: bool = False,
        written: datetime | None = None,
    ) -> list[Message]:
        """Some time later these lines are read; `written` is given of those that nobody saw come."""
        self.now += timedelta(seconds=after)
        if ask:
            self.ask()
        reading = Reading(
            began=self.now,
            seen=[
                Seen(event, self.now, historic, timed=written is None, written=written) for event in events
            ],
            behind=self.behind,
            files=self.files,
            grew=grew,
            troubles=self.troubles,
        )
        messages = self.watch.advance(reading, self.view, self.now)
        assert self.errors == []
        self.messages += messages
        return messages

    def train(self, first: int = 1, last: int = 10, every: float = 0.5) -> None:
        """Steps come, one by one."""
        for number in range(first, last + 1):
            self.tick(step(number), after=every)

    def anomalies(self) -> list[Anomaly]:
        """All that were told. What was told before is not sent again, as the store sees to."""
        told = [Anomaly.model_validate_json(m.payload) for m in self.messages if m.signal == REPORT_ANOMALY]
        first: dict[str, Anomaly] = {}
        for a in told:
            first.setdefault(a.anomaly_id, a)
        return list(first.values())

    def reports(self) -> list[AttemptReport]:
        """All that were told."""
        return [
            AttemptReport.model_validate_json(m.payload) for m in self.messages if m.signal != REPORT_ANOMALY
        ]

    def restart(self) -> "Scene":
        """The sensor is killed and starts again from what was saved."""
        again = Scene(Memory.model_validate_json(self.watch.memory.model_dump_json()), self.watch.job)
        again.now, again.says, again.nodes, again.reachable = self.now, self.says, self.nodes, self.reachable
        again.messages = list(self.messages)
        return again
