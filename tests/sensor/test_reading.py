"""From bytes to events: what a restarted sensor reads, and with which times."""

import os
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.findings import UNKNOWN_LINE, Event, Finding, StepLine
from relight.diagnosis.reader import LogReader
from sensor import follow
from sensor.follow import Position
from sensor.reading import JobLogs, Seen

CATALOGUE = Catalogue.load()
NOW = datetime(2026, 12, 2, 6, 0, tzinfo=UTC)


def line(step: int, seconds: float = 0.0) -> str:
    at = datetime(2026, 12, 2, 5, 0, tzinfo=UTC) + timedelta(seconds=seconds)
    return (
        f"[{at:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/ 100000 | elapsed time per iteration (ms): 101.2 | "
        "lm loss: 1.23E+00 |\n"
    )


TRACEBACK = (
    "[rank3]: Traceback (most recent call last):\n"
    '[rank3]:   File "/home/anna/train.py", line 12, in main\n'
    "[rank3]:     raise RuntimeError('boom')\n"
    "[rank3]: RuntimeError: boom\n"
)


class Reader:
    """Looks at one file, and can be killed and started again."""

    def __init__(self, file: Path, positions: list[Position] | None = None, *, fresh: bool = False) -> None:
        self.file = file
        self.logs = JobLogs(CATALOGUE, [str(file)], positions or [], fresh=fresh)
        self.logs.place(["node01", "node02"], 2)
        self.saved: dict[str, Position] = {p.file_id: p for p in positions or []}
        self.seconds = 0.0

    def look(self, after: float = 1.0) -> list[Seen]:
        seen: list[Seen] = []
        self.seconds += after
        while True:
            reading = self.logs.look(self.seconds, NOW + timedelta(seconds=self.seconds))
            seen += reading.seen
            for file_id in reading.gone:
                self.saved.pop(file_id, None)
            for position in reading.positions:
                self.saved[position.file_id] = Position.model_validate_json(position.model_dump_json())
            if not reading.behind:
                return seen

    def killed(self) -> "Reader":
        return Reader(self.file, [p.model_copy() for p in self.saved.values()])


def test_a_traceback_is_one_finding_with_the_node_of_its_rank(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text(line(1) + TRACEBACK)
    seen = [s.event for s in Reader(file).look()]
    assert [type(e) for e in seen] == [StepLine, Finding]
    assert isinstance(seen[1], Finding)
    assert (seen[1].rank, seen[1].node, seen[1].ends_rank) == (3, "node02", True)


def test_what_is_read_once_more_is_nothing_new(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("importing torch\n")
    logs = JobLogs(CATALOGUE, [str(file)], fresh=True)
    grew = [logs.look(seconds, NOW).grew for seconds in (0.0, 1.0)]
    logs.place(["node01", "node02"], 2)  # a new reader is fed the same bytes
    again = logs.look(2.0, NOW)
    with file.open("a") as opened:
        opened.write("building the index\n")
    assert [*grew, again.grew, logs.look(3.0, NOW).grew] == [True, False, False, True]
    assert again.bytes > 0


def test_a_traceback_that_a_restart_cuts_in_two_is_found_once(tmp_path: Path) -> None:
    text = line(1) + TRACEBACK + line(2)
    whole = (tmp_path / "whole.log").resolve()
    whole.write_text(text)
    expected = [(type(s.event), s.event.offset, s.event.line) for s in Reader(whole).look()]
    for cut in range(len(text)):
        file = tmp_path / f"{cut}.log"
        file.write_text(text[:cut])
        reader = Reader(file)
        seen = reader.look()
        with file.open("a") as f:
            f.write(text[cut:])
        seen += reader.killed().look()
        assert [(type(s.event), s.event.offset, s.event.line) for s in seen] == expected


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.integers(1, 3), min_size=1, max_size=15),
    kills=st.sets(st.integers(0, 14)),
    cut=st.integers(0, 150),
)
def test_any_number_of_restarts_reads_every_step_once(
    tmp_path_factory: object, steps: list[int], kills: set[int], cut: int
) -> None:
    file = tmp_path_factory.mktemp("r") / "a.log"  # type: ignore[attr-defined]
    file.write_text("")
    reader, seen, number, rest = Reader(file), [], 0, ""
    for look, count in enumerate(steps):
        text = rest + "".join(line(number + n) for n in range(1, count + 1))
        number += count
        text, rest = text[: len(text) - cut], text[len(text) - cut :] if cut else ""
        with file.open("a") as f:
            f.write(text)
        seen += reader.look()
        if look in kills:
            reader = reader.killed()
    with file.open("a") as f:
        f.write(rest)
    seen += reader.look()
    assert [s.event.step for s in seen if isinstance(s.event, StepLine)] == list(range(1, number + 1))


def test_junk_and_a_line_of_a_megabyte_do_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(
        bytes(range(256)) * 40
        + b"\n"
        + b"x" * (1 << 20)
        + b"\n"
        + line(1).encode()
        + b"\0" * 1000
        + b"\n"
        + line(2).encode()
    )
    seen = Reader(file).look()
    assert [s.event.step for s in seen if isinstance(s.event, StepLine)] == [1, 2]


