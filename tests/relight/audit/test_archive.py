"""The archive: whatever is changed in it is found, and writers that die or come twice leave it whole."""

import multiprocessing
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relight.audit.archive import Archive, open_archive
from relight.audit.chain import Problem
from relight.audit.places import ArchiveError, Directory
from tests.relight.audit.making import T0, an_audit

COUNT = 6


def fill(directory: Path, count: int = COUNT, max_bytes: int = 5000) -> Archive:
    """So many records over several files."""
    archive = Archive(Directory(directory), max_bytes=max_bytes)
    for number in range(1, count + 1):
        assert archive.append(an_audit(number), T0 + timedelta(days=number))
    return archive


def problem(archive: Archive) -> Problem | None:
    [checked] = archive.check()
    return checked.problem


def chain_files(directory: Path) -> list[Path]:
    return sorted((directory / "recoveries").glob("*.jsonl"))


def all_lines(directory: Path) -> list[tuple[Path, int]]:
    return [(f, i) for f in chain_files(directory) for i in range(len(f.read_bytes().splitlines()))]


def test_what_was_written_is_read_and_is_whole(tmp_path: Path) -> None:
    archive = fill(tmp_path)
    assert [entry.audit for entry in archive.entries()] == [an_audit(n) for n in range(1, COUNT + 1)]
    assert len(chain_files(tmp_path)) > 1, "the chain goes on over several files"
    [checked] = archive.check()
    assert checked.problem is None
    assert checked.head.count == COUNT


def test_a_new_file_begins_with_each_month(tmp_path: Path) -> None:
    archive = Archive(Directory(tmp_path))
    archive.append(an_audit(1), T0)
    archive.append(an_audit(2), T0 + timedelta(days=1))
    archive.append(an_audit(3), T0 + timedelta(days=31))
    assert [f.name for f in chain_files(tmp_path)] == ["00000001-2026-12.jsonl", "00000003-2027-01.jsonl"]
    assert problem(archive) is None


def test_a_recovery_is_archived_once(tmp_path: Path) -> None:
    archive = fill(tmp_path)
    assert archive.append(an_audit(2), T0 + timedelta(days=40)) is False
    assert len(list(archive.entries())) == COUNT


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole")
    fill(directory)
    return directory


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_bit_is_found(whole: Path, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from([*chain_files(whole), whole / "recoveries" / "head.json"]))
    before = file.read_bytes()
    at = data.draw(st.integers(0, len(before) - 1))
    bit = data.draw(st.integers(0, 7))
    file.write_bytes(before[:at] + bytes([before[at] ^ (1 << bit)]) + before[at + 1 :])
    try:
        assert problem(Archive(Directory(whole))) is not None
    finally:
        file.write_bytes(before)


@pytest.mark.parametrize("number", range(COUNT))
def test_any_line_taken_out_is_found(tmp_path: Path, number: int) -> None:
    archive = fill(tmp_path)
    file, line = all_lines(tmp_path)[number]
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:line] + lines[line + 1 :]))
    found = problem(archive)
    assert found is not None, "the last one, too: the head tells"
    assert str(number + 1) in found.text or "empty" in found.text


