"""What is saved is saved together, queued once, and bounded."""

import json
import sqlite3
import stat
from pathlib import Path

import pytest

from relight.contracts.messages import AttemptEvent, AttemptReport
from sensor.follow import Position
from sensor.messages import Message, attempt_message
from sensor.store import Store, StoreError
from tests.sensor.making import ATTEMPT, JOB, START


def message(key: str | None, *, droppable: bool = False) -> Message:
    return Message(signal="report_attempt", key=key, payload=json.dumps({"n": key}), droppable=droppable)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "state" / "sensor.sqlite3")


def test_a_watch_comes_back_as_it_was_saved(store: Store) -> None:
    position = Position(path="/a", device=1, inode=2, read=10, taken=9)
    store.save("m", JOB, '{"x": 1}', [position, Position(path="/b", device=1, inode=3)])
    store.save("m", JOB, '{"x": 2}', [], ["1:3"])
    again = Store(store.path).load()["m"]
    assert (again.job, again.memory, again.positions) == (JOB, '{"x": 2}', (position,))


def test_the_state_is_for_its_owner_only(store: Store) -> None:
    """Logs may hold secrets, and findings quote logs."""
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_the_same_thing_is_queued_once_even_after_it_was_sent(store: Store) -> None:
    store.save("m", JOB, "{}", messages=[message("a"), message("a"), message("b")])
    for queued in store.queued("m"):
        store.sent(queued.seq)
    store.save("m", JOB, "{}", messages=[message("a"), message("c")])
    store.save("other", JOB, "{}", messages=[message("a")])
    assert [q.payload for q in store.queued("m")] == ['{"n": "c"}']
    assert store.waiting() == ["m", "other"]


def test_a_full_outbox_gives_up_progress_first_and_counts(tmp_path: Path) -> None:
    store = Store(tmp_path / "s", max_messages=3)
    first = [message("a"), message(None, droppable=True), message("b"), message(None, droppable=True)]
    assert store.save("m", JOB, "{}", messages=first) == 1
    assert store.save("m", JOB, "{}", messages=[message("c")]) == 1
    assert [q.payload for q in store.queued("m")] == ['{"n": "a"}', '{"n": "b"}', '{"n": "c"}']
    assert store.save("m", JOB, "{}", messages=[message("d")]) == 1
    assert [q.payload for q in store.queued("m")] == ['{"n": "b"}', '{"n": "c"}', '{"n": "d"}']
    assert (store.dropped, store.depth()) == (3, 3)


def test_a_save_that_fails_saves_nothing(store: Store) -> None:
    store.save("m", JOB, '{"x": 1}')
    bad = Message.model_construct(signal=object(), key="k", payload="{}", droppable=False)
    with pytest.raises(sqlite3.Error):
        store.save(
            "m", JOB, '{"x": 2}', [Position(path="/a", device=1, inode=2)], messages=[message("a"), bad]
        )
    again = Store(store.path)
    assert again.load()["m"].memory == '{"x": 1}'
    assert again.load()["m"].positions == ()
    assert again.depth() == 0
    store.save("m", JOB, '{"x": 3}', messages=[message("a")])
    assert store.depth() == 1


def test_forgetting_a_job_keeps_what_it_has_to_be_told(store: Store) -> None:
    store.save("m", JOB, "{}", [Position(path="/a", device=1, inode=2)], messages=[message("a")])
    store.forget("m")
    assert store.load() == {}
    assert store.depth() == 1


def test_a_file_that_is_no_database_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "sensor.sqlite3"
    path.write_text("not a database, but long enough to be looked at" * 100)
    with pytest.raises(StoreError, match=r"sensor\.sqlite3"):
        Store(path)


def test_only_progress_may_be_given_up() -> None:
    droppable = {
        event: attempt_message(AttemptReport(attempt=ATTEMPT, event=event, at=START)).droppable
        for event in AttemptEvent
    }
    assert droppable == {AttemptEvent.STARTED: False, AttemptEvent.ENDED: False, AttemptEvent.PROGRESS: True}
