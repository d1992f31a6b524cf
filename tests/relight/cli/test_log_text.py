"""What can be a log, and what not."""

import gzip
import json
import lzma
import random
from pathlib import Path

import pytest

from relight.cli.log_text import why_no_log
from tests.relight.cli.conftest import Relight

WORDS = b" iteration 10/ 100 | loss: 2.5\n"


@pytest.mark.parametrize(
    ("beginning", "says"),
    [
        (b"", "is empty"),
        (WORDS, ""),
        (b"\n", ""),
        (b"\x1b[32mstep 3\x1b[0m\r 40%|\xe2\x96\x88\xe2\x96\x88  |\r", ""),
        ("größer als vorher: ÄÖÜ\n".encode("latin-1"), ""),
        (b"\0" * 20 + WORDS * 3, ""),
        (b"\0" * 5000, "does not look like text"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 9 + b"\x03\0>\0\x01\0\0\0", "does not look like text"),
        (random.Random(7).randbytes(4000), "does not look like text"),
        (gzip.compress(WORDS * 9, mtime=0), "packed by gzip"),  # each test process must name it alike
        (lzma.compress(WORDS * 9), "packed by xz"),
    ],
)
def test_what_speaks_against_it(beginning: bytes, says: str) -> None:
    why = why_no_log(beginning)
    assert says in why
    assert bool(why) == bool(says)


def test_diagnose_says_so_and_reads_the_others(alone: Relight, tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    (tmp_path / "train.log").write_bytes(WORDS)
    done = alone("diagnose", "empty.log", "train.log", "--kernel-log", "node07=packed")
    assert done.exit_code == 2, "there is no such file"
    (tmp_path / "packed").write_bytes(gzip.compress(WORDS))
    done = alone("diagnose", "empty.log", "train.log", "--kernel-log", "node07=packed", "--json")
    assert done.exit_code == 0
    assert "warning: empty.log is empty" in done.stderr
    assert "warning: packed is packed by gzip" in done.stderr
    assert "train.log" not in done.stderr


def test_where_none_can_be_read_there_is_no_verdict(alone: Relight, tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    (tmp_path / "packed").write_bytes(gzip.compress(WORDS))
    done = alone("diagnose", "empty.log", "packed")
    assert done.exit_code == 2
    assert "None of these files could be read as a log" in done.stdout
    assert "Nothing" not in done.stdout
    done = alone("diagnose", "empty.log", "packed", "--json")
    assert done.exit_code == 2
    found = json.loads(done.stdout)
    assert (found["unread"], found["cause"]) == (True, "unknown")


def test_the_silence_of_an_empty_log_is_a_verdict(alone: Relight, tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    done = alone("diagnose", "empty.log", "--silent-for", "2h", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (found["unread"], found["symptom"]) == (False, "hang")
