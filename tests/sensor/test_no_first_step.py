"""An attempt that never makes its first step: how long its log may be silent, and when that is told."""

from datetime import timedelta

import pytest

from relight.contracts import JobState, NodeInfo, Policy, Symptom
from relight.diagnosis.findings import PhaseKind, PhaseLine
from relight.diagnosis.verdict import NO_FIRST_STEP
from sensor.detect.no_first_step import DETECTOR, silence_allowed, silent_since
from sensor.detect.silence import patient
from sensor.memory import MAX_STARTUPS, Memory, Startup
from tests.sensor.making import ATTEMPT, JOB, START, Scene, info, requeued, step

POLICY = Policy(
    hang_floor=timedelta(seconds=4), hang_factor=3.0, start_floor=timedelta(seconds=90), name="starts"
)
STARTS = JOB.model_copy(update={"policy": POLICY})


def startup(seconds: float, *, resumed: bool = True) -> Startup:
    return Startup(took=timedelta(seconds=seconds), resumed=resumed)


def quiet(scene: Scene, seconds: float) -> None:
    """The log says nothing for so long."""
    for _ in range(int(seconds / 0.5)):
        scene.tick(after=0.5)


def starting() -> Scene:
    """The attempt is seen to run, and prints something."""
    scene = Scene(job=STARTS)
    scene.tick(grew=True)
    return scene


@pytest.mark.parametrize(
    ("startups", "busy", "allowed"),
    [
        pytest.param([], False, 90, id="nothing is known"),
        pytest.param([startup(5)], False, 40, id="a short start: as right after the first step"),
        pytest.param([startup(5)], True, 90, id="the log says that it loads or compiles"),
        pytest.param([startup(5, resumed=False)], False, 90, id="from scratch there was nothing to load"),
        pytest.param([startup(20)], False, 60, id="three times as long"),
        pytest.param([startup(60)], False, 180, id="longer than start_floor"),
        pytest.param([startup(60, resumed=False)], False, 180, id="a long start from scratch counts too"),
        pytest.param([startup(20), startup(25, resumed=False)], False, 75, id="the longest of them"),
    ],
)
def test_how_long_a_start_may_be_silent(startups: list[Startup], busy: bool, allowed: float) -> None:
    assert silence_allowed(POLICY, startups, busy=busy) == timedelta(seconds=allowed)


@pytest.mark.parametrize(
    ("fields", "startups", "minutes"),
    [
        ({}, [], 30),
        ({}, [startup(60)], 10),
        ({}, [startup(240)], 12),
        ({"hang_floor": timedelta(hours=1)}, [], 60),
        ({"start_floor": timedelta(seconds=10)}, [startup(1)], 1),
    ],
)
def test_it_is_never_less_than_the_floor_of_hangs(
    fields: dict[str, timedelta], startups: list[Startup], minutes: float
) -> None:
    assert silence_allowed(Policy(**fields), startups, busy=False) == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    ("fields", "since"),
    [
        ({}, None),  # it does not run
        ({"running_since": START}, 0),
        ({"running_since": START, "written_at": START + timedelta(seconds=5)}, 5),
        # suspended, and resumed
        ({"running_since": START + timedelta(seconds=9), "written_at": START + timedelta(seconds=5)}, 9),
    ],
)
def test_since_when_it_is_silent(fields: dict[str, object], since: float | None) -> None:
    found = silent_since(Memory(attempt=ATTEMPT, **fields))  # type: ignore[arg-type]
    assert found == (None if since is None else START + timedelta(seconds=since))


def test_the_detector_has_one_name() -> None:
    assert DETECTOR == NO_FIRST_STEP


# In a watch


def test_a_log_that_falls_silent_before_the_first_step_is_a_hang() -> None:
    scene = starting()
    quiet(scene, 89)
    assert scene.anomalies() == []
    quiet(scene, 2)
    (told,) = scene.anomalies()
    assert (told.detector, told.symptom, told.progress) == (DETECTOR, Symptom.HANG, None)
    assert told.occurred_at == START + timedelta(seconds=1.25)
    assert told.suspects == ()
    assert told.evidence[0].where == "/logs/train.log"
    assert "nothing was written to the log for 90.0 s after its last line" in told.evidence[0].text


def test_a_log_that_goes_on_without_steps_is_no_hang() -> None:
    scene = starting()
    for _ in range(20):
        quiet(scene, 60)
        scene.tick(grew=True)
    assert scene.anomalies() == []


def test_a_log_that_never_says_anything_counts_from_the_start() -> None:
    scene = Scene(job=STARTS)
    quiet(scene, 91)
    (told,) = scene.anomalies()
    assert "since the attempt started" in told.evidence[0].text


def test_a_hang_at_the_start_that_goes_on_is_told_again() -> None:
    scene = starting()
    quiet(scene, 179)
    assert len(scene.anomalies()) == 1
    quiet(scene, 2)
    first, again = scene.anomalies()
    assert first.anomaly_id != again.anomaly_id