def test_lines_that_nobody_saw_come_are_seen_now_but_keep_their_distances(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("".join(line(n, seconds=2.0 * n) for n in range(1, 11)))
    changed = NOW - timedelta(hours=1)
    os.utime(file, (0, changed.timestamp()))
    seen = Reader(file, fresh=True).look()
    assert all(s.historic for s in seen)
    assert seen[-1].at == NOW + timedelta(seconds=1)
    assert {s.written for s in seen} == {changed}
    assert {b.at - a.at for a, b in pairwise(seen)} == {timedelta(seconds=2)}


def test_live_lines_lie_within_the_time_since_the_last_look(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text(line(1))
    reader = Reader(file)
    reader.look()
    with file.open("a") as f:
        f.write(line(2, 100) + line(3, 200))
    seen = reader.look(0.25)
    assert [s.at - NOW for s in seen] == [timedelta(seconds=1), timedelta(seconds=1.25)]
    assert [s.written for s in seen] == [None, None]


def test_an_unfinished_last_line_counts_when_the_file_is_rewritten(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text(line(1) + line(2).rstrip("\n"))
    reader = Reader(file)
    assert [s.event.step for s in reader.look() if isinstance(s.event, StepLine)] == [1]
    file.write_text(line(3))
    assert [s.event.step for s in reader.look() if isinstance(s.event, StepLine)] == [2, 3]


def test_a_new_allocation_places_ranks_anew_and_tells_nothing_twice(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text(line(1) + TRACEBACK)
    reader = Reader(file)
    reader.look()
    reader.logs.place(["node03", "node04"], 2)
    assert reader.look() == []
    with file.open("a") as f:
        f.write(TRACEBACK.replace("boom", "again"))
    (seen,) = reader.look()
    assert isinstance(seen.event, Finding)
    assert seen.event.node == "node04"


def test_a_chunk_that_was_not_understood_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "train.log"
    file.write_text(line(1))
    reader = Reader(file, fresh=True)
    reader.look()
    feed, failures = LogReader.feed, [RuntimeError("a bug")]

    def fails_once(self: LogReader, data: bytes) -> list[Event]:
        if failures:
            raise failures.pop()
        return feed(self, data)

    monkeypatch.setattr(LogReader, "feed", fails_once)
    with file.open("a") as log:
        log.write(line(2) + TRACEBACK + line(3))
    seen = [*reader.look(), *reader.look()]
    assert not failures
    assert [s.event.step for s in seen if isinstance(s.event, StepLine)] == [2, 3]
    assert sum(isinstance(s.event, Finding) for s in seen) == 1


def numbers(seen: list[Seen]) -> list[tuple[int, int]]:
    """Step and line of each step line."""
    return [(s.event.step, s.event.line) for s in seen if isinstance(s.event, StepLine)]


@pytest.fixture
def long_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log of which only the end is read when the watch begins."""
    monkeypatch.setattr(follow, "HISTORY", 4000)
    monkeypatch.setattr(follow, "REWIND", 1000)
    monkeypatch.setattr(follow, "COUNTED_AT_ONCE", 5000)
    file = tmp_path / "long.log"
    file.write_text("".join(line(n) for n in range(200)))
    return file


def add(file: Path, *steps: int) -> None:
    with file.open("a") as f:
        f.write("".join(line(n) for n in steps))


def test_lines_are_counted_from_the_begin_also_of_a_log_that_was_long_before_the_watch(
    long_log: Path,
) -> None:
    reader = Reader(long_log, fresh=True)
    first = numbers(reader.look())
    assert first
    assert {number for _, number in first} == {UNKNOWN_LINE}  # not counted so far
    for _ in range(10):
        reader.look()
    add(long_log, 200, 201)
    assert numbers(reader.look()) == [(200, 200), (201, 201)]


@pytest.mark.parametrize("looks", [1, 2, 8])
def test_a_restarted_sensor_counts_on(long_log: Path, looks: int) -> None:
    reader = Reader(long_log, fresh=True)
    for _ in range(looks):
        reader.look()
    add(long_log, 200)
    reader.look()
    again = reader.killed()
    for _ in range(10):
        again.look()
    add(long_log, 201)
    assert numbers(again.look()) == [(201, 201)]
    assert numbers(again.killed().look()) == []


@pytest.mark.parametrize("counted_wrongly", [0, 17])
def test_a_state_file_of_an_older_version_is_counted_anew(long_log: Path, counted_wrongly: int) -> None:
    reader = Reader(long_log, fresh=True)
    reader.look()
    (position,) = reader.saved.values()
    new = {"front", "front_counted", "front_lines"}
    old = Position.model_validate(position.model_dump(exclude=new) | {"line": counted_wrongly})
    again = Reader(long_log, [old])
    for _ in range(10):
        again.look()
    add(long_log, 200)
    assert numbers(again.look()) == [(200, 200)]


def test_a_state_file_of_an_older_version_that_read_all_needs_no_counting(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text(line(0) + line(1))
    reader = Reader(file)
    reader.look()
    (position,) = reader.saved.values()
    old = Position.model_validate(position.model_dump(exclude={"front", "front_counted", "front_lines"}))
    again = Reader(file, [old])
    add(file, 2)
    assert numbers(again.look()) == [(2, 2)]


def test_beyond_a_bound_the_numbers_of_lines_stay_unknown(
    long_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "COUNTED", 5000)
    reader = Reader(long_log, fresh=True)
    for _ in range(10):
        reader.look()
    add(long_log, 200)
    assert numbers(reader.look()) == [(200, UNKNOWN_LINE)]


def test_a_log_that_is_written_anew_is_counted_from_its_new_begin(long_log: Path) -> None:
    reader = Reader(long_log, fresh=True)
    reader.look()
    long_log.write_text(line(0) + line(1))
    assert numbers(reader.look()) == [(0, 0), (1, 1)]