def test_any_two_lines_exchanged_are_found(tmp_path: Path) -> None:
    archive = fill(tmp_path, max_bytes=10**6)
    [file] = chain_files(tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    for a in range(COUNT):
        for b in range(a + 1, COUNT):
            swapped = list(lines)
            swapped[a], swapped[b] = lines[b], lines[a]
            file.write_bytes(b"".join(swapped))
            found = problem(archive)
            assert found is not None
            assert found.where.endswith(f"line {a + 1}"), "the first wrong one is named"


def test_a_file_or_all_records_taken_out_are_found(tmp_path: Path) -> None:
    archive = fill(tmp_path)
    chain_files(tmp_path)[1].unlink()
    assert problem(archive) is not None
    for file in chain_files(tmp_path):
        file.unlink()
    found = problem(archive)
    assert found is not None
    assert f"records 1 to {COUNT} are missing" in found.text
    with pytest.raises(ArchiveError, match="check-archive"):
        archive.append(an_audit(99), T0)


def test_a_chain_that_is_gone_as_a_whole_is_missed(tmp_path: Path) -> None:
    archive = fill(tmp_path)
    shutil.rmtree(tmp_path / "recoveries")
    found = problem(archive)
    assert found is not None
    assert "all records of this chain are missing" in found.text
    assert Archive(Directory(tmp_path)).append(an_audit(99), T0)
    found = problem(archive)
    assert found is not None
    assert "another record than its note says" in found.text


@pytest.mark.parametrize("name", ["00000001-2027-12.jsonl", "00000002-2026-12.jsonl", "00000001-2026-12.bak"])
def test_a_renamed_file_is_found(tmp_path: Path, name: str) -> None:
    archive = fill(tmp_path, 1)
    assert problem(archive) is None
    [file] = chain_files(tmp_path)
    file.rename(file.with_name(name))
    assert problem(archive) is not None


def test_a_file_that_does_not_belong_is_told(tmp_path: Path) -> None:
    archive = fill(tmp_path)
    file = chain_files(tmp_path)[0]
    shutil.copy(file, file.with_name("00000001-2026-12 (copy).jsonl"))
    found = problem(archive)
    assert found is not None
    assert "does not belong here" in found.text


def test_a_note_that_is_missing_or_changed_is_found(tmp_path: Path) -> None:
    archive = fill(tmp_path)
    note = tmp_path / "_chains" / "recoveries.json"
    note.write_bytes(note.read_bytes().replace(b'"first":"', b'"first":"0'))
    assert problem(archive) is not None
    note.write_text("{")
    assert problem(archive) is not None
    note.unlink()
    assert problem(archive) is not None


def test_a_writer_that_died_before_the_note_is_mended(tmp_path: Path) -> None:
    archive = fill(tmp_path, 1)
    note = tmp_path / "_chains" / "recoveries.json"
    before = note.read_bytes()
    note.unlink()
    assert problem(archive) is None, "the record is there, and the next one brings the note"
    Archive(Directory(tmp_path)).append(an_audit(2), T0)
    assert note.read_bytes() == before
    assert problem(archive) is None


def test_a_record_made_up_at_the_end_stops_the_next_writer(tmp_path: Path) -> None:
    archive = fill(tmp_path)
    last = chain_files(tmp_path)[-1]
    made_up = last.read_bytes().splitlines(keepends=True)[-1].replace(b"resumed", b"refuted")
    last.write_bytes(last.read_bytes() + made_up)
    with pytest.raises(ArchiveError, match="not what the head says"):
        archive.append(an_audit(99), T0)


def test_a_writer_that_died_before_the_head_is_mended(tmp_path: Path) -> None:
    archive = fill(tmp_path, 2)
    head = tmp_path / "recoveries" / "head.json"
    before = head.read_bytes()
    archive.append(an_audit(3), T0)
    head.write_bytes(before)
    assert problem(archive) is None
    archive.append(an_audit(4), T0)
    assert problem(archive) is None
    assert [e.audit.job.attempt.job_id for e in archive.entries()] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("keep", [1, 50, 1000])
@pytest.mark.parametrize("whole_lines", [0, 2])
def test_half_a_line_of_a_writer_that_died_is_cut_off(tmp_path: Path, keep: int, whole_lines: int) -> None:
    archive = fill(tmp_path, whole_lines)
    other = tmp_path / "other"
    fill(other, whole_lines + 1)
    torn = chain_files(other)[-1].read_bytes().splitlines()[-1][:keep]
    files = chain_files(tmp_path)
    directory = tmp_path / "recoveries"
    directory.mkdir(exist_ok=True)
    with (files[-1] if files else directory / "00000001-2026-12.jsonl").open("ab") as file:
        file.write(torn)
    archive.append(an_audit(77), T0 + timedelta(days=60))
    assert problem(archive) is None
    assert len(list(archive.entries())) == whole_lines + 1


def _write(directory: str, first: int) -> None:
    archive = Archive(Directory(Path(directory)), max_bytes=20_000)
    for number in range(first, first + 20):
        archive.append(an_audit(number), T0)
        archive.append(an_audit(1), T0)  # and one that all of them write


def test_writers_at_once_make_one_chain(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(str(tmp_path), 100 * n)) for n in range(1, 4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    archive = Archive(Directory(tmp_path))
    assert problem(archive) is None
    assert len(list(archive.entries())) == 61


def test_trying_an_object_store_out_leaves_nothing_behind(tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    archive = open_archive("memory://tried/relight", tmp_path)
    archive.try_out()
    assert memory.find("/tried") == []
    assert archive.append(an_audit(), T0)
    before = memory.find("/tried")
    archive.try_out()
    assert memory.find("/tried") == before
    assert problem(archive) is None


@pytest.mark.parametrize("place", ["file", "file/archive"])
def test_trying_out_what_is_no_directory(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ArchiveError, match=r"cannot be written and read: .*Not a directory"):
        open_archive(str(tmp_path / place), tmp_path).try_out()


def test_in_an_object_store_each_record_is_an_object(tmp_path: Path) -> None:
    archive = open_archive("memory://bucket/relight", tmp_path)
    for number in range(1, 4):
        assert archive.append(an_audit(number), T0)
    assert archive.append(an_audit(2), T0) is False
    assert [entry.audit for entry in archive.entries()] == [an_audit(n) for n in range(1, 4)]
    assert problem(archive) is None

    import fsspec

    memory = fsspec.filesystem("memory")
    names = sorted(name for name in memory.find("/bucket") if name.endswith(".jsonl"))
    assert len(names) == 3
    memory.rm(names[1])
    assert problem(archive) is not None
