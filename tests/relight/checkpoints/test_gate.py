"""The gate itself: what it refuses, what is in progress, links, budgets, and what it says."""

import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from relight.checkpoints import CheckpointError, Report, State, inspect
from relight.checkpoints.budget import Budget, Level, OverBudgetError
from relight.checkpoints.layouts import dcp
from relight.contracts.policy import CheckpointLayout
from tests.relight.checkpoints.builders import (
    age,
    link,
    torch_zip,
    write_dcp,
    write_files,
    write_run,
    write_sparse_dcp,
)


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No such file or directory"):
        inspect(tmp_path / "nowhere")


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(CheckpointError, match="Not a directory"):
        inspect(tmp_path / "x")


def test_an_unknown_layout_is_an_error_that_names_the_known(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no layout 'caffe'.*megatron"):
        inspect(tmp_path, layout="caffe")


@pytest.mark.parametrize("files", [{}, {"train.log": b"hello"}, {"runs/events.out": b"x"}])
def test_a_directory_without_checkpoints_is_empty(files: dict[str, bytes], tmp_path: Path) -> None:
    write_files(tmp_path, files)
    report = inspect(tmp_path)
    assert (report.empty, report.newest_usable, report.checkpoints) == (True, None, ())


def test_unrecognised_weights_are_not_empty(tmp_path: Path) -> None:
    write_files(tmp_path, {"a/b/c/weights.pt": torch_zip()})
    report = inspect(tmp_path)
    assert (report.empty, report.newest_usable, report.layout) == (False, None, "unknown")
    assert "no layout is recognised" in report.summary


def test_nothing_usable_is_said(tmp_path: Path) -> None:
    for name in write_run(tmp_path, "lightning"):
        (tmp_path / name).write_bytes(b"")
    age(tmp_path)
    report = inspect(tmp_path)
    assert report.newest_usable is None
    assert not report.empty
    assert report.summary.startswith("none of 3 lightning checkpoints is usable")
    assert [c.state for c in report.checkpoints] == [State.CORRUPT] * 3


def test_a_save_under_way_is_in_progress_and_a_dead_one_is_not(tmp_path: Path) -> None:
    write_dcp(tmp_path / "step-1")
    write_dcp(tmp_path / "step-2")
    (tmp_path / "step-2" / ".metadata").unlink()
    age(tmp_path / "step-1")
    assert inspect(tmp_path).checkpoints[0].state is State.IN_PROGRESS
    age(tmp_path / "step-2")
    assert inspect(tmp_path).checkpoints[0].state is State.INCOMPLETE


def test_a_torn_file_just_written_is_in_progress_unless_the_save_was_committed(tmp_path: Path) -> None:
    write_run(tmp_path, "torch-save", steps=[100])
    write_files(tmp_path, {"ckpt_200.pt": torch_zip()[:1000]})
    assert inspect(tmp_path).checkpoints[0].state is State.IN_PROGRESS
    write_files(tmp_path / "b", {"step_2/model.pt": torch_zip()[:1000], "step_2/COMPLETE": b""})
    assert inspect(tmp_path / "b").checkpoints[0].state is State.CORRUPT


def test_modification_times_do_not_decide(tmp_path: Path) -> None:
    write_run(tmp_path, "torchtitan", steps=(100, 200))
    for path in (tmp_path / "step-100").iterdir():
        os.utime(path, (time.time() - 300, time.time() - 300))
    assert inspect(tmp_path).step == 200


def test_files_that_are_none_are_passed_over(tmp_path: Path) -> None:
    write_run(tmp_path, "marker")
    os.mkfifo(tmp_path / "step_00001100" / "pipe.pt")
    link(tmp_path / "step_00001100", "zero.pt", "/dev/zero")
    link(tmp_path / "step_00001100", "loop", ".")
    link(tmp_path, "self", ".")
    link(tmp_path, "dangling.pt", "nowhere")
    os.utime(tmp_path / "step_00001100" / "COMPLETE", (1, 1))
    report = inspect(tmp_path, deep=True, budget=timedelta(seconds=20))
    assert report.step == 1100
    assert report.checkpoints[0].bytes < 20_000


def test_a_checkpoint_on_another_disk_behind_a_link(tmp_path: Path) -> None:
    write_dcp(tmp_path / "other" / "x")
    (tmp_path / "run").mkdir()
    link(tmp_path / "run", "step-5", str(tmp_path / "other" / "x"))
    age(tmp_path / "other")
    assert inspect(tmp_path / "run").step == 5


@pytest.mark.parametrize("target", ["/", "..", "/proc"])
def test_a_link_does_not_lead_over_the_whole_machine(target: str, tmp_path: Path) -> None:
    root = tmp_path / "run"
    write_run(root, "marker")
    link(root, "step_00001200", target)
    if target == "/proc" and os.geteuid() == 0:  # else it has another owner anyway
        os.chown(root, 4711, -1)
    report = inspect(root)
    assert (report.step, len(report.checkpoints)) == (1100, 3)
    assert report.notes == ("step_00001200 is a link out of the directory, not followed",)


def test_names_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, "marker")
    (tmp_path / os.fsdecode(b"step_\xff")).mkdir()
    report = inspect(tmp_path)
    assert report.step == 1100
    assert report.model_dump_json()
    assert any("not UTF-8" in note for note in report.notes)


def test_unreadable_parts_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, "marker")
    real = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("step_00001100"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    report = inspect(tmp_path)
    assert report.step == 1000
    assert report.notes == ("cannot read step_00001100: Permission denied",)


def test_a_file_that_vanishes_meanwhile_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, "lightning")
    gone = tmp_path / "epoch=1-step=1100.ckpt"
    real = os.open

    def open_(path: str, flags: int) -> int:
        if str(path) == str(gone):
            raise FileNotFoundError(2, "No such file or directory")
        return real(path, flags)

    monkeypatch.setattr(os, "open", open_)
    report = inspect(tmp_path)
    assert (report.step, report.checkpoints[0].state) == (1000, State.INCOMPLETE)


