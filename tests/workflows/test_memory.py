"""What a monitor knows, without a server: every message, in any order, survives a renewal in between."""

import json
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from relight.contracts import (
    Anomaly,
    Cause,
    Evidence,
    JobState,
    Outcome,
    Progress,
    RecoveryOutcome,
    Role,
    Source,
    Suspect,
    Symptom,
)
from relight.contracts.messages import (
    LEASE,
    Decision,
    EndReason,
    ModeChange,
    MonitorInput,
    MonitorState,
    Note,
    RecoveryNews,
)
from relight.contracts.outcome import CheckpointRef
from relight.contracts.steps import BadCheckpoint, CheckpointLook, PollResult
from tests.workflows import samples
from workflows import memory as m
from workflows.memory import Memory

NOW = samples.T0 + timedelta(hours=1)


def fresh(**fields: object) -> Memory:
    return Memory(samples.job(**fields), MonitorState())  # type: ignore[arg-type]


def opened(**fields: object) -> Memory:
    """A monitor with a recovery of a crash under way."""
    memory = fresh()
    memory.hear_anomaly(samples.anomaly("a1", **fields), NOW)
    memory.open("r1", memory.diagnose()[0], NOW)
    return memory


def outcome(how: Outcome, **fields: object) -> RecoveryOutcome:
    base = {"recovery_id": "r1", "outcome": how, "reason": "why", "attempt": samples.attempt(0)}
    return RecoveryOutcome.model_validate(base | fields)


def renewed(memory: Memory) -> Memory:
    """As after continue-as-new: through JSON, as Temporal's payloads go."""
    start = MonitorInput(job=memory.job, state=memory.state)
    again = MonitorInput.model_validate(json.loads(start.model_dump_json()))
    return Memory(again.job, again.state)


# A life of random messages

_ANOMALIES = st.builds(
    lambda n, restart, role, cause, source: samples.anomaly(
        f"a{n}", restart=restart, role=role, cause=cause, source=source
    ),
    st.integers(0, 6),
    st.integers(0, 3),
    st.sampled_from(Role),
    st.sampled_from([Cause.USER_CODE, Cause.UNKNOWN, Cause.TIME_LIMIT, Cause.NODE_FAILURE]),
    st.sampled_from([Source.JOB_LOG, Source.SCHEDULER]),
)
_REPORTS = st.builds(
    lambda event, restart, state, step: samples.report(event, restart=restart, state=state, step=step),
    st.sampled_from(["started", "ended", "progress"]),
    st.integers(0, 3),
    st.sampled_from([None, "FAILED", "PREEMPTED", "COMPLETED", "CANCELLED"]),
    st.integers(1, 300),
)
_OUTCOMES = st.builds(
    lambda how, new: outcome(how, new_attempt=samples.attempt(new) if new else None, root_key="k"),
    st.sampled_from(Outcome),
    st.integers(0, 3),
)
_LOOKS = st.builds(
    lambda known, state, restart, found: PollResult(
        known=known,
        info=samples.info(state, restart) if known else None,
        anomaly=samples.anomaly("poll", restart=restart) if found else None,
    ),
    st.sampled_from([None, True, False]),
    st.sampled_from(JobState),
    st.integers(0, 3),
    st.booleans(),
)
_ORDERS = st.sampled_from(["pause", "unpause", "observe", "news", "wait", "malformed", "approve", "lost"])
_LIVES = st.lists(st.one_of(_ANOMALIES, _REPORTS, _OUTCOMES, _LOOKS, _ORDERS), max_size=40)


