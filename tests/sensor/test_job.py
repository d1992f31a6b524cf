"""What a look brought is kept until it is saved."""

from sensor.follow import Position
from sensor.job import WatchedJob
from sensor.messages import Message
from sensor.metrics import Metrics
from sensor.reading import Reading
from sensor.watch import JobWatch
from tests.sensor.making import JOB, START

A = Message(signal="report_attempt", key="a", payload="{}")
B = Message(signal="report_attempt", key="b", payload="{}")


def position(inode: int, read: int = 0) -> Position:
    return Position(path=f"/{inode}", device=1, inode=inode, read=read)


def make() -> WatchedJob:
    return WatchedJob(JobWatch("m", JOB, None, lambda part, e: None), (), fresh=True)


def test_nothing_is_lost_while_it_cannot_be_saved() -> None:
    job, metrics = make(), Metrics()
    job.note(Reading(began=START, positions=[position(1, 5), position(2)]), [A], metrics)
    assert job.unsaved() is not None  # and saving it fails
    job.note(Reading(began=START, positions=[position(1, 9)], gone=["1:2"]), [B], metrics)
    unsaved = job.unsaved()
    assert unsaved is not None
    assert (unsaved.positions, unsaved.gone, unsaved.messages) == ((position(1, 9),), ("1:2",), (A, B))
    job.saved(unsaved)
    assert job.unsaved() is None


def test_a_file_that_comes_back_under_its_old_inode_is_kept() -> None:
    job, metrics = make(), Metrics()
    job.note(Reading(began=START, gone=["1:2"]), [], metrics)
    job.note(Reading(began=START, positions=[position(2, 7)]), [], metrics)
    unsaved = job.unsaved()
    assert unsaved is not None
    assert unsaved.positions == (position(2, 7),)


def test_changed_memory_alone_is_saved_too() -> None:
    job = make()
    unsaved = job.unsaved()
    assert unsaved is not None
    job.saved(unsaved)
    job.watch.memory.silence_told = True
    assert job.unsaved() is not None
    job.watch.change_job(JOB.model_copy(update={"run": "renamed"}))
    assert job.unsaved() is not None
