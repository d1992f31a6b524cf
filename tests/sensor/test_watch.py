"""What is told about a job, given what its logs and the scheduler say. The clock is the test's."""

import math
from datetime import timedelta

import pytest

from relight.contracts import Attempt, Cause, JobState, NodeInfo, Role, Source, Symptom
from relight.contracts.messages import AttemptEvent
from relight.diagnosis.findings import PhaseKind, PhaseLine
from relight.diagnosis.trail import MAX_SIGHTINGS
from sensor.watch import MAX_CRASHES, progress_interval
from tests.sensor.making import ATTEMPT, JOB, START, Scene, finding, info, requeued, step

DOWN = {"node01": NodeInfo(name="node01", state="ALLOCATED"), "node02": NodeInfo(name="node02", state="DOWN")}


# How attempts go


def test_the_start_the_first_step_and_some_progress_are_told() -> None:
    scene = Scene()
    scene.train(1, 80, every=1.0)
    told = [(r.event, r.progress.step if r.progress else None) for r in scene.reports()]
    assert told == [
        (AttemptEvent.STARTED, None),
        (AttemptEvent.PROGRESS, 1),
        (AttemptEvent.PROGRESS, 31),
        (AttemptEvent.PROGRESS, 61),
    ]
    assert scene.reports()[0].nodes == ("node01", "node02")
    assert scene.anomalies() == []


@pytest.mark.parametrize(
    ("minutes", "seconds"),
    [(-1, 30), (0, 30), (10, 30), (20, 60), (60, 180), (100, 300), (60 * 24 * 30, 300)],
)
def test_the_longer_it_trains_the_rarer_its_progress_is_told(minutes: int, seconds: int) -> None:
    assert progress_interval(timedelta(minutes=minutes)) == timedelta(seconds=seconds)


def test_an_attempt_that_has_trained_for_hours_tells_its_progress_every_five_minutes() -> None:
    scene = Scene()
    scene.train(1, 5, every=1.0)
    scene.watch.memory.began_at = START - timedelta(hours=3)
    before = len(scene.reports())
    scene.train(6, 620, every=1.0)
    assert len(scene.reports()) - before == 2


@pytest.mark.parametrize(
    ("state", "symptom", "cause"),
    [
        (JobState.FAILED, Symptom.CRASH, Cause.UNKNOWN),
        (JobState.OUT_OF_MEMORY, Symptom.CRASH, Cause.HOST_OOM),
        (JobState.NODE_FAIL, Symptom.CRASH, Cause.NODE_FAILURE),
        (JobState.BOOT_FAIL, Symptom.CRASH, Cause.NODE_FAILURE),
        (JobState.COMPLETED, None, None),
        (JobState.CANCELLED, None, None),
        (JobState.TIMEOUT, None, None),
        (JobState.DEADLINE, None, None),
        (JobState.PREEMPTED, None, None),
    ],
)
def test_how_an_attempt_ended(state: JobState, symptom: Symptom | None, cause: Cause | None) -> None:
    scene = Scene()
    scene.train()
    scene.says = info(state, exit_code=1)
    scene.tick()
    scene.tick()
    assert [(a.symptom, a.cause) for a in scene.anomalies()] == ([(symptom, cause)] if symptom else [])
    end = scene.reports()[-1]
    assert (end.event, end.state, end.exit_code) == (AttemptEvent.ENDED, state, 1)
    assert [r.event for r in scene.reports()].count(AttemptEvent.ENDED) == 1
    for anomaly in scene.anomalies():
        assert anomaly.evidence[0].source is Source.SCHEDULER
        assert anomaly.progress is not None
        assert anomaly.progress.step == 10


def test_the_anomaly_is_told_before_the_end() -> None:
    scene = Scene()
    scene.train()
    scene.says = info(JobState.FAILED, exit_code=1)
    assert [m.signal for m in scene.tick()] == ["report_anomaly", "report_attempt"]


