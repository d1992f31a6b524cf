"""Single jobs are read together: few requests, and the same answers and errors as one by one."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pytest

from relight.contracts import JobInfo, JobState
from relight.scheduler.port import NoSuchJob, SchedulerUnreachable
from relight.scheduler.together import Together

NOW = datetime(2026, 3, 1, tzinfo=UTC)


class Counted:
    """A scheduler that knows jobs 1 to 99, and forgets to list some."""

    def __init__(self, unlisted: Sequence[str] = (), error: Exception | None = None) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.single: list[str] = []
        self._unlisted, self._error = unlisted, error

    async def jobs(self, job_ids: Sequence[str]) -> Mapping[str, JobInfo]:
        self.asked.append(tuple(job_ids))
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        return {name: _info(name) for name in job_ids if int(name) < 100 and name not in self._unlisted}

    async def job(self, job_id: str) -> JobInfo:
        self.single.append(job_id)
        if int(job_id) >= 100:
            raise NoSuchJob(f"no job {job_id}")
        return _info(job_id)


def _info(job_id: str) -> JobInfo:
    return JobInfo(job_id=job_id, state=JobState.RUNNING, submit_time=NOW)


def _together(scheduler: Counted, moment: float = 0.2) -> Together:
    return Together(scheduler, moment)  # type: ignore[arg-type]


async def test_askers_of_one_moment_share_a_request() -> None:
    scheduler = Counted()
    together = _together(scheduler)
    found = await asyncio.gather(*(together.job(str(n)) for n in (*range(1, 51), 7)))
    assert [info.job_id for info in found] == [str(n) for n in (*range(1, 51), 7)]
    assert scheduler.asked == [tuple(str(n) for n in range(1, 51))]


async def test_who_asks_after_a_quiet_time_does_not_wait_and_the_next_ones_wait_together() -> None:
    scheduler = Counted()
    together = _together(scheduler)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await together.job("1")
    assert loop.time() - began < 0.1
    await asyncio.gather(together.job("2"), together.job("3"))
    assert 0.15 < loop.time() - began < 2
    assert scheduler.asked == [("1",), ("2", "3")]


async def test_a_job_that_is_missing_from_the_answer_is_asked_for_by_itself() -> None:
    scheduler = Counted(unlisted=("2",))
    together = _together(scheduler)
    found = await asyncio.gather(
        together.job("1"), together.job("2"), together.job("100"), return_exceptions=True
    )
    assert isinstance(found[0], JobInfo)
    assert isinstance(found[1], JobInfo)
    assert isinstance(found[2], NoSuchJob)
    assert sorted(scheduler.single) == ["100", "2"]


async def test_an_error_reaches_all_who_asked_and_the_next_ones_ask_again() -> None:
    scheduler = Counted(error=SchedulerUnreachable("away"))
    together = _together(scheduler, 0.01)
    found = await asyncio.gather(together.job("1"), together.job("2"), return_exceptions=True)
    assert all(isinstance(one, SchedulerUnreachable) for one in found)
    with pytest.raises(SchedulerUnreachable):
        await together.job("3")
    assert scheduler.asked == [("1", "2"), ("3",)]


async def test_who_gives_up_does_not_take_the_answer_from_the_others() -> None:
    scheduler = Counted()
    together = _together(scheduler)
    await together.job("9")
    first, second = asyncio.create_task(together.job("1")), asyncio.create_task(together.job("2"))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).job_id == "2"
    assert first.cancelled()