def test_the_first_step_after_it_is_told_at_once() -> None:
    scene = starting()
    quiet(scene, 91)
    assert len(scene.anomalies()) == 1
    scene.tick(step(1), grew=True)
    assert [r.progress.step for r in scene.reports() if r.progress] == [1]
    assert scene.watch.memory.hang_told == 0


def test_a_refuted_hang_teaches_patience() -> None:
    assert patient(STARTS.model_copy(update={"patience": 2.0})).start_floor == timedelta(seconds=180)


@pytest.mark.parametrize("trouble", ["unread", "unreadable", "no log", "not known to run"])
def test_what_may_not_be_a_silence_is_none(trouble: str) -> None:
    scene = starting()
    match trouble:
        case "unread":
            scene.behind = True
        case "unreadable":
            scene.troubles = {"/logs/other.log": "Permission denied"}
        case "no log":
            scene.files = 0
        case _:
            scene.reachable = False
    quiet(scene, 100)
    assert scene.anomalies() == []


def test_a_suspension_does_not_count() -> None:
    scene = starting()
    quiet(scene, 60)
    scene.says = info(JobState.SUSPENDED)
    quiet(scene, 60)
    scene.says = info()
    quiet(scene, 60)
    assert scene.anomalies() == []
    quiet(scene, 31)
    assert len(scene.anomalies()) == 1


def test_a_checkpoint_that_is_being_loaded_has_the_whole_time() -> None:
    scene = starting()
    scene.watch.memory.startups = (startup(5),)
    load = PhaseLine(phase=PhaseKind.CHECKPOINT_LOAD, begins=True, file="/logs/train.log", line=1, offset=1)
    scene.tick(load, grew=True)
    quiet(scene, 85)
    assert scene.anomalies() == []
    quiet(scene, 6)
    assert len(scene.anomalies()) == 1


def test_nodes_that_do_not_answer_are_suspected() -> None:
    scene = starting()
    scene.nodes = {"node02": NodeInfo(name="node02", state="ALLOCATED", flags=("NOT_RESPONDING",))}
    quiet(scene, 91)
    told = scene.anomalies()[-1]
    assert [s.node for s in told.suspects] == ["node02"]
    assert told.hold_out


def test_a_restarted_sensor_goes_on_counting() -> None:
    scene = starting()
    quiet(scene, 60)
    scene = scene.restart()
    quiet(scene, 31)
    assert len(scene.anomalies()) == 1


# What earlier attempts teach


def trained(first: int, after: float) -> Scene:
    """An attempt whose first step came after so many seconds."""
    scene = Scene(job=STARTS)
    scene.tick(grew=True)
    quiet(scene, after)
    scene.train(first, first + 5)
    return scene


@pytest.mark.parametrize(("first", "resumed"), [(1, False), (101, True)])
def test_how_long_a_start_took_is_learned(first: int, resumed: bool) -> None:
    scene = trained(first, 20)
    scene.says = requeued()
    scene.tick()
    (learned,) = scene.watch.memory.startups
    assert learned.resumed is resumed
    assert timedelta(seconds=20) <= learned.took <= timedelta(seconds=22)


def test_the_next_attempt_that_hangs_at_its_start_is_noticed_by_what_is_known() -> None:
    scene = trained(101, 5)
    began = scene.now
    scene.says = requeued(JobState.RUNNING, start_time=began)
    quiet(scene, 38)
    assert scene.anomalies() == []
    quiet(scene, 6)
    (told,) = scene.anomalies()
    assert (told.detector, told.attempt.restart_count) == (DETECTOR, 1)
    assert "the first step of an earlier attempt came after" in told.evidence[0].text


def test_a_start_that_nobody_saw_teaches_nothing() -> None:
    scene = Scene(job=STARTS)
    scene.now += timedelta(hours=3)
    scene.tick(step(900), grew=True, historic=True)
    scene.train(901, 905)
    scene.says = requeued()
    scene.tick()
    assert scene.watch.memory.startups == ()


def test_a_first_step_that_was_the_next_attempts_teaches_nothing_of_this_one() -> None:
    scene = starting()
    quiet(scene, 30)
    began = scene.now
    scene.reachable = False
    quiet(scene, 10)
    scene.tick(step(101), grew=True)
    scene.reachable = True
    scene.says = requeued(JobState.RUNNING, start_time=began)
    scene.tick()
    assert scene.watch.memory.startups == ()
    assert scene.watch.memory.progress is not None


def test_few_starts_are_remembered() -> None:
    memory = Memory(attempt=ATTEMPT, startups=tuple(startup(n) for n in range(MAX_STARTUPS)))
    memory.began_at, memory.first_step, memory.first_step_at = START, 1, START + timedelta(seconds=99)
    memory.begin_attempt(ATTEMPT)
    assert [s.took.total_seconds() for s in memory.startups] == [*range(1, MAX_STARTUPS), 99]
