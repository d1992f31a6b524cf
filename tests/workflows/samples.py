"""Jobs, attempts and anomalies for tests of the workflows and of the policy."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from relight.contracts import (
    Anomaly,
    Attempt,
    Cause,
    Diagnosis,
    Evidence,
    JobInfo,
    JobState,
    Mode,
    Policy,
    Progress,
    Role,
    Source,
    Suspect,
    Symptom,
    TrainingJob,
)
from relight.contracts.messages import AttemptEvent, AttemptReport

T0 = datetime(2026, 12, 2, 5, 0, tzinfo=UTC)
NODES = ("n1", "n2", "n3", "n4")

QUICK = Policy(
    name="quick",
    settle=timedelta(milliseconds=200),
    approval_deadline=timedelta(minutes=5),
    confirm_window=timedelta(seconds=3),
    drain_window=timedelta(seconds=3),
    queue_window=timedelta(seconds=3),
    verify_window=timedelta(seconds=3),
    poll=timedelta(hours=1),
)
"""Short windows, and no look at the scheduler of the monitor's own unless a test wants it."""


_FIRST = 4243
_job_ids = itertools.count(_FIRST + 1)
_current = [_FIRST]


@contextmanager
def another_job() -> Iterator[None]:
    """Makes samples be about another job: tests on one server must not share workflow ids."""
    _current[0] = next(_job_ids)
    yield
    _current[0] = _FIRST


def attempt(restart: int = 0, job_id: str = "", submitted: datetime | None = None) -> Attempt:
    at = submitted or T0 + timedelta(minutes=10 * restart)
    return Attempt(cluster="lab", job_id=job_id or str(_current[0]), submit_time=at, restart_count=restart)


def job(mode: Mode = Mode.ACT, policy: Policy = QUICK, **fields: Any) -> TrainingJob:
    defaults: dict[str, Any] = {
        "cluster": "lab",
        "run": "train",
        "attempt": attempt(),
        "user": "ada",
        "nodes": NODES,
        "tasks_per_node": 1,
        "checkpoint_dir": "/checkpoints",
    }
    return TrainingJob(mode=mode, policy=policy, **(defaults | fields))


def anomaly(name: str = "a1", restart: int = 0, step: int | None = 120, **fields: Any) -> Anomaly:
    node = fields.pop("node", None)
    source = fields.pop("source", Source.JOB_LOG)
    text = fields.pop("text", "RuntimeError: boom")
    defaults: dict[str, Any] = {
        "anomaly_id": name,
        "attempt": attempt(restart),
        "symptom": Symptom.CRASH,
        "cause": Cause.USER_CODE,
        "role": Role.ROOT,
        "occurred_at": T0 + timedelta(minutes=5),
        "detected_at": T0 + timedelta(minutes=5, seconds=1),
        "detector": "test",
        "evidence": (
            Evidence(
                source=source, observed_at=T0, text=text, node=node, signature="python_exception",
            ),
        ),
        "suspects": (Suspect(node=node, because="it says so"),) if node else (),
        "hold_out": node is not None,
        "key": "train.py:12",
        "progress": Progress(step=step, at=T0 + timedelta(minutes=4)) if step is not None else None,
    }  # fmt: skip
    return Anomaly(**(defaults | fields))


def hang_at_start(name: str = "h1", restart: int = 0) -> Anomaly:
    """As the sensor tells it of an attempt that has made no step."""
    return anomaly(
        name, restart, step=None, symptom=Symptom.HANG, cause=Cause.UNKNOWN, key="",
        detector="no-first-step", text="no step yet, and nothing was written to the log for 1800 s",
        evidence=(Evidence(source=Source.JOB_LOG, observed_at=T0, text="no step yet"),),
    )  # fmt: skip


def diagnosis(**fields: Any) -> Diagnosis:
    step = fields.pop("step", 120)
    nodes = fields.pop("nodes", ())
    defaults: dict[str, Any] = {
        "symptom": Symptom.CRASH,
        "cause": Cause.USER_CODE,
        "retryable": True,
        "suspects": tuple(Suspect(node=node) for node in nodes),
        "explanation": "a rank raised RuntimeError",
        "anomaly_ids": ("a1",),
        "root_key": "train.py:12",
        "occurred_at": T0,
        "detected_at": T0,
        "progress": Progress(step=step, at=T0) if step is not None else None,
    }
    return Diagnosis(**(defaults | fields))


def report(event: AttemptEvent | str, restart: int = 0, **fields: Any) -> AttemptReport:
    step = fields.pop("step", None)
    defaults: dict[str, Any] = {
        "attempt": attempt(restart),
        "event": AttemptEvent(event),
        "at": T0 + timedelta(minutes=6),
        "progress": Progress(step=step, at=T0 + timedelta(minutes=6, seconds=step)) if step else None,
    }
    return AttemptReport(**(defaults | fields))


def info(state: JobState = JobState.RUNNING, restart: int = 0, **fields: Any) -> JobInfo:
    it = attempt(restart)
    defaults: dict[str, Any] = {
        "job_id": it.job_id,
        "submit_time": it.submit_time,
        "restart_count": restart,
        "state": state,
        "nodes": NODES,
        "num_nodes": len(NODES),
    }
    return JobInfo(**(defaults | fields))
