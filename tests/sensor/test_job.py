"""What a look brought is kept until it is saved."""

from pathlib import Path

from relight.config import Settings
from relight.contracts import Policy
from relight.diagnosis.catalogue import Catalogue
from relight.diagnosis.findings import StepLine
from sensor.follow import Position
from sensor.job import WatchedJob
from sensor.messages import Message
from sensor.metrics import Metrics
from sensor.reading import Reading
from sensor.watch import JobWatch
from tests.sensor.making import JOB, START, info

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


def test_the_policy_may_say_how_steps_look(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("tick 7 of the run\n")
    policy = Policy(step_patterns=(r"^tick (?P<step>\d+) of",))
    plain = JOB.model_copy(update={"log_paths": (str(log),)})
    job = WatchedJob(JobWatch("m", plain, None, lambda part, e: None), (), fresh=False)
    job.watch.memory.info = info(std_out="")

    def steps(seconds: float) -> list[int]:
        logs = job.logs(Catalogue.load(), Settings())
        assert logs is not None
        return [s.event.step for s in logs.look(seconds, START).seen if isinstance(s.event, StepLine)]

    assert steps(1) == []
    job.watch.change_job(plain.model_copy(update={"policy": policy}))
    with log.open("a") as f:
        f.write("tick 8 of the run\n")
    assert steps(2) == [8]


def test_a_pattern_of_no_use_leaves_the_built_in_ones() -> None:
    odd = JOB.model_copy(update={"policy": Policy(step_patterns=(r"(?P<step>\d+)(?=x)",))})
    job = WatchedJob(JobWatch("m", odd, None, lambda part, e: None), (), fresh=True)
    job.watch.memory.info = info()
    assert job.logs(Catalogue.load(), Settings()) is not None
