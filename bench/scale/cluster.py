"""A simulated Slurm cluster: its jobs and nodes, and what Slurm's commands print of them. No I/O, no clock.

It knows the commands that relight's adapter `slurm-cli` gives, and prints as Slurm 22.05 does
(`tests/data/slurm/22.05`). A job runs on one node of its own; a released job starts after a moment, resumes a
few steps before the one it failed at and trains on.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import hostlist

from relight.scheduler import slurm_text

CLUSTER = "simulated"
VERSION = "22.05.8"
START_DELAY = timedelta(seconds=1)
"""From a job's release to its start; Slurm's scheduler looks about once a second, too."""
REWIND = 3
"""Steps that a new attempt trains again."""
CATCH_UP = timedelta(seconds=1)
"""Interval of these steps. They are as quick as that so that the proof of a resume need not wait for long."""


class Refused(Exception):
    """The command fails with this message."""


@dataclass
class Job:
    """One job of the cluster."""

    number: int
    log: str
    submitted: datetime
    started: datetime | None
    state: str = "RUNNING"
    reason: str = "None"
    restarts: int = 0
    held: bool = False
    comment: str = ""
    excluded: str = ""
    ended: datetime | None = None
    exit_status: int = 0
    starts_at: datetime | None = None
    step: int = 0
    next_step: datetime | None = None
    failed_step: int = 0
    cells: tuple[str, ...] | None = None
    """Its row of `JOB_FIELDS`, until it changes."""

    @property
    def node(self) -> str:
        """Where it runs."""
        return f"node{self.number:05d}"

    def row(self) -> tuple[str, ...]:
        """Its row of `slurm_text.JOB_FIELDS`."""
        if self.cells is None:
            values = self._values()
            self.cells = tuple(values[field] for field in slurm_text.JOB_FIELDS)
        return self.cells

    def _values(self) -> dict[str, str]:
        pending = self.state == "PENDING"
        return {
            "JobID": str(self.number),
            "JobArrayID": str(self.number),
            "ArrayJobID": str(self.number),
            "ArrayTaskID": "N/A",
            "Name": f"train-{self.number}",
            "UserName": user(self.number),
            "Partition": "main",
            "Account": "(null)",
            "State": self.state,
            "Reason": self.reason,
            "RestartCnt": str(self.restarts),
            "SubmitTime": _stamp(self.submitted),
            "StartTime": _stamp(self.started),
            "EndTime": _stamp(self.ended),
            "EligibleTime": _stamp(self.submitted),
            "TimeLimit": "UNLIMITED",
            "NodeList": "" if pending else self.node,
            "NumNodes": "1",
            "NumTasks": "8",
            "NTPerNode": "8",
            "PriorityLong": "0" if self.held else "4294901000",
            "Requeue": "1",
            "BatchFlag": "1",
            "exit_code": str(self.exit_status << 8),
            "StdOut": self.log,
            "StdErr": self.log,
            "WorkDir": "/tmp",
            "tres-alloc": "cpu=8,node=1,gres/gpu=8",
            "tres-per-node": "gres:gpu:8",
            "Comment": self.comment or "(null)",
        }


def user(number: int) -> str:
    """Whose job it is: ten jobs a user, so that the guard's limit for one user does not decide."""
    return f"user{number // 10:04d}"


def _stamp(time: datetime | None) -> str:
    return "N/A" if time is None else f"{time:%Y-%m-%dT%H:%M:%S}"