def test_a_requeue_ends_the_old_attempt_and_the_new_one_starts() -> None:
    scene = Scene()
    scene.train()
    scene.says = requeued()
    scene.tick()
    scene.says = requeued(JobState.RUNNING, start_time=scene.now)
    scene.tick()
    events = [(r.event, r.attempt.restart_count) for r in scene.reports()]
    assert events[-2:] == [(AttemptEvent.ENDED, 0), (AttemptEvent.STARTED, 1)]
    assert scene.anomalies() == []
    assert scene.watch.attempt.restart_count == 1


def test_a_requeue_as_slurm_shows_it() -> None:
    """While the old attempt completes, Slurm counts the restart already but keeps the old submit time."""
    scene = Scene()
    scene.train()
    scene.says = info(JobState.COMPLETING, restart_count=1)
    for _ in range(40):
        scene.tick(finding())
    assert scene.watch.attempt == ATTEMPT
    scene.says = requeued()
    scene.tick()
    scene.says = requeued(JobState.RUNNING, start_time=scene.now)
    scene.tick(step(5))
    events = [(r.event, r.attempt.restart_count, r.attempt.submit_time) for r in scene.reports()]
    later = requeued().submit_time
    assert events[2:4] == [(AttemptEvent.ENDED, 0, START), (AttemptEvent.STARTED, 1, later)]
    assert scene.anomalies() == []


def test_an_attempt_that_was_read_while_the_old_one_completed_is_known_again() -> None:
    job = JOB.model_copy(update={"attempt": ATTEMPT.model_copy(update={"restart_count": 1})})
    scene = Scene(job=job)
    scene.says = requeued(JobState.RUNNING)
    scene.train()
    assert scene.watch.attempt.submit_time == requeued().submit_time
    assert [r.event for r in scene.reports()] == [AttemptEvent.STARTED, AttemptEvent.PROGRESS]


@pytest.mark.parametrize(
    ("reason", "state"),
    [("NonZeroExitCode", JobState.FAILED), ("OutOfMemory", JobState.OUT_OF_MEMORY), ("None", None)],
)
def test_a_completing_job_that_says_why_is_not_waited_for(reason: str, state: JobState | None) -> None:
    scene = Scene()
    scene.train()
    scene.says = info(JobState.COMPLETING, reason=reason, exit_code=7)
    scene.tick()
    assert [r.state for r in scene.reports() if r.event is AttemptEvent.ENDED] == ([state] if state else [])
    if state is not None:
        scene.says = info(state, reason=reason, exit_code=7)
        scene.tick()
        assert [a.detector for a in scene.anomalies()] == ["job-end"]


def test_another_job_under_the_same_id_is_not_this_job() -> None:
    scene = Scene()
    scene.train()
    count = len(scene.messages)
    scene.says = info(JobState.FAILED, submit_time=START + timedelta(days=30))
    for _ in range(100):
        scene.tick()
    assert len(scene.messages) == count


def test_the_monitor_may_move_the_watch_to_a_resubmitted_job() -> None:
    scene = Scene()
    scene.train()
    new = Attempt(cluster="lab", job_id="43", submit_time=START + timedelta(minutes=5), restart_count=0)
    scene.watch.change_job(JOB.model_copy(update={"attempt": new}))
    assert scene.watch.attempt == new
    assert scene.watch.memory.progress is None
    scene.watch.change_job(JOB.model_copy(update={"attempt": new, "run": "renamed"}))
    assert scene.watch.attempt == new


def test_a_late_memo_does_not_take_the_watch_back() -> None:
    scene = Scene()
    scene.says = requeued(JobState.RUNNING)
    scene.tick()
    scene.watch.change_job(JOB.model_copy(update={"run": "renamed"}))
    assert scene.watch.attempt.restart_count == 1


# Node loss


def test_a_lost_node_of_the_allocation() -> None:
    scene = Scene()
    scene.train()
    scene.nodes = DOWN
    scene.tick()
    scene.tick()
    (anomaly,) = scene.anomalies()
    assert anomaly.cause is Cause.NODE_FAILURE
    assert [s.node for s in anomaly.suspects] == ["node02"]
    assert anomaly.evidence[0].source is Source.SCHEDULER


