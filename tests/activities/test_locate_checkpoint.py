import getpass
import os
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError

from activities.locate_checkpoint import UNREADABLE, locate_checkpoint
from relight.contracts import Policy, TrainingJob
from relight.contracts.policy import CheckpointLayout
from relight.contracts.steps import LocateInput, LocateResult
from tests.activities.conftest import Runner, training


def checkpoint(root: Path, step: int, complete: bool = True) -> Path:
    path = root / f"step_{step:08d}"
    path.mkdir(parents=True)
    (path / "weights.bin").write_bytes(b"w" * 100)
    if complete:
        (path / "COMPLETE").touch()
    os.utime(path / "weights.bin", (1_700_000_000, 1_700_000_000))
    return path


def find(root: Path | None, **fields: object) -> LocateInput:
    return LocateInput(job=training(checkpoint_dir=str(root) if root else None, **fields))


async def test_the_newest_complete_one(run: Runner, tmp_path: Path) -> None:
    checkpoint(tmp_path, 110)
    checkpoint(tmp_path, 120)
    checkpoint(tmp_path, 130, complete=False)
    result = await run(locate_checkpoint, find(tmp_path))
    assert (result.name, result.step, result.empty) == ("step_00000120", 120, False)
    assert [r.step for r in result.rejected] == [130]
    assert result.rejected[0].reason
    assert result.summary


async def test_all_of_them_bad_is_not_empty(run: Runner, tmp_path: Path) -> None:
    checkpoint(tmp_path, 120, complete=False)
    checkpoint(tmp_path, 110, complete=False)
    result = await run(locate_checkpoint, find(tmp_path))
    assert (result.name, result.empty) == (None, False)


@pytest.mark.parametrize("where", ["unknown", "missing", "nothing in it"])
async def test_none_at_all(run: Runner, tmp_path: Path, where: str) -> None:
    (tmp_path / "empty").mkdir()
    root = {"unknown": None, "missing": tmp_path / "no", "nothing in it": tmp_path / "empty"}[where]
    result: LocateResult = await run(locate_checkpoint, find(root))
    assert (result.name, result.empty) == (None, True)
    assert result.summary


async def test_a_directory_that_is_none(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ApplicationError) as caught:
        await run(locate_checkpoint, find(tmp_path / "file"))
    assert caught.value.type == UNREADABLE
    assert not caught.value.non_retryable


async def test_a_described_layout(run: Runner, tmp_path: Path) -> None:
    for name in ("save-9", "save-10"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "done").touch()
    policy = Policy(checkpoint_layout=CheckpointLayout(glob="save-*", marker="done"))
    result = await run(locate_checkpoint, find(tmp_path, policy=policy))
    assert (result.name, result.step) == ("save-10", 10)


async def test_a_directory_of_another_user_that_the_jobs_user_named(run: Runner, tmp_path: Path) -> None:
    root = tmp_path / "theirs"
    checkpoint(root, 120)
    job: TrainingJob = training(checkpoint_dir=str(root), user=getpass.getuser(), opted_in=True)
    assert (await run(locate_checkpoint, LocateInput(job=job))).step == 120
    os.chown(root, 12345, 12345)
    with pytest.raises(ApplicationError, match="does not belong to"):
        await run(locate_checkpoint, LocateInput(job=job))