class Cluster:
    """The state, and the commands that read and change it.

    Args:
        count: jobs, which all run.
        logs: directory of their logs.
        interval: from one step of a job to its next.
        now: the time, UTC.
        write: appends a text to a log.
    """

    def __init__(
        self, count: int, logs: str, interval: timedelta, now: datetime, write: Callable[[str, str], None]
    ) -> None:
        self._interval = interval
        self._write = write
        self.calls: Counter[str] = Counter()
        self.jobs = {}
        for number in range(1, count + 1):
            job = Job(number, f"{logs}/{number}.log", submitted=now, started=now)
            # Jobs do not print in step with each other.
            job.next_step = now + interval * (number % 97) / 97
            self.jobs[number] = job

    # ---- what happens --------------------------------------------------------------------------------------

    def tick(self, now: datetime) -> None:
        """Starts what is due, and trains."""
        for job in self.jobs.values():
            if job.starts_at is not None and now >= job.starts_at:
                self._start(job, now)
            if job.next_step is not None and now >= job.next_step:
                self._train(job, now)

    def _start(self, job: Job, now: datetime) -> None:
        job.starts_at = None
        job.state, job.reason, job.started, job.ended = "RUNNING", "None", now, None
        job.step = max(0, job.step - REWIND)
        job.next_step = now + CATCH_UP
        job.cells = None

    def _train(self, job: Job, now: datetime) -> None:
        job.step += 1
        behind = job.step <= job.failed_step + 1
        job.next_step = now + (CATCH_UP if behind else self._interval)
        ms = self._interval.total_seconds() * 1e3
        self._write(
            job.log,
            f" [{now:%Y-%m-%d %H:%M:%S}] iteration {job.step:8d}/ 5000000 | consumed samples: "
            f"{job.step * 512:12d} | elapsed time per iteration (ms): {ms:.1f} | learning rate: 1.4E-04 | "
            "global batch size:   512 | lm loss: 2.400000E+00 | grad norm: 0.410 |\n",
        )

    def fail(self, numbers: Iterable[int], now: datetime) -> None:
        """These jobs fail now, with exit code 1 and nothing in their logs."""
        for number in numbers:
            job = self.jobs[number]
            job.state, job.reason, job.ended = "FAILED", "NonZeroExitCode", now
            job.exit_status, job.next_step, job.failed_step, job.cells = 1, None, job.step, None

    # ---- commands ------------------------------------------------------------------------------------------

    def run(self, program: str, args: Sequence[str], now: datetime) -> str:
        """What the command prints.

        Raises:
            Refused: it fails, with this message.
        """
        match program, list(args):
            case "squeue", options:
                return self._squeue(options)
            case "sinfo", options:
                return self._sinfo(options)
            case "scontrol", ["show", "config"]:
                return f"ClusterName = {CLUSTER}\nSLURM_VERSION = {VERSION}\n"
            case "scontrol", ["write", "batch_script", _, "-"]:
                return "#!/bin/sh\nsrun python train.py\n"
            case "scontrol", ["requeuehold", job]:
                return self._requeue_hold(self._job(job), now)
            case "scontrol", ["hold", job]:
                return self._hold(self._job(job))
            case "scontrol", ["release", job]:
                return self._release(self._job(job), now)
            case "scontrol", ["update", what, *changes] if what.startswith("JobId="):
                return self._update(self._job(what.partition("=")[2]), changes)
            case "sacct", _:
                raise Refused("Slurm accounting storage is disabled")
        raise Refused(f"the simulated cluster knows no {program} {' '.join(args)}")

    def _job(self, text: str) -> Job:
        job = self.jobs.get(int(text)) if text.isdecimal() else None
        if job is None:
            raise Refused("slurm_load_jobs error: Invalid job id specified")
        return job

    def _squeue(self, options: Sequence[str]) -> str:
        given = _options(options)
        chosen: Iterable[Job] = self.jobs.values()
        if ids := given.get("--jobs"):
            chosen = [self.jobs[n] for text in ids.split(",") if (n := int(text)) in self.jobs]
        if node := given.get("--nodelist"):
            chosen = [job for job in self.jobs.values() if job.node == node]
        if "--format" in given:
            sep = given["--format"].removeprefix("%i").partition("%x")[0]
            lines = [
                f"JOBID{sep}EXC_NODES{sep}",
                *(f"{job.number}{sep}{job.excluded}{sep}" for job in chosen),
            ]
            return "\n".join(lines) + "\n"
        fields, sep = _format(given["--Format"])
        if tuple(fields) == slurm_text.JOB_FIELDS:
            rows: Iterable[Sequence[str]] = (job.row() for job in chosen)
        else:
            rows = (_some(job, fields) for job in chosen)
        return _table(fields, rows, sep)

    def _sinfo(self, options: Sequence[str]) -> str:
        given = _options(options)
        fields, sep = _format(given["--Format"])
        known = {job.node: job for job in self.jobs.values()}
        names = hostlist.expand_hostlist(given["--nodes"]) if "--nodes" in given else known
        rows = []
        for name in names:
            if name in known:
                state = "mixed" if known[name].state == "RUNNING" else "idle"
                rows.append((name, state, "none", "Unknown"))
        return _table(fields, rows, sep)

    def _requeue_hold(self, job: Job, now: datetime) -> str:
        if job.state == "PENDING":
            raise Refused("Job is pending execution")
        job.state, job.reason, job.held = "PENDING", "job_requeued_in_held_state", True
        job.restarts += 1
        job.submitted, job.started, job.ended, job.exit_status = now, None, None, 0
        job.next_step, job.failed_step, job.cells = None, max(job.step, job.failed_step), None
        return ""

    def _hold(self, job: Job) -> str:
        job.held, job.cells = True, None
        return ""

    def _release(self, job: Job, now: datetime) -> str:
        if job.held and job.state == "PENDING":
            job.held, job.reason, job.starts_at, job.cells = False, "None", now + START_DELAY, None
        return ""

    def _update(self, job: Job, changes: Sequence[str]) -> str:
        for change in changes:
            name, _, value = change.partition("=")
            match name:
                case "Comment":
                    job.comment = value
                case "ExcNodeList":
                    job.excluded = value
                case "StartTime":
                    pass
                case _:
                    raise Refused(f"the simulated cluster cannot change {name}")
        job.cells = None
        return ""


def _options(args: Sequence[str]) -> dict[str, str]:
    return {name: value for name, _, value in (arg.partition("=") for arg in args)}


def _format(option: str) -> tuple[list[str], str]:
    """The fields of `-O`, and the separator that follows each of them."""
    parts = [part.partition(":") for part in option.split(",")]
    return [name for name, _, _ in parts], parts[0][2]


def _table(fields: Sequence[str], rows: Iterable[Sequence[str]], sep: str) -> str:
    end = sep + "\n"
    return end.join([sep.join(field.upper() for field in fields), *(sep.join(row) for row in rows), ""])


def _some(job: Job, fields: Sequence[str]) -> list[str]:
    values = dict(zip(slurm_text.JOB_FIELDS, job.row(), strict=True))
    return [values.get(field, "(null)") for field in fields]


def utc_now() -> datetime:
    """The time, UTC."""
    return datetime.now(UTC)