def live(memory: Memory, message: object, now: datetime) -> None:
    match message:
        case samples.Anomaly():
            memory.hear_anomaly(message, now)
        case samples.AttemptReport():
            memory.hear_attempt(message, now)
        case RecoveryOutcome():
            record = memory.open_recovery
            name = record.recovery_id if record else "unknown"
            memory.hear_recovery_ended(message.model_copy(update={"recovery_id": name}), now)
        case PollResult():
            memory.hear_look(message, now)
        case "pause" | "unpause":
            memory.hear_pause(message == "pause", Note())
        case "observe":
            memory.hear_mode(ModeChange(mode=samples.Mode.OBSERVE))
        case "news":
            memory.hear_recovery_news(RecoveryNews(recovery_id="r", state="awaiting-approval"))
        case "malformed":
            memory.hear_malformed()
        case "approve":
            memory.forward_to_all("approve", Decision())
        case "lost" if memory.open_recovery is not None:
            memory.hear_recovery_lost(memory.open_recovery.recovery_id, now)
    if memory.settled(now):
        diagnosis, anomalies = memory.diagnose()
        assert anomalies
        if memory.needs_recovery(diagnosis):
            memory.open(f"r{memory.state.recoveries}", diagnosis, now)
        else:
            memory.set_aside(diagnosis, now)


@settings(max_examples=100, deadline=None)
@given(_LIVES, st.sets(st.integers(0, 39)))
def test_any_life_is_the_same_with_and_without_renewals(life: list[object], renewals: set[int]) -> None:
    one, other = fresh(), fresh()
    for i, message in enumerate(life):
        now = NOW + timedelta(seconds=i)
        live(one, message, now)
        live(other, message, now)
        assert one.forwards == other.forwards
        one.forwards.clear()  # sent
        other.forwards.clear()
        if i in renewals:
            other = renewed(other)
        assert (other.job, other.state) == (one.job, one.state)
        assert other.status() == one.status()


@settings(max_examples=100, deadline=None)
@given(_LIVES)
def test_what_holds_in_any_life(life: list[object]) -> None:
    memory = fresh()
    for i, message in enumerate(life):
        now = NOW + timedelta(seconds=i)
        live(memory, message, now)
        state = memory.state
        assert len(state.active) <= 1
        assert len(set(state.seen)) == len(state.seen)
        assert not (state.active and state.settle_until), "no window runs while a recovery is open"
        if state.end is not None:
            assert memory.due() is None or state.active
        # What is due is in the future, or is done at once: else the workflow would spin.
        assert not memory.settled(now)
        restarts = memory.job.attempt.restart_count
        assert all(a.attempt.restart_count >= restarts for a in state.inbox)


def test_memory_is_bounded() -> None:
    memory = fresh()
    much = tuple(Evidence(source=Source.JOB_LOG, observed_at=NOW, text="x" * 500) for _ in range(50))
    suspects = tuple(Suspect(rank=r) for r in range(2000))
    count = m.MAX_SEEN + 2 * m.MAX_INBOX
    for n in range(count):
        memory.hear_anomaly(samples.anomaly(f"{n}", evidence=much, suspects=suspects), NOW)
        memory.hear_attempt(samples.report("ended", state="FAILED", attempt=samples.attempt(0, f"{n}")), NOW)
    state = memory.state
    assert (len(state.seen), len(state.inbox)) == (m.MAX_SEEN, m.MAX_INBOX)
    assert state.overflow == count - m.MAX_INBOX
    assert len(MonitorInput(job=memory.job, state=state).model_dump_json()) < 512 * 1024


def test_a_full_inbox_keeps_the_early_and_the_trusted() -> None:
    memory = fresh()
    for n in range(m.MAX_INBOX):
        memory.hear_anomaly(samples.anomaly(f"c{n}", role=Role.CASCADE), NOW)
    memory.hear_anomaly(samples.anomaly("context", role=Role.CONTEXT), NOW)
    memory.hear_anomaly(samples.anomaly("kernel", source=Source.KERNEL), NOW)
    kept = [a.anomaly_id for a in memory.state.inbox]
    assert kept == [f"c{n}" for n in range(m.MAX_INBOX - 1)] + ["kernel"]


# When a diagnosis is made


