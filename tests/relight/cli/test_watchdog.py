"""`relight watchdog` on the local scheduler, with no Temporal and no worker."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from activities.tag import read_tag, tagged
from relight.config import load_settings
from relight.contracts import JobInfo, JobState
from relight.scheduler.opening import open_scheduler
from relight.scheduler.port import SubmitRequest
from tests.relight.cli.conftest import Relight

PAST = datetime.now(UTC) - timedelta(hours=1)
FUTURE = PAST + timedelta(hours=9)


@pytest.fixture
def held(settings_file: Path) -> Any:
    """A job that was requeued and held, with relight's mark."""
    scheduler = open_scheduler(load_settings(settings_file))

    async def make(until: datetime | None = PAST, *, person: bool = False, by_user: bool = False) -> str:
        request = SubmitRequest(script="#!/bin/bash\nsleep 600\n", comment="mine", hold=by_user)
        job_id = await scheduler.submit(request)
        if not by_user:
            for _ in range(400):
                if (await scheduler.job(job_id)).state is JobState.RUNNING:
                    break
                await asyncio.sleep(0.05)
            await scheduler.requeue_hold(job_id)
        mark = tagged("mine", f"recover:local:{job_id}:0:abcd", "on its way", until, person=person)
        await scheduler.set_comment(job_id, mark)
        made.append(job_id)
        return job_id

    def look(job_id: str) -> JobInfo:
        return asyncio.run(scheduler.job(job_id))

    made: list[str] = []
    yield (lambda *a, **k: asyncio.run(make(*a, **k))), look
    for job_id in made:
        asyncio.run(scheduler.cancel(job_id))


def test_it_reports_and_changes_nothing(alone: Relight, held: Any) -> None:
    make, look = held
    job_id = make()
    before = look(job_id)
    done = alone("watchdog", "--json")
    assert done.exit_code == 8, done.stderr
    [hold] = json.loads(done.stdout)
    assert (hold["job_id"], hold["held"]) == (job_id, "on its way")
    assert (hold["releasable"], hold["released"]) == (True, False)
    after = look(job_id)  # its old processes may have ended meanwhile
    assert (after.held, after.comment, after.restart_count) == (True, before.comment, before.restart_count)
    text = alone("watchdog")
    assert text.exit_code == 8
    assert "scontrol release" in " ".join(text.stdout.split())


@pytest.mark.parametrize("by_setting", [False, True])
def test_it_releases_in_act_mode(alone: Relight, held: Any, settings_file: Path, by_setting: bool) -> None:
    make, look = held
    job_id = make()
    if by_setting:
        with settings_file.open("a") as file:
            file.write('[watchdog]\nmode = "act"\n')
    done = alone("watchdog", "--json", *([] if by_setting else ["--act"]))
    assert done.exit_code == 0, done.stderr
    [hold] = json.loads(done.stdout)
    assert hold["released"]
    info = look(job_id)
    assert not info.held
    tag = read_tag(info.comment)
    assert tag is not None
    assert (tag.held, tag.until) == ("", None)
    assert info.comment.startswith("mine ")
    again = alone("watchdog", "--act")
    assert again.exit_code == 0
    assert "no job is held" in again.stdout


@pytest.mark.parametrize(
    ("how", "says"),
    [({"person": True}, "waits for a person"), ({"by_user": True}, "somebody else may hold it"),
     ({"until": None}, "no deadline")],
)  # fmt: skip
def test_what_it_never_releases(alone: Relight, held: Any, how: dict[str, Any], says: str) -> None:
    make, look = held
    job_id = make(**how)
    done = alone("watchdog", "--act", "--json")
    assert done.exit_code == 8
    [hold] = json.loads(done.stdout)
    assert not hold["releasable"]
    assert says in hold["why"]
    assert look(job_id).held


def test_before_the_deadline_it_says_nothing(alone: Relight, held: Any) -> None:
    make, look = held
    job_id = make(FUTURE)
    done = alone("watchdog", "--act", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])
    assert look(job_id).held


def test_off(alone: Relight, held: Any) -> None:
    make, look = held
    job_id = make()
    done = alone("watchdog", "--json", RELIGHT_WATCHDOG__MODE="off")
    assert (done.exit_code, json.loads(done.stdout)) == (0, [])
    assert "is off" in done.stderr
    assert look(job_id).held
