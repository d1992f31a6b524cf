"""Files that grow, are truncated, rotated, replaced, late, unreadable: every line is read once."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sensor import follow
from sensor.follow import Follower, Look, Position


class Lines:
    """A simple consumer of chunks: collects whole lines and tells the follower how far it is."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.rest: dict[str, bytes] = {}
        self.offset: dict[str, int] = {}
        self.resume: dict[str, int] = {}
        self.lines: list[bytes] = []
        self.now = 0.0

    def look(self, times: int = 1) -> Look:
        look = Look()
        for _ in range(times):
            self.now += 1.0
            look = self.follower.look(self.now)
            for chunk in look.chunks:
                if chunk.starts:
                    self.rest[chunk.file_id], self.offset[chunk.file_id] = b"", chunk.offset
                    self.resume[chunk.file_id] = chunk.resume_at
                *whole, rest = (self.rest.get(chunk.file_id, b"") + chunk.data).split(b"\n")
                for line in whole:
                    if self.offset[chunk.file_id] >= self.resume[chunk.file_id]:
                        self.lines.append(line)
                    self.offset[chunk.file_id] += len(line) + 1
                self.rest[chunk.file_id] = rest
                if chunk.ends and self.rest.pop(chunk.file_id, b""):
                    self.lines.append(rest)
                if chunk.file_id in self.follower.positions and not chunk.ends:
                    self.follower.positions[chunk.file_id].taken = self.offset[chunk.file_id]
        return look

    def settle(self) -> None:
        while self.look().behind:
            pass

    def saved(self) -> list[Position]:
        return [Position.model_validate_json(p.model_dump_json()) for p in self.follower.positions.values()]


def test_a_line_split_over_two_writes_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"one\ntw")
    reader = Lines(Follower([str(file)]))
    reader.look()
    assert reader.lines == [b"one"]
    with file.open("ab") as f:
        f.write(b"o\n")
    reader.look()
    assert reader.lines == [b"one", b"two"]


def test_a_late_file_and_a_file_that_fits_a_glob_are_read_from_their_start(tmp_path: Path) -> None:
    reader = Lines(Follower([str(tmp_path / "out"), str(tmp_path / "rank*.log")], fresh=True))
    reader.look()
    (tmp_path / "out").write_bytes(b"x\n")
    (tmp_path / "rank3.log").write_bytes(b"y\n")
    reader.look(2)
    assert sorted(reader.lines) == [b"x", b"y"]


def test_two_names_of_one_file_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"x\n")
    (tmp_path / "latest.log").symlink_to("a.log")
    reader = Lines(Follower([str(tmp_path / "a.log"), str(tmp_path / "*.log")]))
    reader.look(3)
    assert reader.lines == [b"x"]


def test_a_name_with_brackets_is_also_taken_literally(tmp_path: Path) -> None:
    (tmp_path / "train[1].log").write_bytes(b"x\n")
    reader = Lines(Follower([str(tmp_path / "train[1].log")]))
    reader.look()
    assert reader.lines == [b"x"]


def test_what_is_there_when_the_watch_begins_is_history(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"old\n")
    follower = Follower([str(file)], fresh=True)
    assert [c.historic for c in follower.look(1).chunks] == [True]
    with file.open("ab") as f:
        f.write(b"new\n")
    assert [(c.historic, c.data) for c in follower.look(2).chunks] == [(False, b"new\n")]


def test_of_a_long_history_only_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "HISTORY", 25)
    monkeypatch.setattr(follow, "REWIND", 10)
    file = tmp_path / "a.log"
    file.write_bytes(b"".join(b"line %04d\n" % i for i in range(100)))
    reader = Lines(Follower([str(file)], fresh=True))
    reader.settle()
    assert reader.lines == [b"line 0098", b"line 0099"]


@pytest.mark.parametrize("grown", [b"", b"a longer text than before: it is beyond the old end of the file\n"])
def test_truncation_is_noticed_also_when_the_file_has_grown_since(tmp_path: Path, grown: bytes) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"first life of it\nunfinished")
    reader = Lines(Follower([str(file)]))
    reader.look()
    file.write_bytes(b"second\n" + grown)  # opened with O_TRUNC: the same inode
    reader.look()
    assert reader.lines == [b"first life of it", b"unfinished", b"second", *grown.splitlines()]


def test_a_rewritten_file_with_the_same_long_banner_is_noticed(tmp_path: Path) -> None:
    banner = b"".join(b"banner %d\n" % i for i in range(200))
    file = tmp_path / "a.log"
    file.write_bytes(banner + b"first\n")
    reader = Lines(Follower([str(file)]))
    reader.look()
    file.write_bytes(banner + b"second\n" + b"third\n" * 3)
    reader.look()
    assert reader.lines == (banner + b"first\n" + banner + b"second\n" + b"third\n" * 3).splitlines()


def test_a_rotated_file_is_read_to_its_end_and_the_new_one_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"1\n")
    reader = Lines(Follower([str(file)]))
    reader.look()
    with file.open("ab") as writer:
        writer.write(b"2\n")
        writer.flush()
        file.rename(tmp_path / "a.log.1")
        file.write_bytes(b"4\n")
        reader.look()
        writer.write(b"3\n")  # its writer still has it open
    reader.look()
    assert sorted(reader.lines) == [b"1", b"2", b"3", b"4"]