@pytest.mark.parametrize(
    ("anomalies", "window"),
    [
        ([samples.anomaly("a")], timedelta(seconds=3)),
        ([samples.anomaly("a"), samples.anomaly("b", source=Source.SCHEDULER)], m.PROMPT_SETTLE),
        ([samples.anomaly("a", source=Source.KERNEL)], m.PROMPT_SETTLE),
        ([samples.anomaly("a", source=Source.SCHEDULER, cause=Cause.UNKNOWN)], m.TERMINAL_SETTLE),
        ([samples.anomaly("a", symptom=Symptom.HANG)], m.TERMINAL_SETTLE),
        ([samples.anomaly("a", symptom=Symptom.HANG), samples.anomaly("b")], m.TERMINAL_SETTLE),
        ([samples.anomaly("a", source=Source.PROMETHEUS)], timedelta(seconds=3)),
        ([samples.anomaly("a", role=Role.CASCADE)], None),
        ([samples.anomaly("a", role=Role.CASCADE, source=Source.KERNEL)], None),
        ([samples.anomaly("a", role=Role.CASCADE), samples.anomaly("b")], timedelta(seconds=3)),
    ],
)
def test_settle_window(anomalies: list[samples.Anomaly], window: timedelta | None) -> None:
    memory = fresh(policy=samples.Policy(settle=timedelta(seconds=3)))
    for anomaly in anomalies:
        memory.hear_anomaly(anomaly, NOW)
    assert memory.state.settle_until == (None if window is None else NOW + window)


def test_the_settle_window_is_never_made_longer() -> None:
    memory = fresh(policy=samples.Policy(settle=timedelta(seconds=3)))
    for second in range(3):
        memory.hear_anomaly(samples.anomaly(f"a{second}"), NOW + timedelta(seconds=second))
    assert memory.state.settle_until == NOW + timedelta(seconds=3)
    memory.hear_anomaly(samples.anomaly("k", source=Source.KERNEL), NOW + timedelta(seconds=2.9))
    assert memory.state.settle_until == NOW + timedelta(seconds=3)


def test_an_attempt_that_printed_no_step_failed_before_the_furthest() -> None:
    memory = fresh()
    memory.hear_attempt(samples.report("progress", step=100), NOW)
    memory.hear_attempt(samples.report("started", restart=1), NOW)
    memory.hear_anomaly(samples.anomaly("a", restart=1, step=None), NOW)
    diagnosis, _ = memory.diagnose()
    assert diagnosis.progress is not None
    assert diagnosis.progress.step == 100


# After a recovery


@pytest.mark.parametrize(
    ("how", "new", "end", "current"),
    [
        (Outcome.RESUMED, 1, None, 1),
        (Outcome.FAILED_AGAIN, 1, None, 1),
        (Outcome.HELD, 1, EndReason.STOPPED, 0),
        (Outcome.STOPPED, None, EndReason.STOPPED, 0),
        (Outcome.ABANDONED, None, None, 0),
        (Outcome.REFUTED, None, None, 0),
        (Outcome.REJECTED, None, None, 0),
        (Outcome.EXPIRED, None, None, 0),
    ],
)
def test_conclusion_from_an_outcome(
    how: Outcome, new: int | None, end: EndReason | None, current: int
) -> None:
    memory = opened()
    made = samples.attempt(new) if new is not None else None
    memory.hear_recovery_ended(outcome(how, new_attempt=made), NOW)
    assert memory.open_recovery is None
    assert (memory.state.end, memory.job.attempt) == (end, samples.attempt(current))
    if end is None and how is not Outcome.RESUMED:
        assert memory.due() == NOW + m.SOON, "what became of the job is asked soon"


@pytest.mark.parametrize("how", [Outcome.REJECTED, Outcome.EXPIRED])
def test_an_undecided_job_that_is_over_ends_the_monitor(how: Outcome) -> None:
    memory = opened()
    memory.hear_recovery_ended(outcome(how), NOW)
    failed = PollResult(known=True, info=samples.info(JobState.FAILED), anomaly=samples.anomaly("poll"))
    memory.hear_look(failed, NOW)
    assert memory.state.end is EndReason.STOPPED


