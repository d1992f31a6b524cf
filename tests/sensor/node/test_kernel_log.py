"""The kernel log, from now on: the real device, a device that overruns, and a file that is rotated."""

import errno
import os
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sensor import follow
from sensor.node.kernel_log import KMSG, MOST_LINES, Kmsg, Line, LogFile, boot_id, open_kernel_log
from tests.sensor.node.conftest import wait_until


class Device:
    """What reading `/dev/kmsg` gives, one record after the other."""

    def __init__(self, *records: bytes | int) -> None:
        self.records = list(records)

    def read(self, fd: int, size: int) -> bytes:
        if not self.records:
            raise BlockingIOError
        record = self.records.pop(0)
        if isinstance(record, int):
            raise OSError(record, os.strerror(record))
        return record


def begun(device: Device, opened: float = 0.0) -> Kmsg:
    """Reading begins at this time of the kernel's clock."""
    source = Kmsg(read=device.read)
    source._opened = opened
    return source


def texts(lines: list[Line]) -> list[bytes]:
    return [line.text for line in lines]


def write_kmsg(text: str) -> None:
    with KMSG.open("w") as device:  # opened anew each time: the kernel limits the rate of one opening
        device.write(f"{text}\n")


# ---- the device


def test_the_real_device_begins_now_and_leaves_out_what_programs_wrote() -> None:
    name = f"relight-test-{uuid.uuid4().hex}"
    write_kmsg(f"<12>{name} before")
    every, kernels = Kmsg(programs=True), Kmsg()
    write_kmsg(f"<12>{name} after")
    write_kmsg(f"<2>{name} pretends to be the kernel")
    found: list[Line] = []
    wait_until("the lines", lambda: found.extend(every.look(0.1)) or len(found) >= 2)
    mine = [line for line in found if line.text.startswith(name.encode())]
    assert texts(mine) == [f"{name} after".encode(), f"{name} pretends to be the kernel".encode()]
    assert mine[0].where.startswith(f"kmsg:{boot_id()[:8]}:")
    assert mine[0].where != mine[1].where
    assert abs(datetime.now(UTC) - mine[0].at) < timedelta(seconds=5)
    assert not any(name.encode() in line.text for line in kernels.look(0.2))
    for source in (every, kernels):
        source.close()


def test_records_are_read_as_the_kernel_writes_them() -> None:
    device = Device(
        b"6,339,5140900,-;NET: Registered protocol family 10\n",
        b"30,340,5690716,-;udevd[80]: starting version 181\n",
        b"4,341,5700000,-,caller=T12;NVRM: Xid (PCI:0000:3b:00): 79, pid=1\n SUBSYSTEM=pci\n DEVICE=+pci:1\n",
        b"not a record",
    )
    source = begun(device)
    assert texts(source.look(0)) == [
        b"NET: Registered protocol family 10",
        b"NVRM: Xid (PCI:0000:3b:00): 79, pid=1",
    ]
    assert (source.overruns, source.lost) == (0, 0)
    source.close()


def test_an_overrun_is_counted_and_reading_goes_on() -> None:
    device = Device(b"6,10,1,-;one\n", errno.EPIPE, b"6,15,2,-;two\n", b"6,16,3,-;three\n")
    source = begun(device)
    assert texts(source.look(0)) == [b"one", b"two", b"three"]
    assert (source.overruns, source.lost) == (1, 4)
    source.close()


def test_lines_that_waited_get_the_time_at_which_they_were_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    device = Device(b"6,1,900000000,-;fresh\n")
    source = begun(device)
    source.look(0)
    clock[0] += 60
    device.records.append(b"6,2,910000000,-;fifty seconds old\n")
    (line,) = source.look(0)
    assert 49 < (datetime.now(UTC) - line.at).total_seconds() < 51
    source.close()


def test_a_message_from_long_before_that_ends_only_now_is_history() -> None:
    device = Device(b"6,1,3600000000,-;a day old, with no newline\n", b"6,2,89990000000,-;new\n")
    source = begun(device, opened=90_000.0)
    assert texts(source.look(0)) == [b"new"]
    source.close()


def test_one_look_is_bounded() -> None:
    device = Device(*(f"6,{n},{n},-;line {n}\n".encode() for n in range(3 * MOST_LINES)))
    source = begun(device)
    assert [len(source.look(0)) for _ in range(4)] == [MOST_LINES, MOST_LINES, MOST_LINES, 0]
    source.close()


def test_any_other_error_of_the_device_is_one() -> None:
    source = begun(Device(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        source.look(0)
    source.close()


# ---- a file


def append(path: Path, text: str) -> None:
    with path.open("a") as out:
        out.write(text)


def test_a_file_begins_now_and_survives_rotation_and_truncation(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    append(path, "old 1\nold 2\n")
    source = open_kernel_log(path)
    assert isinstance(source, LogFile)
    assert source.look(0) == []
    append(path, "new 1\nnew")
    assert texts(source.look(1)) == [b"new 1"]
    append(path, " 2\n")
    assert texts(source.look(1)) == [b"new 2"]
    path.rename(tmp_path / "kern.log.1")
    append(tmp_path / "kern.log.1", "late\n")
    append(path, "after rotation\n")
    got: list[bytes] = []
    wait_until("both", lambda: got.extend(texts(source.look(0.3))) or len(got) >= 2)
    assert sorted(got) == [b"after rotation", b"late"]
    path.write_text("rewritten\n")
    assert texts(source.look(1)) == [b"rewritten"]


def test_lines_of_a_file_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    append(path, "")
    source = LogFile(path)
    source.look(0)
    append(path, "same\nsame\n")
    first, second = source.look(1)
    assert first.where != second.where


@pytest.mark.parametrize("history", [40, 1 << 20])
def test_lines_of_a_file_have_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: int
) -> None:
    monkeypatch.setattr(follow, "HISTORY", history)
    monkeypatch.setattr(follow, "REWIND", 20)
    path = tmp_path / "kern.log"
    append(path, "".join(f"old {n}\n" for n in range(30)) + "cut ")
    source = LogFile(path)
    source.look(0.5)
    append(path, "off\nnew 1\nnew")
    assert [line.number for line in source.look(1)] == [31, 32]
    append(path, " 2\n")
    assert [line.number for line in source.look(1)] == [33]
    path.write_text("rewritten\n")
    assert [line.number for line in source.look(1)] == [1]


def test_the_day_is_not_padded(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    append(path, "")
    source = LogFile(path)
    source.look(0)
    append(path, "Dec  2 10:15:01 node01 kernel: x\nDec 12 10:15:01 node01 kernel:  y\n")
    assert texts(source.look(1)) == [
        b"Dec 2 10:15:01 node01 kernel: x",
        b"Dec 12 10:15:01 node01 kernel:  y",
    ]


def test_a_file_need_not_be_there_yet(tmp_path: Path) -> None:
    source = LogFile(tmp_path / "kern.log")
    assert source.look(0) == []
    append(tmp_path / "kern.log", "first\n")
    got: list[Line] = []
    wait_until("it is found", lambda: got.extend(source.look(0.3)) or got)
    assert texts(got) == [b"first"]


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "kern.log").mkdir()
    with pytest.raises(OSError, match="not a regular file"):
        LogFile(tmp_path / "kern.log")


def test_a_megabyte_in_one_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    append(path, "")
    source = LogFile(path)
    source.look(0)
    append(path, "x" * 1_000_000 + "\nnext\n")
    got: list[Line] = []
    wait_until("the next line", lambda: got.extend(source.look(0.3)) or any(g.text == b"next" for g in got))
    assert max(len(g.text) for g in got) <= 4096
