import os
from pathlib import Path
from typing import Any

import pytest

from activities.inside import Inside, OutsideError
from activities.locate_checkpoint import locate_checkpoint
from activities.steer_checkpoint import steer_checkpoint
from relight.checkpoints import inspect
from relight.checkpoints.own_choice import own_choice, usable
from relight.contracts import JobState, Policy
from relight.contracts.outcome import CheckpointRef
from relight.contracts.policy import Steer
from relight.contracts.steps import ATTEMPT_CHANGED, REFUSED, LocateInput, LocateResult, SteerInput
from tests.activities.conftest import FIRST, RECOVERY, Runner, training
from tests.activities.double import Double
from tests.relight.checkpoints.builders import LAYOUT_OF, WRITERS, age, files_of, write_run
from tests.relight.checkpoints.test_layouts import NOT_SEEN

MARK = "relight-recover-lab-42-0-abcd"
TRACKER = "latest_checkpointed_iteration.txt"


@pytest.fixture(autouse=True)
def _held(double: Double) -> None:
    double.set(state=JobState.PENDING, held=True, nodes=())


def given(root: Path, way: Steer, name: str, step: int | None = 1000, **more: Any) -> SteerInput:
    job = training(checkpoint_dir=str(root), policy=Policy(steer=way))
    return SteerInput(
        job=job, attempt=FIRST, recovery_id=RECOVERY, checkpoint=CheckpointRef(name=name, step=step), **more
    )


def broken(root: Path, variant: str) -> list[str]:
    """A run whose newest checkpoint is cut off."""
    names = write_run(root, variant)
    for path in files_of(root, names[-1]):
        if path.stat().st_size > 100:
            path.write_bytes(path.read_bytes()[:-50])
    (root / "checkpoint_last.pt").unlink(missing_ok=True)
    age(root)
    return names


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("variant", "file", "old", "new"),
    [
        ("megatron", TRACKER, "1100", "1000"),
        ("megatron-dist", TRACKER, "1100", "1000"),
        ("deepspeed", "latest", "global_step1100", "global_step1000"),
        ("gpt-neox", "latest", "global_step1100", "global_step1000"),
    ],
)
async def test_the_pointer_is_set_once_and_its_old_content_kept(
    run: Runner, tmp_path: Path, variant: str, file: str, old: str, new: str
) -> None:
    names = broken(tmp_path, variant)
    before = snapshot(tmp_path)
    steer = given(tmp_path, Steer.POINTER, names[-2])
    first = await run(steer_checkpoint, steer)
    kept = f"{file}.{MARK}"
    assert snapshot(tmp_path) == before | {file: new.encode(), kept: old.encode()}
    assert first.changed == (f"{file}: {old} -> {new} (old content in {kept})",)
    again = await run(steer_checkpoint, steer.model_copy(update={"tries": 1}))
    assert snapshot(tmp_path) == before | {file: new.encode(), kept: old.encode()}
    assert again == first
    report = inspect(tmp_path)
    assert report.pointer == names[-2]
    assert not report.pointer_disagrees


@pytest.mark.parametrize("lost_after", ["backup", "scratch"])
async def test_a_try_that_was_lost_half_way(run: Runner, tmp_path: Path, lost_after: str) -> None:
    names = broken(tmp_path, "megatron")
    (tmp_path / f"{TRACKER}.{MARK}").write_text("1100")
    if lost_after == "scratch":
        (tmp_path / f".{TRACKER}.relight").write_text("10")
    await run(steer_checkpoint, given(tmp_path, Steer.POINTER, names[-2]))
    assert (tmp_path / TRACKER).read_text() == "1000"
    assert (tmp_path / f"{TRACKER}.{MARK}").read_text() == "1100"
    assert not (tmp_path / f".{TRACKER}.relight").exists()