def test_a_job_that_fails_after_a_refuted_suspicion_is_recovered() -> None:
    memory = opened(symptom=Symptom.HANG)
    memory.hear_recovery_ended(outcome(Outcome.REFUTED), NOW)
    failed = PollResult(known=True, info=samples.info(JobState.FAILED), anomaly=samples.anomaly("poll"))
    memory.hear_look(failed, NOW)
    assert (memory.state.end, memory.state.missed) == (None, 1)
    assert memory.state.settle_until is not None
    # ... but not for ever: the same finding after a second recovery ends it.
    memory.open("r1", memory.diagnose()[0], NOW)
    memory.hear_recovery_ended(outcome(Outcome.ABANDONED), NOW)
    memory.hear_look(failed, NOW)
    assert memory.state.end is EndReason.STOPPED


def test_tries_are_counted_only_where_something_was_done() -> None:
    memory = opened()
    memory.hear_recovery_ended(outcome(Outcome.ABANDONED, cause="user_code", root_key="k"), NOW)
    assert memory.state.ledger == ()
    memory = opened()
    done = outcome(
        Outcome.FAILED_AGAIN, cause="user_code", root_key="k", lost_from_step=9, times={"acted": NOW}
    )
    memory.hear_recovery_ended(done, NOW)
    assert [(x.root_key, x.step, x.allocation) for x in memory.state.ledger] == [("k", 9, "n[1-4]")]


def test_a_slowdown_that_no_restart_would_cure_is_noticed_and_left_alone() -> None:
    memory = fresh()
    slow = samples.anomaly(
        "s", cause=Cause.UNKNOWN, symptom=Symptom.SLOW, says="A step takes 3 s, 1 s before."
    )
    memory.hear_anomaly(slow, NOW)
    diagnosis, _ = memory.diagnose()
    assert not memory.needs_recovery(diagnosis)
    memory.set_aside(diagnosis, NOW)
    assert memory.status().state == "watching"
    assert "A step takes 3 s" in memory.status().noticed[0]


def test_a_recovery_beyond_its_lease_is_lost() -> None:
    memory = opened()
    memory.sweep(NOW + LEASE)
    assert memory.open_recovery is not None, "the longest waits of its policy come on top"
    memory.sweep(NOW + 2 * LEASE)
    assert (memory.open_recovery, memory.state.lost) == (None, 1)


def test_late_evidence_is_forwarded_up_to_a_bound() -> None:
    memory = opened()
    for n in range(2 * m.MAX_FORWARDED):
        memory.hear_anomaly(samples.anomaly(f"late{n}"), NOW)
    assert 0 < len(memory.forwards) <= m.MAX_FORWARDED
    assert len(memory.forwards) + memory.state.overflow == 2 * m.MAX_FORWARDED


def test_progress_reaches_the_recovery_of_a_hang_only() -> None:
    for symptom, told in ((Symptom.HANG, 1), (Symptom.CRASH, 0)):
        memory = opened(symptom=symptom)
        memory.hear_attempt(samples.report("progress", step=130), NOW)
        assert len(memory.forwards) == told


@pytest.mark.parametrize("ended", ["adopts", "steps back"])
def test_progress_that_the_new_attempt_made_under_an_open_recovery_is_known_after_it(ended: str) -> None:
    memory = opened()
    failed_at = memory.status().progress
    for step in (130, 140):
        memory.hear_attempt(samples.report("progress", restart=1, step=step), NOW)
    assert memory.status().progress == failed_at, "the failed attempt is the current one still"
    memory = renewed(memory)
    if ended == "adopts":
        done = outcome(Outcome.RESUMED, new_attempt=samples.attempt(1))
    else:  # somebody else requeued the job: the monitor heard of that, too
        memory.hear_attempt(samples.report("started", restart=1), NOW)
        done = outcome(Outcome.ABANDONED)
    memory.hear_recovery_ended(done, NOW)
    progress = memory.status().progress
    assert progress is not None
    assert (progress.step, memory.state.furthest_step, memory.state.ahead) == (140, 140, None)