def test_a_file_that_takes_the_place_and_the_inode_of_another_is_read_from_its_start(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"old content\n")
    reader = Lines(Follower([str(file)]))
    reader.look()
    file.unlink()
    file.write_bytes(b"new content, longer than the old\n")  # many filesystems give the freed inode again
    reader.look(2)
    assert reader.lines == [b"old content", b"new content, longer than the old"]


@pytest.mark.skipif(os.geteuid() == 0 and not hasattr(os, "setresuid"), reason="needs another user")
def test_an_unreadable_file_is_a_trouble_until_it_can_be_read(tmp_path: Path) -> None:
    """Root may read everything, so the test reads as another user."""
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent != Path("/") and not parent.stat().st_mode & stat.S_IXOTH:
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH)
    file = tmp_path / "a.log"
    file.write_bytes(b"x\n")
    file.chmod(0o000)
    reader = Lines(Follower([str(file)]))
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        assert str(file) in reader.look().troubles
        assert reader.lines == []
    finally:
        if was_root:
            os.seteuid(0)
    file.chmod(0o644)
    assert reader.look().troubles == {}
    assert reader.lines == [b"x"]


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    look = Follower([str(tmp_path / "pipe"), "/dev/zero", "/dev/null", str(tmp_path)]).look(1)
    assert look.chunks == []
    assert set(look.troubles) == {str(tmp_path / "pipe"), "/dev/zero", str(tmp_path)}


def test_files_of_another_user_are_not_read_through_a_link_either(tmp_path: Path) -> None:
    (tmp_path / "mine.log").write_bytes(b"x\n")
    (tmp_path / "link.log").symlink_to("mine.log")
    reader = Lines(Follower([str(tmp_path / "*.log")], owner=os.geteuid() + 1))
    look = reader.look()
    assert reader.lines == []
    assert set(look.troubles.values()) == {"not a file of the job's user"}


def test_reads_are_bounded_and_fair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "CHUNKS", 2)
    for name in "abcd":
        (tmp_path / f"{name}.log").write_bytes(b"x" * 1000)
    follower = Follower([str(tmp_path / "*.log")], chunk=100)
    read = []
    for now in range(1, 5):
        look = follower.look(float(now))
        assert look.behind
        assert sum(len(c.data) for c in look.chunks) <= 200
        read += [Path(c.path).name for c in look.chunks]
    assert {name: read.count(name) for name in set(read)} == {f"{n}.log": 2 for n in "abcd"}


class Files(RuleBasedStateMachine):
    """Any order of writes, cuts, rewrites, rotations, looks and restarts reads every line exactly once.

    No two lines begin alike: content that goes on like what it replaced cannot be told from a file that grew.
    """

    @initialize()
    def begin(self) -> None:
        import tempfile

        self.tmp = tempfile.TemporaryDirectory()
        self.file = Path(self.tmp.name) / "train.log"
        self.file.write_bytes(b"")
        self.reader = Lines(Follower([str(self.file)], chunk=37))
        self.reader.settle()
        self.written = 0
        self.expected: list[bytes] = []
        self.half = b""
        self.rotations = 0

    def _line(self) -> bytes:
        self.written += 1
        return b"%04d is a line of the log" % self.written

    @rule(count=st.integers(0, 12), cut=st.just(0) | st.integers(4, 30))
    def write(self, count: int, cut: int) -> None:
        data = b"".join(self._line() + b"\n" for _ in range(count)) + self._line()[:cut]
        with self.file.open("ab") as f:
            f.write(data)
        *whole, self.half = (self.half + data).split(b"\n")
        self.expected += whole

    @rule()
    def look(self) -> None:
        self.reader.look()

    @rule(lines=st.integers(0, 10))
    def truncate(self, lines: int) -> None:
        """What was not read before a truncation is lost, so it is read before."""
        self.reader.settle()
        if self.half:
            self.expected.append(self.half)
        new = [self._line() for _ in range(lines)]
        self.file.write_bytes(b"".join(line + b"\n" for line in new))
        self.expected += new
        self.half = b""
        self.reader.look()

    @rule(lines=st.integers(0, 10))
    def rotate(self, lines: int) -> None:
        self.reader.look()
        self.rotations += 1
        self.file.rename(f"{self.file}.{self.rotations}")
        new = [self._line() for _ in range(lines)]
        self.file.write_bytes(b"".join(line + b"\n" for line in new))
        self.expected += new
        self.half = b""  # the rotated file stays, and its last line is never finished
        self.reader.look()

    @rule()
    def restart(self) -> None:
        """Killed: only whole lines that were taken are known to have been read."""
        saved, lines = self.reader.saved(), self.reader.lines
        self.reader = Lines(Follower([str(self.file)], saved, chunk=37))
        self.reader.lines = lines

    @invariant()
    def nothing_is_read_twice(self) -> None:
        if hasattr(self, "reader"):
            assert len(self.reader.lines) == len(set(self.reader.lines))

    def teardown(self) -> None:
        if hasattr(self, "reader"):
            self.reader.settle()
            self.reader.settle()
            assert sorted(self.reader.lines) == sorted(self.expected)
            self.tmp.cleanup()


TestFiles = Files.TestCase
TestFiles.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=3000), chunk=st.integers(1, 500))
def test_any_bytes_come_through_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, chunk: int
) -> None:
    file = tmp_path_factory.mktemp("bytes") / "a.log"
    file.write_bytes(data)
    follower = Follower([str(file)], chunk=chunk)
    got = b""
    for now in range(1, 10_000):
        look = follower.look(float(now))
        got += b"".join(c.data for c in look.chunks)
        if not look.behind:
            break
    assert got == data