async def test_a_pointer_that_is_missing_is_made(run: Runner, tmp_path: Path) -> None:
    names = write_run(tmp_path, "deepspeed")
    (tmp_path / "latest").unlink()
    await run(steer_checkpoint, given(tmp_path, Steer.POINTER, names[-1], 1100))
    assert (tmp_path / "latest").read_text() == names[-1]
    assert not list(tmp_path.glob("latest.*"))


@pytest.mark.parametrize("variant", [v for v in WRITERS if (v, "truncated") not in NOT_SEEN])
async def test_bad_ones_are_moved_aside_once_and_nothing_is_deleted(
    run: Runner, tmp_path: Path, variant: str
) -> None:
    names = broken(tmp_path, variant)
    before = snapshot(tmp_path)
    steer = given(tmp_path, Steer.MOVE_ASIDE, names[-2])
    first = await run(steer_checkpoint, steer)
    moved = [f"mp_rank_0{n}/{names[-1]}" for n in range(2)] if variant == "nemo" else [names[-1]]
    assert set(first.changed) >= {f"{path} -> {MARK}/{path}" for path in moved}
    after = snapshot(tmp_path)
    assert set(before.values()) <= set(after.values())
    for path in moved:
        assert (tmp_path / MARK / path).exists()
        assert not (tmp_path / path).exists()
    assert await run(steer_checkpoint, steer) == first
    assert snapshot(tmp_path) == after
    report = inspect(tmp_path)  # neither relight nor a framework takes it for a checkpoint any more
    assert report.layout == LAYOUT_OF.get(variant, variant)
    best = usable(report)
    assert best is not None
    assert best.name == names[-2]
    if report.pointer != names[-1]:  # such a plan asks a person: relight cannot set this kind of pointer
        assert own_choice(report, best) is None


async def test_nothing_to_do(run: Runner, tmp_path: Path) -> None:
    names = write_run(tmp_path, "megatron")
    before = snapshot(tmp_path)
    for way in Steer:
        result = await run(steer_checkpoint, given(tmp_path, way, names[-1], 1100))
        assert result.changed == ()
        assert "nothing had to be changed" in result.summary
    assert snapshot(tmp_path) == before


async def test_back_behind_a_divergence(run: Runner, tmp_path: Path) -> None:
    names = write_run(tmp_path, "hf-trainer")
    diverged = CheckpointRef(name=names[1], step=1000)
    steer = given(tmp_path, Steer.MOVE_ASIDE, names[0], 900, diverged_from=diverged)
    result = await run(steer_checkpoint, steer)
    assert len(result.changed) == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([names[0], MARK])


async def test_a_run_whose_checkpoints_lie_deeper(run: Runner, tmp_path: Path) -> None:
    names = broken(tmp_path / "checkpoints", "megatron")
    for way in (Steer.POINTER, Steer.MOVE_ASIDE):
        await run(steer_checkpoint, given(tmp_path, way, f"checkpoints/{names[-2]}"))
    assert (tmp_path / "checkpoints" / TRACKER).read_text() == "1000"
    assert (tmp_path / "checkpoints" / f"{TRACKER}.{MARK}").read_text() == "1100"


@pytest.mark.parametrize(
    "fields", [{"state": JobState.RUNNING}, {"restart_count": 1}, {"state": JobState.CONFIGURING}]
)
async def test_nothing_is_moved_under_a_job_that_runs(
    run: Runner, double: Double, tmp_path: Path, fields: dict[str, Any]
) -> None:
    names = broken(tmp_path, "megatron")
    before = snapshot(tmp_path)
    double.set(**fields)
    await run.fails(steer_checkpoint, given(tmp_path, Steer.POINTER, names[-2]), ATTEMPT_CHANGED)
    assert snapshot(tmp_path) == before


async def test_a_job_that_the_scheduler_forgot(run: Runner, double: Double, tmp_path: Path) -> None:
    names = broken(tmp_path, "megatron")
    double.known.clear()
    await run(steer_checkpoint, given(tmp_path, Steer.POINTER, names[-2]))
    assert (tmp_path / TRACKER).read_text() == "1000"


