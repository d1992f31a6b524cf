"""Evidence lines in their context: what is shown of a log, and what of one that changed, or is hostile."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from relight.cli import log_context
from relight.cli.log_context import Looked, look, place_of
from relight.contracts import Evidence, Source
from tests.relight.cli.stand_ins import T0

LINES = [f"line {number}" for number in range(1, 21)]
WHOLE = "".join(f"{line}\n" for line in LINES)


def quoted(file: Path, offset: int, text: str = "", signature: str = "x") -> Evidence:
    return Evidence(
        source=Source.JOB_LOG, observed_at=T0, text=text, where=f"{file}:{offset}", signature=signature
    )


def offset_of(line: int) -> int:
    return WHOLE.index(f"line {line}\n")


def shown(found: Looked) -> list[list[tuple[int | None, str, bool]]]:
    return [[(one.line, one.text, one.evidence) for one in excerpt.lines] for excerpt in found.excerpts]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "train.log"
    file.write_text(WHOLE)
    return file


@pytest.mark.parametrize(
    ("marked", "around", "numbers"),
    [
        ((10,), 2, [[8, 9, 10, 11, 12]]),
        ((1,), 2, [[1, 2, 3]]),
        ((20,), 2, [[18, 19, 20]]),
        ((10,), 0, [[10]]),
        ((8, 11), 1, [[7, 8, 9, 10, 11, 12]]),
        ((5, 15), 1, [[4, 5, 6], [14, 15, 16]]),
        ((5, 5), 1, [[4, 5, 6]]),
    ],
)
def test_lines_around(log: Path, marked: tuple[int, ...], around: int, numbers: list[list[int]]) -> None:
    found = look([quoted(log, offset_of(n), f"line {n}") for n in marked], around)
    assert [[number for number, _, _ in excerpt] for excerpt in shown(found)] == numbers
    assert all(text == f"line {number}" for excerpt in shown(found) for number, text, _ in excerpt)
    assert {n for excerpt in shown(found) for n, _, evidence in excerpt if evidence} == set(marked)
    assert [quote.line for quote in found.quotes] == list(marked)
    assert all(quote.verbatim and not quote.problem for quote in found.quotes)


def test_a_quotation_about_a_line_is_not_verbatim(log: Path) -> None:
    found = look([quoted(log, offset_of(3), "no step since step 3", signature="")], 1)
    assert [quote.verbatim for quote in found.quotes] == [False]
    assert shown(found) == [[(2, "line 2", False), (3, "line 3", True), (4, "line 4", False)]]


def test_a_line_after_a_carriage_return(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_bytes(b"begin\n 10%|#  |\r 20%|## |\rboom\nend\n")
    found = look([quoted(file, 26, "boom")], 2)
    assert found.quotes[0].verbatim
    assert shown(found) == [[(1, "begin", False), (2, "boom", True), (3, "end", False)]]


def test_escapes_and_endless_lines_are_inert(tmp_path: Path) -> None:
    file = tmp_path / "train.log"
    file.write_bytes(b"\x1b]0;owned\x07\x1b[2Jhello\xff\n" + b"x" * 3_000_000 + b"\nboom\n")
    found = look([quoted(file, file.stat().st_size - 5, "boom")], 5)
    assert shown(found) == [[(3, "boom", True)]], "the line before begins outside the window"
    early = look([quoted(file, 0)], 1)
    assert shown(early)[0][0][1] == "hello\ufffd"
    assert all(len(text) <= 500 for _, text, _ in shown(early)[0])


def test_a_number_beyond_what_is_counted_is_not_made_up(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_context, "COUNTED", 10)
    found = look([quoted(log, offset_of(10), "line 10")], 1)
    assert found.quotes[0].line is None
    assert shown(found) == [[(None, "line 9", False), (None, "line 10", True), (None, "line 11", False)]]


def gone(file: Path) -> None:
    file.unlink()


def cut(file: Path) -> None:
    file.write_text("new\n")


def a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("change", "says"),
    [(gone, "No such file"), (cut, "shorter now (4 bytes)"), (a_pipe, "no regular file"), (a_directory, "")],
)
def test_a_log_that_cannot_tell_any_more(log: Path, change: Callable[[Path], None], says: str) -> None:
    change(log)
    found = look([quoted(log, offset_of(10), "line 10")], 2)
    [quote] = found.quotes
    assert quote.text == "line 10", "what was recorded is still shown"
    assert "cannot be read here" in quote.problem
    assert says in quote.problem
    assert not found.excerpts


def test_files_of_other_users_are_left_alone(log: Path) -> None:
    found = look([quoted(log, 0, "line 1")], 2, owner=log.stat().st_uid + 1)
    assert "another user" in found.quotes[0].problem
    assert not found.excerpts
    assert look([quoted(log, 0, "line 1")], 2, owner=log.stat().st_uid).excerpts


@pytest.mark.parametrize("where", ["train.log:77", "job state", "", "/a/b", "/a/b:x", "up{job='x'}:5"])
def test_what_is_no_place_in_a_log(where: str) -> None:
    assert place_of(Evidence(source=Source.JOB_LOG, observed_at=T0, text="", where=where)) is None


def test_only_the_jobs_own_log_is_opened() -> None:
    assert place_of(Evidence(source=Source.KERNEL, observed_at=T0, text="", where="/dev/kmsg:12")) is None