def test_a_job_that_the_scheduler_requeued_for_a_lost_node() -> None:
    scene = Scene()
    scene.train()
    scene.says, scene.nodes = requeued(), DOWN
    scene.tick()
    scene.tick()
    (anomaly,) = scene.anomalies()
    assert (anomaly.cause, anomaly.attempt) == (Cause.NODE_FAILURE, ATTEMPT)
    assert [s.node for s in anomaly.suspects] == ["node02"]
    assert anomaly.progress is not None
    assert anomaly.progress.step == 10


def test_a_node_that_slurm_gives_up_only_after_minutes_of_completing_was_lost_all_the_time() -> None:
    scene = Scene()
    scene.train()
    scene.says = requeued(flags=("COMPLETING",))
    for _ in range(60):
        scene.tick()
    scene.says, scene.nodes = requeued(), DOWN
    scene.tick()
    (anomaly,) = scene.anomalies()
    assert (anomaly.cause, anomaly.attempt) == (Cause.NODE_FAILURE, ATTEMPT)


def test_a_requeue_with_all_nodes_well_is_somebodys_wish() -> None:
    scene = Scene()
    scene.train()
    scene.says = requeued()
    for _ in range(40):
        scene.tick()
    scene.nodes = DOWN  # much later: nothing to do with the requeue
    scene.tick()
    assert scene.anomalies() == []


@pytest.mark.parametrize(
    "node",
    [
        NodeInfo(name="node02", state="ALLOCATED", flags=("NOT_RESPONDING",)),
        NodeInfo(name="node02", state="ALLOCATED", flags=("DRAIN",)),
        NodeInfo(name="node02", state="IDLE"),
    ],
)
def test_a_node_that_is_not_given_up_is_not_lost(node: NodeInfo) -> None:
    scene = Scene()
    scene.train()
    scene.nodes = {"node02": node}
    scene.tick()
    assert scene.anomalies() == []


# Rank crash


def test_a_cascade_is_one_anomaly_named_after_its_root() -> None:
    scene = Scene()
    scene.train()
    scene.tick(
        *[finding("peer.reset", role=Role.CASCADE, cause=Cause.UNKNOWN, rank=r, offset=r) for r in range(3)]
    )
    scene.tick(finding("cuda.ecc", cause=Cause.GPU_MEMORY_ECC, rank=5, offset=900))
    scene.tick(finding("peer.reset", role=Role.CASCADE, cause=Cause.UNKNOWN, rank=6, offset=950))
    while not scene.anomalies():
        scene.tick()
    for _ in range(20):
        scene.tick()
    told = {a.role: a for a in scene.anomalies()}
    assert {role: (a.cause, a.count) for role, a in told.items()} == {
        Role.ROOT: (Cause.GPU_MEMORY_ECC, 1),
        Role.CASCADE: (Cause.UNKNOWN, 4),
    }
    root = told[Role.ROOT]
    assert [s.rank for s in root.suspects] == [5]
    assert [e.signature for e in root.evidence] == ["cuda.ecc"]
    assert root.detected_at - root.occurred_at < timedelta(seconds=2)


def test_competing_causes_are_one_anomaly_each() -> None:
    scene = Scene()
    scene.train()
    scene.tick(
        finding("xid.79", cause=Cause.GPU_FALLEN_OFF_BUS, ends_rank=False, hold_out=True, weight=5, offset=1),
        finding("python.exception", weight=-20, offset=2),
        finding("python.exception", weight=-20, offset=3, rank=4),
        finding("peer.reset", role=Role.CASCADE, cause=Cause.UNKNOWN, offset=4),
        finding("note", role=Role.CONTEXT, cause=Cause.UNKNOWN, ends_rank=False, offset=5),
    )
    while not scene.anomalies():
        scene.tick()
    told = {a.cause: (a.role, a.count, a.hold_out) for a in scene.anomalies() if a.role is not Role.CONTEXT}
    assert told == {
        Cause.GPU_FALLEN_OFF_BUS: (Role.ROOT, 1, True),
        Cause.USER_CODE: (Role.ROOT, 2, False),
        Cause.UNKNOWN: (Role.CASCADE, 1, False),
    }