async def test_a_checkpoint_that_broke_meanwhile_is_refused(run: Runner, tmp_path: Path) -> None:
    names = broken(tmp_path, "megatron")
    (files_of(tmp_path, names[-2])[0]).write_bytes(b"")
    age(tmp_path)
    before = snapshot(tmp_path)
    text = await run.fails(steer_checkpoint, given(tmp_path, Steer.POINTER, names[-2]), REFUSED)
    assert "not the newest usable checkpoint any more" in text
    assert snapshot(tmp_path) == before


# ---- out of the directory there is no way ----------------------------------------


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "precious").write_text("1100")
    return path


@pytest.mark.parametrize("trap", ["pointer", "backup", "scratch", "dangling"])
async def test_links_in_place_of_the_pointer(run: Runner, tmp_path: Path, outside: Path, trap: str) -> None:
    root = tmp_path / "run"
    names = broken(root, "megatron")
    name = {"backup": f"{TRACKER}.{MARK}", "scratch": f".{TRACKER}.relight"}.get(trap, TRACKER)
    target = outside / ("new" if trap == "dangling" else "precious")
    (root / name).unlink(missing_ok=True)
    (root / name).symlink_to(target)
    steer = given(root, Steer.POINTER, names[-2])
    if trap == "scratch":
        await run(steer_checkpoint, steer)
        assert (root / TRACKER).read_text() == "1000"
    else:
        await run.fails(steer_checkpoint, steer, REFUSED)
    assert snapshot(outside) == {"precious": b"1100"}


async def test_a_link_in_place_of_the_directory_for_bad_ones(
    run: Runner, tmp_path: Path, outside: Path
) -> None:
    root = tmp_path / "run"
    names = broken(root, "hf-trainer")
    (root / MARK).symlink_to(outside)
    await run.fails(steer_checkpoint, given(root, Steer.MOVE_ASIDE, names[-2]), REFUSED)
    assert snapshot(outside) == {"precious": b"1100"}
    assert (root / names[-1]).exists()


async def test_a_checkpoint_that_is_a_link_is_moved_itself(run: Runner, tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    names = broken(root, "hf-trainer")
    (root / names[-1]).rename(elsewhere)
    (root / names[-1]).symlink_to(elsewhere)
    await run(steer_checkpoint, given(root, Steer.MOVE_ASIDE, names[-2]))
    assert (root / MARK / names[-1]).is_symlink()
    assert elsewhere.is_dir()


@pytest.mark.parametrize(
    "path", ["..", "../x", "a/../../x", "/etc/passwd", "", ".", "a//b", "link/x", "a\0b"]
)
def test_paths_that_lead_out(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "x").touch()
    (root / "a").mkdir()
    (root / "link").symlink_to(tmp_path)
    with Inside.open(str(root), None) as inside:
        for change in (
            lambda: inside.read(path),
            lambda: inside.write(path, "text", like=path),
            lambda: inside.move(path, "aside/x"),
            lambda: inside.move("a", path),
        ):
            with pytest.raises(OutsideError):
                change()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["root", "x"]


def test_nothing_but_small_plain_files_is_read_or_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"x" * 5000)
    (tmp_path / "dir").mkdir()
    with Inside.open(str(tmp_path), None) as inside:
        for name in ("fifo", "large", "dir"):
            with pytest.raises(OutsideError):
                inside.write(name, "text", like=name)
        assert inside.read("none") is None
        (tmp_path / "aside").mkdir()
        (tmp_path / "aside" / "dir").mkdir()
        with pytest.raises(OutsideError, match="already"):
            inside.move("dir", "aside/dir")


