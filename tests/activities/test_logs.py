import getpass
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from activities import logs
from relight.contracts.steps import LogMark
from tests.activities.conftest import step_line, step_lines, training
from tests.activities.double import running


def numbers(reading: logs.Reading) -> list[int]:
    return [line.step for line in reading.steps]


def read_all(path: Path, marks: tuple[LogMark, ...]) -> list[int]:
    return numbers(logs.read_since([str(path)], marks))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "train.log"
    path.write_text(step_lines(1, 125))
    return path


def test_only_what_was_appended_is_read(log: Path) -> None:
    marks = logs.mark_logs([str(log)])
    with log.open("a") as file:
        file.write(step_lines(121, 122))
    assert read_all(log, marks) == [121, 122]


def test_a_line_that_the_old_attempt_did_not_finish(log: Path) -> None:
    with log.open("a") as file:
        file.write("[2026-12-02 05:00:00] itera")
    marks = logs.mark_logs([str(log)])
    with log.open("a") as file:
        file.write(step_line(121))
    assert read_all(log, marks) == [121]


@pytest.mark.parametrize("longer", [False, True])
def test_a_truncated_file_is_read_from_its_beginning(log: Path, longer: bool) -> None:
    marks = logs.mark_logs([str(log)])
    inode = log.stat().st_ino
    with log.open("r+") as file:
        file.truncate()
        file.write("x" * 100 * (len(step_lines(1, 125)) // 100 if longer else 1) + "\n" + step_line(7))
    assert log.stat().st_ino == inode
    assert read_all(log, marks) == [7]


def test_a_replaced_file_is_read_from_its_beginning(log: Path) -> None:
    marks = logs.mark_logs([str(log)])
    text = log.read_text()
    log.rename(log.with_name("old.log"))
    log.write_text(text + step_line(126))
    assert read_all(log, marks) == [1, 2, 126]


def test_a_file_that_appears_later_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "late.log"
    marks = logs.mark_logs([str(path)])
    assert marks == ()
    path.write_text(step_line(1))
    assert read_all(path, marks) == [1]


def test_an_unreadable_file_is_told_and_keeps_its_mark(log: Path) -> None:
    marks = logs.mark_logs([str(log)])
    log.unlink()
    log.mkdir()
    reading = logs.read_since([str(log)], marks)
    assert reading.unread
    assert str(log) in reading.unread[0]
    assert reading.marks == marks


def test_the_tail_of_a_large_file(log: Path) -> None:
    with log.open("a") as file:
        file.write("no step here\n" * (logs.TAIL // 10))
        file.write(step_lines(126, 128))
    reading = logs.read_tail([str(log)])
    assert numbers(reading) == [126, 127, 128]
    assert logs.last_step(reading) == 128
    assert reading.marks[0].size == log.stat().st_size


def test_the_budget_bounds_one_look(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "BUDGET", 1000)
    marks: tuple[LogMark, ...] = ()
    last, looks = 0, 0
    while last != 125:
        reading = logs.read_since([str(log)], marks)
        assert reading.marks != marks
        marks, looks = reading.marks, looks + 1
        last = max([last, *numbers(reading)])
    assert looks > 10


def test_a_line_longer_than_the_budget_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "BUDGET", 1000)
    path = tmp_path / "junk.log"
    path.write_bytes(b"\x00" * 5000 + b"\n" + step_line(3).encode())
    marks: tuple[LogMark, ...] = ()
    found: list[int] = []
    for _ in range(10):
        reading = logs.read_since([str(path)], marks)
        marks = reading.marks
        found += numbers(reading)
    assert found == [3]


def test_the_last_step_is_that_of_the_file_written_last(tmp_path: Path) -> None:
    old, new = tmp_path / "old.log", tmp_path / "new.log"
    old.write_text(step_line(500))
    new.write_text(step_lines(120, 125))
    os.utime(old, (1, 1))
    assert logs.last_step(logs.read_tail([str(old), str(new)])) == 125
    assert logs.last_step(logs.read_tail([])) is None


def test_the_jobs_output_and_globs_are_found_once(tmp_path: Path) -> None:
    out, other = tmp_path / "out.log", tmp_path / "rank[0].log"
    out.touch()
    other.touch()
    job = training(log_paths=(str(tmp_path / "*.log"), str(other), str(tmp_path / "none.log")))
    found = logs.find_logs(job, running(std_out=str(out), std_err=str(out)))
    assert sorted(found) == sorted([str(out), str(other)])
    (tmp_path / "dir.log").mkdir()
    assert len(logs.find_logs(job, None)) == 2


def test_the_newest_of_many_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MAX_FILES", 2)
    for age in range(5):
        path = tmp_path / f"{age}.log"
        path.touch()
        os.utime(path, (1000 - age, 1000 - age))
    found = logs.find_logs(training(log_paths=(str(tmp_path / "*.log"),)), None)
    assert sorted(Path(name).name for name in found) == ["0.log", "1.log"]


def test_files_of_others_are_not_read_for_a_job_that_named_them_itself(tmp_path: Path, log: Path) -> None:
    if os.geteuid() != 0:
        pytest.fail("needs root, to make a file of another user")
    others = tmp_path / "others.log"
    others.touch()
    os.chown(others, 12345, 12345)
    job = training(log_paths=(str(tmp_path / "*.log"),), user=getpass.getuser())
    assert len(logs.find_logs(job, None)) == 2
    assert logs.find_logs(job.model_copy(update={"opted_in": True}), None) == (str(log),)


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(0, 2000), max_size=8))
def test_how_the_file_grows_between_looks_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.mktemp("grow") / "train.log"
    data = step_lines(1, 15).encode()
    marks: tuple[LogMark, ...] = ()
    seen: set[int] = set()
    path.touch()
    for at in [*sorted(cuts), len(data)]:
        path.write_bytes(data[:at])  # the same inode, longer each time
        reading = logs.read_since([str(path)], marks)
        marks = reading.marks
        seen.update(numbers(reading))
    assert marks[0].size == len(data)
    assert {1, 15} <= seen