def test_a_crash_is_told_within_two_seconds_while_the_job_still_runs() -> None:
    scene = Scene()
    scene.train()
    crashed = scene.now
    scene.tick(finding(), ask=False)
    assert scene.watch.waits_for_word(scene.view)
    while not scene.anomalies():
        scene.tick()
    assert scene.now - crashed < timedelta(seconds=2)


def test_a_crash_is_told_at_once_when_the_scheduler_says_that_the_job_failed() -> None:
    scene = Scene()
    scene.train()
    scene.says = info(JobState.FAILED, exit_code=1)
    scene.tick(finding())
    assert [a.detector for a in scene.anomalies()] == ["log", "job-end"]


def test_an_end_is_told_once_the_logs_are_read_up_to_it() -> None:
    """Else the scheduler's bare word would become the diagnosis, and the cause come too late."""
    scene = Scene()
    scene.train()
    scene.says = info(JobState.FAILED, exit_code=1)
    scene.behind = True
    scene.tick()
    assert scene.anomalies() == []
    scene.behind = False
    scene.tick(finding())
    assert [a.detector for a in scene.anomalies()] == ["log", "job-end"]


def test_an_end_does_not_wait_for_ever_for_logs_that_go_on_and_on() -> None:
    scene = Scene()
    scene.train()
    scene.says = info(JobState.FAILED, exit_code=1)
    scene.behind = True
    for _ in range(30):
        scene.tick()
    assert [a.detector for a in scene.anomalies()] == ["job-end"]


def test_numbers_that_stay_wrong_are_told_once_while_training_goes_on() -> None:
    scene = Scene()
    for n in range(1, 20):
        scene.tick(step(n, loss=2.0), after=0.5)
    for n in range(20, 40):
        scene.tick(step(n, loss=math.nan), after=0.5)
    (told,) = scene.anomalies()
    assert (told.symptom, told.cause, told.progress.step if told.progress else 0) == (
        Symptom.DEGRADED,
        Cause.NUMERICAL,
        22,
    )


@pytest.mark.parametrize(("seconds", "steps", "told"), [(3.0, 60, True), (1.3, 200, False), (3.0, 20, False)])
def test_a_slowdown_is_told_when_it_is_large_and_lasts(seconds: float, steps: int, told: bool) -> None:
    scene = Scene()
    scene.train(1, 200, every=1.0)
    scene.train(201, 200 + steps, every=seconds)
    scene.train(201 + steps, 204 + steps, every=1.0)
    found = scene.anomalies()
    assert [a.symptom for a in found] == ([Symptom.SLOW] if told else [])


def test_lines_that_come_after_the_failure_are_told_too() -> None:
    scene = Scene()
    scene.train()
    scene.says = info(JobState.FAILED, exit_code=1)
    scene.tick()
    scene.tick(finding(), after=3)
    assert [a.detector for a in scene.anomalies()] == ["job-end", "log"]


@pytest.mark.parametrize(
    "ending",
    [
        info(JobState.CANCELLED),
        info(JobState.TIMEOUT),
        info(JobState.COMPLETED),
        info(JobState.PREEMPTED),
        requeued(),
    ],
)
def test_ranks_that_die_because_the_attempt_was_ended_are_no_crash(ending: object) -> None:
    scene = Scene()
    scene.train()
    scene.tick(finding(), ask=False)
    scene.says = ending  # type: ignore[assignment]
    for _ in range(20):
        scene.tick()
    assert scene.anomalies() == []


def test_a_new_attempt_that_fails_before_the_scheduler_is_asked_again_is_heard() -> None:
    scene = Scene()
    scene.train()
    scene.says = info(JobState.FAILED, exit_code=1)
    scene.tick(finding())
    scene.tick(finding("dying-gasp", role=Role.CASCADE), ask=False)
    scene.says = requeued()
    scene.tick()
    scene.says = requeued(JobState.RUNNING, start_time=scene.now)
    scene.tick(step(9), finding("cuda.ecc", cause=Cause.GPU_MEMORY_ECC, offset=9000), ask=False)
    scene.says = requeued(JobState.FAILED, start_time=scene.now)
    scene.tick()
    told = [a for a in scene.anomalies() if a.attempt.restart_count == 1 and a.detector == "log"]
    assert [a.cause for a in told] == [Cause.GPU_MEMORY_ECC]