def test_what_is_written_belongs_to_the_jobs_user(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.fail("needs root, to make a file of another user")
    root = tmp_path / "run"
    root.mkdir()
    (root / "latest").write_text("a")
    (root / "latest").chmod(0o640)
    (root / "bad").touch()
    for path in (root, root / "latest", root / "bad"):
        os.chown(path, 12345, 23456)
    with pytest.raises(OutsideError, match="does not belong"), Inside.open(str(root), 1):
        pass
    with Inside.open(str(root), 12345) as inside:
        inside.write("latest", "b", like="latest")
        inside.write("new", "b", like="new")
        inside.move("bad", "aside/bad")
    for name, mode in (("latest", 0o640), ("new", 0o644), ("aside", 0o755)):
        found = (root / name).stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (12345, 23456, mode)


# ---- what the plan is told beforehand --------------------------------------------


async def locate(run: Runner, root: Path, way: Steer, **more: Any) -> LocateResult:
    job = training(checkpoint_dir=str(root), policy=Policy(steer=way))
    result: LocateResult = await run(locate_checkpoint, LocateInput(job=job, **more))
    return result


async def test_what_the_job_would_load_is_told(run: Runner, tmp_path: Path) -> None:
    names = broken(tmp_path, "hf-trainer")
    found = await locate(run, tmp_path, Steer.LEAVE)
    assert (found.name, found.own, found.cannot_steer) == (names[-2], names[-1], "")
    assert "corrupt" in found.own_problem
    assert (await locate(run, tmp_path, Steer.MOVE_ASIDE)).cannot_steer == ""
    assert "no pointer file" in (await locate(run, tmp_path, Steer.POINTER)).cannot_steer


async def test_a_pointer_of_another_kind_cannot_be_set(run: Runner, tmp_path: Path) -> None:
    broken(tmp_path, "composer")
    assert "cannot set it" in (await locate(run, tmp_path, Steer.MOVE_ASIDE)).cannot_steer


async def test_a_pointer_that_the_script_keeps_is_set_too(run: Runner, tmp_path: Path) -> None:
    """A layout of no one framework: what the script's own file names is what it loads."""
    names = broken(tmp_path, "dcp")
    pointer = tmp_path / "latest"
    assert "no pointer file" in (await locate(run, tmp_path, Steer.POINTER)).cannot_steer
    pointer.write_text("step_0\0\0")
    age(tmp_path)
    for way in (Steer.POINTER, Steer.MOVE_ASIDE):
        found = await locate(run, tmp_path, way)
        assert (found.name, found.cannot_steer) == (names[-2], "")
        assert found.own_problem == "there is no such checkpoint"
    await run(steer_checkpoint, given(tmp_path, Steer.MOVE_ASIDE, names[-2]))
    assert pointer.read_text() == names[-2]
    assert (tmp_path / MARK / names[-1]).is_dir()
    assert (tmp_path / f"latest.{MARK}").read_text() == "step_0\0\0"
    assert (await locate(run, tmp_path, Steer.MOVE_ASIDE)).own is None


async def test_a_pointer_that_is_a_link_is_told_beforehand(run: Runner, tmp_path: Path) -> None:
    names = broken(tmp_path, "dcp")
    (tmp_path / "latest").symlink_to(names[-1])
    assert "is a link" in (await locate(run, tmp_path, Steer.MOVE_ASIDE)).cannot_steer


async def test_an_earlier_one_after_a_divergence(run: Runner, tmp_path: Path) -> None:
    names = write_run(tmp_path, "hf-trainer")
    found = await locate(run, tmp_path, Steer.LEAVE, diverged_from=CheckpointRef(name=names[-1], step=1100))
    assert (found.name, found.step, found.own) == (names[-2], 1000, names[-1])
    assert "diverged" in found.own_problem
    assert "diverged" in found.summary
    assert [r.name for r in found.rejected] == [names[-1]]
    none = await locate(run, tmp_path, Steer.LEAVE, diverged_from=CheckpointRef(step=900))
    assert (none.name, none.empty) == (None, False)