def test_progress_of_an_attempt_that_was_left_behind_is_not_taken_over() -> None:
    memory = opened()
    memory.hear_attempt(samples.report("progress", restart=1, step=110), NOW)
    memory.hear_recovery_ended(outcome(Outcome.FAILED_AGAIN, new_attempt=samples.attempt(2)), NOW)
    assert memory.status().progress is None


def test_a_start_seen_with_its_settled_submit_time_is_the_same_attempt() -> None:
    memory = fresh(attempt=samples.attempt(1))
    settled = samples.attempt(1, submitted=samples.attempt(1).submit_time + timedelta(seconds=7))
    memory.hear_anomaly(samples.anomaly("a", attempt=settled), NOW)
    memory.hear_attempt(samples.report("started", attempt=settled, nodes=("n5",)), NOW)
    assert (memory.job.attempt, memory.job.nodes) == (settled, ("n5",))
    assert memory.state.settle_until is not None
    assert len(memory.diagnose()[1]) == 1


@pytest.mark.parametrize(("job_id", "saved"), [("", True), ("4711", False)])
def test_a_job_that_was_submitted_anew_is_saved_anew(job_id: str, saved: bool) -> None:
    memory = opened()
    memory.hear_snapshot_saved()
    memory.hear_recovery_ended(outcome(Outcome.RESUMED, new_attempt=samples.attempt(1, job_id=job_id)), NOW)
    assert memory.state.snapshot_saved is saved


def test_an_anomaly_id_that_could_not_name_a_workflow_is_refused() -> None:
    payload = samples.anomaly("a").model_dump(mode="json") | {"anomaly_id": "x" * 1200}
    with pytest.raises(ValidationError):
        Anomaly.model_validate(payload)


@pytest.mark.parametrize(
    ("how", "step", "asks"),
    [
        (Outcome.REJECTED, 5, False),
        (Outcome.EXPIRED, 5, False),
        (Outcome.REJECTED, 9, True),
        (Outcome.REFUTED, 5, True),
    ],
)
def test_a_hang_that_goes_on_is_asked_about_again_unless_a_person_said_no(
    how: Outcome, step: int, asks: bool
) -> None:
    memory = opened(symptom=Symptom.HANG)
    memory.hear_recovery_ended(outcome(how, symptom=Symptom.HANG, lost_from_step=5), NOW)
    progress = Progress(step=step, at=NOW)
    memory.hear_anomaly(samples.anomaly("again", symptom=Symptom.HANG, progress=progress), NOW)
    assert [a.anomaly_id for a in memory.state.inbox] == (["again"] if asks else [])


@pytest.mark.parametrize("furthest", [None, 100])
def test_a_person_who_said_no_to_a_hang_at_the_start_is_not_asked_again(furthest: int | None) -> None:
    memory = fresh()
    if furthest is not None:
        memory.hear_attempt(samples.report("progress", step=furthest), NOW)
    memory.hear_attempt(samples.report("started", restart=1), NOW)
    memory.hear_anomaly(samples.hang_at_start("h1", 1), NOW)
    memory.open("r1", memory.diagnose()[0], NOW)
    said = {"symptom": Symptom.HANG, "lost_from_step": furthest, "attempt": samples.attempt(1)}
    memory.hear_recovery_ended(outcome(Outcome.REJECTED, **said), NOW)
    memory.hear_anomaly(samples.hang_at_start("h2", 1), NOW)
    assert memory.state.inbox == ()


def test_the_next_recovery_goes_behind_a_divergence_until_training_resumed() -> None:
    memory = opened()
    bad = CheckpointRef(name="iter_0000100", step=100)
    first = outcome(Outcome.FAILED_AGAIN, new_attempt=samples.attempt(1), diverged_from=bad)
    memory.hear_anomaly(samples.anomaly("nan", 1, cause="numerical", symptom="degraded"), NOW)
    memory.hear_recovery_ended(first, NOW)
    assert memory.state.diverged_from == bad
    assert memory.settled(NOW + memory.job.policy.settle), "what the recovery found opens the next one"
    memory.open("r2", memory.diagnose()[0], NOW)
    again = outcome(Outcome.FAILED_AGAIN, recovery_id="r2", new_attempt=samples.attempt(2))
    memory.hear_recovery_ended(again, NOW)
    assert memory.state.diverged_from == bad
    memory.open("r3", samples.diagnosis(), NOW)
    memory.hear_recovery_ended(outcome(Outcome.RESUMED, recovery_id="r3"), NOW)
    assert memory.state.diverged_from is None