def test_a_completing_attempt_is_waited_for() -> None:
    scene = Scene()
    scene.train()
    scene.says = info(JobState.COMPLETING)
    scene.tick(finding())
    for _ in range(20):
        scene.tick()
    assert scene.anomalies() == []
    scene.says = info(JobState.FAILED)
    scene.tick()
    assert [a.detector for a in scene.anomalies()] == ["log", "job-end"]


def test_an_exception_that_training_outlives_is_no_crash() -> None:
    scene = Scene()
    scene.train(1, 10, every=0.2)
    scene.tick(finding(), after=0)
    scene.train(11, 40, every=0.2)
    assert scene.anomalies() == []


def test_a_step_that_others_finish_is_not_outliving() -> None:
    scene = Scene()
    scene.train()
    scene.tick(finding())
    scene.tick(step(11), after=0.1)
    for _ in range(6):
        scene.tick()
    assert len(scene.anomalies()) == 1


def test_history_alone_is_no_crash_but_explains_one() -> None:
    scene = Scene()
    scene.tick(step(1), finding(), historic=True)
    for _ in range(10):
        scene.tick()
    assert scene.anomalies() == []
    scene.says = info(JobState.FAILED)
    scene.tick()
    assert [a.detector for a in scene.anomalies()] == ["log", "job-end"]


def test_history_that_training_outlived_explains_nothing() -> None:
    scene = Scene()
    scene.tick(finding(offset=1), step(1), step(2), historic=True)
    scene.says = info(JobState.FAILED)
    scene.tick()
    assert [a.detector for a in scene.anomalies()] == ["job-end"]


def test_a_flood_of_findings_is_bounded() -> None:
    scene = Scene()
    scene.train()
    for i in range(100):
        scene.tick(*[finding(offset=i * 1000 + n, key=str(n)) for n in range(50)], after=1.1)
        assert len(scene.watch.memory.trail.sightings) <= MAX_SIGHTINGS
    assert len(scene.anomalies()) <= MAX_CRASHES
    assert all(len(m.payload) < 50_000 for m in scene.messages)


def test_a_hang_is_told_if_only_consequences_were_seen_before() -> None:
    scene = Scene()
    scene.train()
    scene.tick(finding("peer.reset", role=Role.CASCADE))
    for _ in range(30):
        scene.tick()
    assert [a.symptom for a in scene.anomalies()] == [Symptom.CRASH, Symptom.HANG]


# No progress


def test_silence_is_a_hang_after_the_larger_of_floor_and_rhythm_and_is_told_once() -> None:
    scene = Scene()
    scene.train(every=0.5)
    last = scene.now
    while not scene.anomalies():
        scene.tick()
    (anomaly,) = scene.anomalies()
    assert anomaly.symptom is Symptom.HANG
    assert timedelta(seconds=4) <= scene.now - last < timedelta(seconds=4.5)
    assert anomaly.occurred_at == last
    while scene.now - last < timedelta(seconds=7.5):
        scene.tick()
    assert len(scene.anomalies()) == 1


def test_a_hang_that_goes_on_is_told_again_each_time_after_twice_the_silence() -> None:
    scene = Scene()
    scene.train(every=0.5)
    last = scene.now
    at = []
    while scene.now - last < timedelta(seconds=300):
        before = len(scene.anomalies())
        scene.tick()
        at += [(scene.now - last).total_seconds()] * (len(scene.anomalies()) - before)
    assert [round(seconds / 4) for seconds in at] == [1, 2, 4, 8, 16]
    assert len({a.anomaly_id for a in scene.anomalies()}) == 5


def test_a_slow_rhythm_is_given_its_time() -> None:
    scene = Scene()
    scene.train(every=3.0)
    last = scene.now
    while not scene.anomalies():
        scene.tick()
    assert timedelta(seconds=9) <= scene.now - last < timedelta(seconds=9.5)


