"""The labelled cases, written into growing files while the sensor looks: the same diagnosis as afterwards."""

import random
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from relight.contracts import Anomaly, Cause, Diagnosis, JobInfo, JobState, NodeInfo, Source, Symptom
from relight.diagnosis.cases import judge, read_rows
from relight.diagnosis.findings import Event
from relight.diagnosis.reader import LogReader
from relight.diagnosis.verdict import diagnose
from sensor.messages import REPORT_ANOMALY
from sensor.reading import JobLogs, Reading, Seen
from sensor.view import View
from sensor.watch import JobWatch
from tests.relight.diagnosis.making import CATALOGUE, CORPUS
from tests.sensor.making import JOB, NODES, START, info

ROWS = [
    row
    for row in read_rows((CORPUS / "cases.jsonl").read_text(encoding="utf-8").splitlines())
    if all(part["kind"] != "metrics" for part in row["inputs"])
]
SOURCES = {"kernel_log": Source.KERNEL, "slurm_log": Source.SCHEDULER}
ENDS = {
    Cause.USER_CANCEL: JobState.CANCELLED,
    Cause.TIME_LIMIT: JobState.TIMEOUT,
    Cause.PREEMPTION: JobState.PREEMPTED,
}


class Live:
    """A sensor's watch over files that the test writes."""

    def __init__(self, row: dict[str, Any], directory: Path) -> None:
        self.row, self.dir = row, directory
        self.parts = [(n, part) for n, part in enumerate(row["inputs"])]
        self.data = [("\n".join(part["lines"]) + "\n").encode() for part in row["inputs"]]
        self.nodes, self.tasks = self._placement()
        # Where the logs have no such header, it runs on the nodes that they name: others are not blamed.
        named = dict.fromkeys(re.findall(r"\bnode\d{3}\b", b"".join(self.data).decode()))
        self.allocation = self.nodes or (*named, *NODES)[: max(2, len(named))]
        self.watch = JobWatch("job:lab:42:1", JOB, None, self._fail)
        self.logs = JobLogs(CATALOGUE, [str(directory / "*.log")], fresh=False)
        self.logs.place(self.nodes, self.tasks)
        self.readers = {
            n: LogReader(CATALOGUE, str(n), source=SOURCES[p["kind"]], node=p["node"], nodes=self.nodes)
            for n, p in self.parts
            if p["kind"] != "job_log"
        }
        self.now, self.seconds = START, 0.0
        self.told: dict[str, Anomaly] = {}

    def _fail(self, part: str, error: Exception) -> None:
        raise AssertionError(part) from error

    def _placement(self) -> tuple[tuple[str, ...], int | None]:
        """What the scheduler would say: here the logs' own headers do."""
        reader = LogReader(CATALOGUE, "x")
        for (_, part), data in zip(self.parts, self.data, strict=True):
            if part["kind"] == "job_log":
                reader.feed(data)
        return reader.nodes, reader.tasks_per_node

    def grow(self, rng: random.Random, state: JobState) -> None:
        """Writes all files in some pieces each, and looks after every piece."""
        at = [0] * len(self.data)
        pieces = rng.randint(2, 6)
        for k in range(1, pieces + 1):
            for n, data in enumerate(self.data):
                until = len(data) if k == pieces else rng.randint(at[n], len(data))
                piece, at[n] = data[at[n] : until], until
                if n in self.readers:
                    self._look(state, self.readers[n].feed(piece))
                else:
                    with (self.dir / f"{n}.log").open("ab") as f:
                        f.write(piece)
            self._look(state)

    def rest(self, state: JobState, seconds: float) -> None:
        """Nothing more is written."""
        until = self.now + timedelta(seconds=seconds)
        while self.now < until:
            self._look(state, after=max(0.5, seconds / 40))

    def _look(self, state: JobState, other: list[Event] | None = None, after: float = 0.2) -> None:
        self.now += timedelta(seconds=after)
        self.seconds += after
        reading: Reading = self.logs.look(self.seconds, self.now)
        while reading.behind:
            more = self.logs.look(self.seconds, self.now)
            reading.seen += more.seen
            reading.behind = more.behind
        reading.seen += [Seen(event, self.now, historic=False, timed=True) for event in other or []]
        job: JobInfo = info(state, nodes=self.allocation, num_nodes=len(self.allocation))
        nodes = {name: NodeInfo(name=name, state="ALLOCATED") for name in job.nodes}
        view = View(asked_at=self.now, jobs={job.job_id: job}, nodes=nodes)
        for message in self.watch.advance(reading, view, self.now):
            if message.signal == REPORT_ANOMALY:
                anomaly = Anomaly.model_validate_json(message.payload)
                self.told.setdefault(anomaly.anomaly_id, anomaly)

    def diagnosis(self) -> Diagnosis | None:
        """What a monitor makes of it."""
        if not self.told:
            return None
        job = self.watch.job.model_copy(update={"nodes": self.nodes})
        return diagnose(list(self.told.values()), job)


def accepted(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Other answers that the row's author accepts."""
    return list(row["expect"].get("accept", []))


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["id"])
def test_a_row_that_is_written_live_gives_the_same_diagnosis(row: dict[str, Any], tmp_path: Path) -> None:
    offline = judge(row, CATALOGUE)
    live = Live(row, tmp_path)
    # A job that somebody or a limit ends is completing before its ranks say a word.
    ended = offline.cause in ENDS
    live.grow(random.Random(row["id"]), JobState.COMPLETING if ended else JobState.RUNNING)
    if offline.cause is Cause.HEALTHY or offline.symptom is Symptom.SLOW:
        # It runs on; and a few slow steps are no reason to say so yet.
        live.rest(JobState.RUNNING, 2)
        assert live.diagnosis() is None
        return
    if row.get("silent_for_s") is not None:
        live.rest(JobState.RUNNING, row["silent_for_s"])
    elif ended:
        live.rest(ENDS[offline.cause], 3)
        assert live.diagnosis() is None
        return
    else:
        live.rest(JobState.FAILED, 3)
    found = live.diagnosis()
    assert found is not None
    assert found.cause is offline.cause
    # Who looks while ranks die need not wait for the silence that follows.
    assert found.symptom.value in {offline.symptom.value, *(a.get("symptom") for a in accepted(row))}
    if offline.attempts == 1 and found.retryable:
        assert found.nodes == offline.blame_nodes