def test_a_broken_checkpoint_of_a_healthy_run_is_noticed_once_and_explains_a_later_fault() -> None:
    memory = fresh()
    progress = samples.Progress(step=120, at=NOW)
    memory.hear_attempt(samples.report("progress", progress=progress), NOW)
    broken = BadCheckpoint(name="step_9", state="corrupt", reason="a shard is cut", modified_at=NOW)
    running = samples.info(JobState.RUNNING, start_time=NOW - timedelta(hours=1))
    look = PollResult(known=True, info=running, checkpoints=CheckpointLook(directory="/c", bad=(broken,)))
    for _ in range(3):
        memory.hear_look(look, NOW)
    assert len(memory.status().noticed) == 1
    assert "step_9" in memory.status().noticed[0]
    assert memory.status().state == "watching"
    memory.hear_anomaly(samples.anomaly("a1"), NOW)
    assert any("step_9" in e.text for e in memory.diagnose()[0].evidence)


def test_what_relight_excluded_is_let_in_again_after_its_time() -> None:
    memory = opened()
    memory.hear_recovery_ended(
        outcome(Outcome.RESUMED, excluded_nodes=("n1", "n7"), newly_excluded=("n1",)), NOW
    )
    memory = renewed(memory)
    assert memory.readmitted(NOW + timedelta(days=6)) == ()
    assert memory.readmitted(NOW + timedelta(days=7)) == ("n1",)


def test_a_hang_that_was_none_teaches_patience_up_to_a_bound() -> None:
    memory = fresh()
    for n in range(8):
        memory.hear_anomaly(samples.anomaly(f"h{n}", symptom=Symptom.HANG, step=n + 1), NOW)
        memory.open("r1", memory.diagnose()[0], NOW)
        memory.hear_recovery_ended(outcome(Outcome.REFUTED, symptom=Symptom.HANG), NOW)
    assert memory.job.patience == m.MOST_PATIENCE
    assert memory.status().refuted == 8
    assert "silence of 1.5 times" in memory.state.noticed[0] or len(memory.state.noticed) == m.MAX_NOTICED
    assert renewed(memory).job.patience == m.MOST_PATIENCE


def test_a_crash_that_was_none_is_counted_and_teaches_nothing() -> None:
    memory = opened()
    memory.hear_recovery_ended(outcome(Outcome.REFUTED, symptom=Symptom.CRASH), NOW)
    assert (memory.job.patience, memory.status().refuted) == (1.0, 1)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("aprove", 'a signal "aprove" came, which has no meaning: did you mean approve?'),
        ("\x1b[31mx\n# y", 'a signal "x # y" came, which has no meaning: known are approve, pause'),
    ],
)
def test_a_signal_without_a_meaning_is_a_notice(name: str, said: str) -> None:
    memory = Memory(samples.job(), MonitorState())
    memory.hear_unknown_signal(name, ("approve", "pause"), samples.T0)
    (notice,) = memory.status().noticed
    assert notice.endswith(f"UTC: {said}")


def test_signals_without_a_meaning_take_no_more_room_the_more_there_are() -> None:
    memory = Memory(samples.job(), MonitorState(noticed=("something else",)))
    for n in range(1000):
        memory.hear_unknown_signal(f"{n}" + "x" * 100_000, ("approve",), samples.T0)
    assert memory.state.noticed == ("something else",)
    assert len(memory.status().noticed) == 2
    assert len(memory.state.model_dump_json()) < len(MonitorState().model_dump_json()) + 400
