"""A run's saves against its own rhythm."""

from datetime import datetime, timedelta

import pytest

from relight.contracts import Cause, JobState, Progress, Role, Symptom
from relight.contracts.steps import BadCheckpoint, CheckpointLook
from relight.policy.saves import KEPT, remember, trouble
from tests.workflows.samples import T0, attempt, info

HOUR = timedelta(hours=1)
NOW = T0 + 20 * HOUR
HOURLY = tuple(T0 + n * HOUR for n in range(1, 6))


def look(*bad: BadCheckpoint, saved_at: datetime | None = None) -> CheckpointLook:
    return CheckpointLook(directory="/ckpt", saved_at=saved_at, bad=bad)


def bad(state: str, age: timedelta) -> BadCheckpoint:
    return BadCheckpoint(name="step_9", state=state, reason="a shard is cut", modified_at=NOW - age)


def judge(
    found: CheckpointLook, saves: tuple[datetime, ...] = HOURLY, *, progress: bool = True, now: datetime = NOW
) -> str:
    reached = Progress(step=900, at=now) if progress else None
    running = info(JobState.RUNNING, start_time=T0)
    anomaly = trouble(saves, found, running, attempt(), reached, now)
    if anomaly is None:
        return ""
    assert (anomaly.symptom, anomaly.role) == (Symptom.DEGRADED, Role.CONTEXT)
    assert not any(e.trust for e in anomaly.evidence)
    return f"{anomaly.cause.value}: {anomaly.says}"


def test_no_new_checkpoint_for_far_longer_than_usual() -> None:
    said = judge(look())
    assert said.startswith(Cause.STORAGE.value)
    assert "900 min" in said
    assert "every 60 min" in said
    assert judge(look(), now=HOURLY[-1] + 3 * HOUR) == ""
    assert judge(look(), now=HOURLY[-1] + 3 * HOUR + timedelta(seconds=1)) != ""


def test_without_progress_or_a_rhythm_nothing_is_expected() -> None:
    assert judge(look(), progress=False) == ""
    assert judge(look(), HOURLY[:3]) == ""
    assert judge(look(), ()) == ""


def test_fast_saves_are_given_ten_minutes() -> None:
    fast = tuple(T0 + timedelta(seconds=10 * n) for n in range(6))
    assert judge(look(), fast, now=fast[-1] + timedelta(minutes=9)) == ""
    assert judge(look(), fast, now=fast[-1] + timedelta(minutes=11)) != ""


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (bad("corrupt", timedelta(minutes=1)), True),
        (bad("incomplete", timedelta(minutes=1)), False),
        (bad("incomplete", timedelta(minutes=11)), True),
        (bad("corrupt", 30 * HOUR), False),  # of an earlier attempt
    ],
)
def test_a_newest_checkpoint_that_cannot_be_used(found: BadCheckpoint, told: bool) -> None:
    said = judge(look(found), ())
    assert bool(said) is told
    assert said == "" or said.startswith(f"{Cause.CHECKPOINT_CORRUPT.value}: Checkpoint step_9")


def test_the_rhythm_is_learned_from_new_saves_only() -> None:
    saves: tuple[datetime, ...] = ()
    for n in range(30):
        saves = remember(saves, look(saved_at=T0 + (n // 2) * HOUR))
        saves = remember(saves, look())
    assert len(saves) == KEPT
    assert saves[-1] == T0 + 14 * HOUR