def test_a_shorter_pause_is_nothing() -> None:
    scene = Scene()
    for first in range(1, 100, 10):
        scene.train(first, first + 9, every=0.5)
        for _ in range(15):
            scene.tick()
    assert scene.anomalies() == []


def test_progress_after_a_hang_is_told_at_once_and_rearms() -> None:
    scene = Scene()
    scene.train()
    while not scene.anomalies():
        scene.tick()
    scene.tick(step(11))
    assert scene.reports()[-1].event is AttemptEvent.PROGRESS
    for _ in range(24):
        scene.tick()
    assert [a.progress.step for a in scene.anomalies() if a.progress] == [10, 11]
    assert len({a.anomaly_id for a in scene.anomalies()}) == 2


@pytest.mark.parametrize(
    "says", [None, info(JobState.SUSPENDED), info(JobState.COMPLETING), info(JobState.PENDING)]
)
def test_silence_of_what_is_not_known_to_run_is_nothing(says: object) -> None:
    scene = Scene()
    scene.train()
    scene.says = says  # type: ignore[assignment]
    for _ in range(200):
        scene.tick()
    assert scene.anomalies() == []


def test_what_the_scheduler_could_not_start_is_told_once_in_an_attempt() -> None:
    scene = Scene()
    scene.train()
    held = {"held": True, "reason": "launch_failed_requeued_held"}
    scene.says = requeued(held=True, reason="job_requeued_in_held_state")
    scene.tick()
    assert scene.anomalies() == []
    for attempt in (1, 2):
        scene.says = requeued(**held, restart_count=attempt)
        for _ in range(3):
            scene.tick()
        told = scene.anomalies()
        assert len(told) == attempt
        assert (told[-1].attempt.restart_count, told[-1].symptom) == (attempt, Symptom.CRASH)
        assert (told[-1].cause, told[-1].suspects) == (Cause.SCHEDULER, ())
        assert told[-1].evidence[0].source is Source.SCHEDULER


def test_an_unreachable_scheduler_concludes_nothing_and_the_clock_goes_on() -> None:
    scene = Scene()
    scene.train()
    last = scene.now
    scene.reachable = False
    for _ in range(240):
        scene.tick()
    assert scene.anomalies() == []
    scene.reachable = True
    scene.tick()
    (anomaly,) = scene.anomalies()
    assert anomaly.occurred_at == last


def test_steps_while_the_scheduler_is_away_count() -> None:
    scene = Scene()
    scene.train()
    scene.reachable = False
    scene.train(11, 100)
    scene.reachable = True
    for _ in range(10):
        scene.tick()
    assert scene.anomalies() == []


def test_the_time_of_a_suspension_does_not_count() -> None:
    scene = Scene()
    scene.train()
    scene.says = info(JobState.SUSPENDED)
    for _ in range(100):
        scene.tick()
    scene.says = info()
    for _ in range(10):
        scene.tick()
    assert scene.anomalies() == []
    scene.tick(after=3)
    assert len(scene.anomalies()) == 1


def test_unread_or_unreadable_logs_are_no_silence() -> None:
    scene = Scene()
    scene.train()
    scene.behind = True
    scene.tick(after=20)
    scene.behind, scene.troubles = False, {"/logs/train.log": "Permission denied"}
    scene.tick(after=20)
    assert scene.anomalies() == []
    scene.troubles = {}
    scene.tick()
    assert len(scene.anomalies()) == 1


def test_before_any_step_line_the_watch_is_blind() -> None:
    scene = Scene()
    for _ in range(1000):
        scene.tick()
    assert scene.anomalies() == []
    assert scene.watch.is_blind


def test_a_checkpoint_being_saved_is_given_more_time() -> None:
    scene = Scene()
    scene.train()
    scene.tick(
        PhaseLine(phase=PhaseKind.CHECKPOINT_SAVE, begins=True, file="/logs/train.log", line=1, offset=1)
    )
    for _ in range(40):
        scene.tick()
    assert scene.anomalies() == []


