import json
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from activities.snapshot_job import load_snapshot, snapshot_job
from relight.contracts.steps import ATTEMPT_CHANGED, UNREACHABLE, PollInput
from tests.activities.conftest import FIRST, Runner, training
from tests.activities.double import SCRIPT, T0, Double


async def test_saved_for_the_worker_only(run: Runner, tmp_path: Path) -> None:
    text = await run(snapshot_job, PollInput(job=training()))
    assert SCRIPT not in text
    path = tmp_path / "state" / "jobs" / "lab" / f"42-{int(T0.timestamp())}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads(path.read_text())["script"] == SCRIPT
    assert [p.name for p in path.parent.iterdir()] == [path.name]


async def test_an_attempt_finds_the_copy_of_its_own_job(run: Runner, double: Double) -> None:
    settings = run.context.settings
    assert load_snapshot(settings, FIRST) is None
    await run(snapshot_job, PollInput(job=training()))
    requeued = FIRST.model_copy(update={"restart_count": 1, "submit_time": T0 + timedelta(hours=2)})
    before = FIRST.model_copy(update={"submit_time": T0 - timedelta(hours=2)})
    other = FIRST.model_copy(update={"job_id": "4"})
    found = load_snapshot(settings, requeued)
    assert found is not None
    assert found.script == SCRIPT
    assert load_snapshot(settings, before) is None
    assert load_snapshot(settings, other) is None


@pytest.mark.parametrize("damage", ["", "{", '{"nodes": "many"}'])
async def test_a_damaged_copy_is_none(run: Runner, tmp_path: Path, damage: str) -> None:
    await run(snapshot_job, PollInput(job=training()))
    (path,) = (tmp_path / "state" / "jobs" / "lab").iterdir()
    path.write_text(damage)
    assert load_snapshot(run.context.settings, FIRST) is None


async def test_another_job_with_the_same_id(run: Runner, double: Double) -> None:
    double.set(submit_time=T0 + timedelta(days=3))
    await run.fails(snapshot_job, PollInput(job=training()), ATTEMPT_CHANGED)


async def test_unreachable(run: Runner, double: Double) -> None:
    double.lose["job"] = "before"
    await run.fails(snapshot_job, PollInput(job=training()), UNREACHABLE)