def test_deep_finds_what_headers_cannot(tmp_path: Path) -> None:
    for variant in ("lightning", "torchtitan"):
        root = tmp_path / variant
        names = write_run(root, variant)
        victim = root / names[-1] if variant == "lightning" else root / names[-1] / "__1_0.distcp"
        content = bytearray(victim.read_bytes())
        content[len(content) // 4] ^= 1
        victim.write_bytes(content)
        age(root)
        assert inspect(root).newest_usable == names[-1]
        report = inspect(root, deep=True)
        assert report.newest_usable == names[-2]
        assert "checksum" in report.checkpoints[0].reason


def test_when_the_time_is_used_up_that_is_said(tmp_path: Path) -> None:
    write_sparse_dcp(tmp_path / "step-1", shards=300)
    age(tmp_path)
    clock = iter(range(1000))
    budget = Budget(5, clock=lambda: next(clock))
    budget.check_time()
    with pytest.raises(OverBudgetError, match="5 s"):
        [budget.check_time() for _ in range(6)]
    with pytest.raises(CheckpointError, match="could not be listed: the time budget of 0 s is used up"):
        inspect(tmp_path, budget=timedelta(0))


def test_when_the_bytes_are_used_up_that_is_said() -> None:
    budget = Budget(60, limits={Level.HEADERS: 100})
    budget.spend(Level.HEADERS, 60)
    with pytest.raises(OverBudgetError, match="100 bytes for headers"):
        budget.spend(Level.HEADERS, 60)
    budget.spend(Level.HEADERS, 40)


def test_an_index_too_large_to_follow_still_names_its_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dcp, "MAX_METADATA", 100)
    monkeypatch.setattr(dcp, "_CHUNK", 64)
    write_dcp(tmp_path / "step-1", shards=5)
    write_dcp(tmp_path / "step-2", shards=5)
    age(tmp_path)
    report = inspect(tmp_path)
    assert report.step == 2
    assert "names of 5 shards" in report.checkpoints[0].checked
    (tmp_path / "step-2" / "__3_0.distcp").unlink()
    assert inspect(tmp_path).step == 1
    write_dcp(tmp_path / "step-2", shards=5)
    with (tmp_path / "step-2" / "__3_0.distcp").open("r+b") as file:
        file.truncate(1500)
    age(tmp_path)
    assert inspect(tmp_path).step == 1


def test_older_ones_are_not_read_once_enough_are_usable(tmp_path: Path) -> None:
    names = write_run(tmp_path, "torchtitan", steps=(1, 2, 3))
    (tmp_path / names[0] / "__0_0.distcp").write_bytes(b"damaged")
    age(tmp_path)
    report = inspect(tmp_path, enough=2)
    assert "not read: newer ones are usable" in report.checkpoints[2].checked
    assert "headers" in report.checkpoints[1].checked
    assert inspect(tmp_path).checkpoints[2].state is State.CORRUPT


def test_nothing_is_written(tmp_path: Path) -> None:
    write_run(tmp_path, "hf-trainer")
    before = {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")}
    for path in sorted(tmp_path.rglob("*")):
        path.chmod(0o500 if path.is_dir() else 0o400)
    inspect(tmp_path, deep=True)
    assert {p: (p.stat().st_mtime_ns, p.stat().st_size) for p in tmp_path.rglob("*")} == before


def test_a_report_survives_json(tmp_path: Path) -> None:
    write_run(tmp_path, "hf-trainer")
    report = inspect(tmp_path)
    assert Report.model_validate_json(report.model_dump_json()) == report


DESCRIBED = CheckpointLayout(
    name="ours", glob="run-*/save_*", step=r"save_(\d+)", marker="_done", needs=("w/*.bin", "meta.txt")
)


def test_a_layout_that_the_policy_describes(tmp_path: Path) -> None:
    for step in (9, 10, 11):
        place = f"run-a/save_{step}"
        write_files(tmp_path, {f"{place}/w/0.bin": b"x" * 9, f"{place}/meta.txt": b"", f"{place}/_done": b""})
    age(tmp_path)
    report = inspect(tmp_path, layout=DESCRIBED)
    assert (report.layout, report.newest_usable, report.step) == ("ours", "run-a/save_11", 11)
    (tmp_path / "run-a/save_11/_done").unlink()
    (tmp_path / "run-a/save_10/meta.txt").unlink()
    report = inspect(tmp_path, layout=DESCRIBED)
    assert report.step == 9
    assert [c.reason for c in report.checkpoints[:2]] == [
        "the marker _done is missing",
        "nothing matches meta.txt",
    ]


def test_a_described_layout_of_single_files(tmp_path: Path) -> None:
    write_files(
        tmp_path, {"s1.dat": b"x", "s1.dat.ok": b"", "s2.dat": b"x", "s2.dat.ok": b"", "s3.dat": b"x"}
    )
    age(tmp_path)
    report = inspect(tmp_path, layout=CheckpointLayout(glob="s*.dat", marker=".ok"))
    assert (report.newest_usable, report.step, len(report.checkpoints)) == ("s2.dat", 2, 3)


@pytest.mark.parametrize("step", ["(", r"\d+"])
def test_a_description_needs_a_group_for_the_step(step: str) -> None:
    with pytest.raises(ValueError, match="regular expression"):
        CheckpointLayout(glob="*", step=step)