def test_nodes_that_do_not_answer_are_suspected_of_a_hang() -> None:
    scene = Scene()
    scene.train()
    scene.nodes = {"node02": NodeInfo(name="node02", state="ALLOCATED", flags=("NOT_RESPONDING",))}
    while not scene.anomalies():
        scene.tick()
    assert [s.node for s in scene.anomalies()[0].suspects] == ["node02"]


def test_a_new_attempt_learns_anew() -> None:
    scene = Scene()
    scene.train()
    scene.says = requeued(JobState.RUNNING, start_time=scene.now)
    for _ in range(100):
        scene.tick()
    assert scene.anomalies() == []
    assert scene.watch.memory.progress is None


# Restarts of the sensor, and its own bugs


def test_a_restarted_sensor_tells_the_same_things_under_the_same_keys() -> None:
    scene = Scene()
    scene.train()
    scene.tick(finding())
    before = scene.restart()
    for _ in range(6):
        scene.tick()
        before.tick()
    keys = [m.key for m in scene.messages if m.signal == "report_anomaly"]
    assert len(keys) == 1
    again = [m.key for m in before.messages if m.signal == "report_anomaly"]
    assert set(again) == set(keys)


def test_a_hang_that_was_told_is_not_told_again_after_a_restart() -> None:
    scene = Scene()
    scene.train()
    while not scene.anomalies():
        scene.tick()
    scene = scene.restart()
    for _ in range(12):  # less than twice the silence, after which it is told again
        scene.tick()
    assert len(scene.anomalies()) == 1


def test_a_hang_that_began_while_the_sensor_was_away_is_found() -> None:
    scene = Scene()
    scene.train()
    scene = scene.restart()
    scene.tick(after=60)
    assert len(scene.anomalies()) == 1


@pytest.mark.parametrize("began_ago", [7200, 600])
def test_a_job_that_hung_before_the_watch_began_stood_still_since_its_log_did(began_ago: float) -> None:
    scene = Scene()
    scene.now = START + timedelta(hours=3)
    scene.says = info(start_time=scene.now - timedelta(seconds=began_ago))
    last_written = scene.now - timedelta(hours=1)
    scene.tick()
    scene.tick(*[step(n) for n in range(1, 40)], historic=True, written=last_written)
    watched_since = scene.now
    while not scene.anomalies():
        scene.tick(after=1)
    assert scene.now - watched_since >= JOB.policy.hang_floor, (
        "a hang is one only if the sensor saw it stand still"
    )
    (anomaly,) = scene.anomalies()
    since = max(last_written, scene.says.start_time or last_written)
    assert anomaly.occurred_at == since
    assert anomaly.progress is not None
    assert (anomaly.progress.step, anomaly.progress.at) == (39, since)
    silent = (scene.now - since).total_seconds()
    assert f"no step line for at least {silent:.0f} s after step 39" in anomaly.evidence[0].text
    assert [r.at for r in scene.reports() if r.event is AttemptEvent.PROGRESS] == [since]
    scene.tick(step(40))
    while len(scene.anomalies()) < 2:
        scene.tick(after=1)
    assert "at least" not in scene.anomalies()[1].evidence[0].text, "this step was seen to come"


def test_a_failure_while_the_sensor_was_away_is_found() -> None:
    scene = Scene()
    scene.train()
    scene = scene.restart()
    scene.says = info(JobState.FAILED, exit_code=1)
    scene.tick(finding(), after=60)
    assert [a.detector for a in scene.anomalies()] == ["log", "job-end"]


def test_a_bug_in_one_detector_does_not_blind_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    scene = Scene()
    scene.train()
    monkeypatch.setattr("sensor.watch.lost_nodes", broken)
    scene.ask()
    from sensor.reading import Reading

    while not scene.anomalies():
        scene.now += timedelta(seconds=1)
        scene.ask()
        scene.messages += scene.watch.advance(Reading(began=scene.now, files=1), scene.view, scene.now)
    assert scene.anomalies()[0].symptom is Symptom.HANG
    assert {part for part, _ in scene.errors} == {"node-loss"}
