"""What audits tell of losses and chains."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.audit.record import RecoveryAudit
from relight.audit.recovery import recovery_audit
from relight.contracts import Cause, JobInfo, JobState, Outcome, Symptom
from relight.contracts.messages import EndReason
from relight.report.records import TIMED, ChainEnd, Loss, Phase, chains, loss_of
from tests.relight.audit.making import recorded
from tests.relight.report.making import UNTIL, job, recovery, watch

HOUR = timedelta(hours=1)
AT = UNTIL - timedelta(days=3)


def seconds(loss: Loss) -> dict[Phase, float]:
    return {phase: time.total_seconds() for phase, time in loss.phases.items()}


def test_every_phase_of_a_recovery_that_resumed() -> None:
    audit = recovery(job(), AT, detect=60, decide=30, queue=120, load=300, replay=600)
    loss = loss_of(audit, UNTIL)
    assert seconds(loss) == {
        Phase.DETECT: 60, Phase.DECIDE: 30, Phase.QUEUE: 120, Phase.LOAD: 300, Phase.REPLAY: 600,
    }  # fmt: skip
    assert (loss.until - loss.occurred).total_seconds() == 1110
    assert loss.gpu_hours == pytest.approx(32 * 1110 / 3600)
    assert loss.gpu_hours_by_phase[Phase.REPLAY] == pytest.approx(32 * 600 / 3600)
    assert loss.gpu_hours_by_phase[Phase.REST] == 0
    assert (loss.fault, loss.restarted, loss.open) == (True, True, False)


def without(audit: RecoveryAudit, **times: Any) -> RecoveryAudit:
    """The same with other times in its outcome."""
    assert audit.outcome is not None
    changed = audit.outcome.times.model_copy(update=times)
    return audit.model_copy(update={"outcome": audit.outcome.model_copy(update={"times": changed})})


@pytest.mark.parametrize(
    ("audit", "phases"),
    [
        pytest.param(
            recovery(job(), AT, outcome=Outcome.FAILED_AGAIN), {Phase.DETECT, Phase.DECIDE},
            id="it never ran again",
        ),
        pytest.param(
            recovery(job(), AT, outcome=Outcome.EXPIRED), {Phase.DETECT}, id="nobody decided"
        ),
        pytest.param(
            without(recovery(job(), AT), acted=None), {Phase.DETECT, Phase.LOAD, Phase.REPLAY},
            id="the scheduler started it again by itself",
        ),
    ],
)  # fmt: skip
def test_phases_that_are_not_known_are_left_out(audit: RecoveryAudit, phases: set[Phase]) -> None:
    loss = loss_of(audit, UNTIL)
    assert set(loss.phases) == phases
    if loss.gpu_hours is not None:
        assert sum(loss.gpu_hours_by_phase.values()) == pytest.approx(loss.gpu_hours)


def test_replay_is_never_longer_than_training_took() -> None:
    audit = recovery(job(), AT, load=100, replay=200)
    assert audit.outcome is not None
    many = audit.model_copy(update={"outcome": audit.outcome.model_copy(update={"steps_replayed": 10_000})})
    assert seconds(loss_of(many, UNTIL))[Phase.REPLAY] == 300
    assert seconds(loss_of(many, UNTIL))[Phase.LOAD] == 0
    unknown = audit.model_copy(update={"outcome": audit.outcome.model_copy(update={"steps_replayed": None})})
    assert Phase.REPLAY not in loss_of(unknown, UNTIL).phases


def test_clocks_that_disagree_make_no_negative_time() -> None:
    audit = without(recovery(job(), AT), detected=AT - HOUR, running=AT - HOUR)
    loss = loss_of(audit, UNTIL)
    assert all(time >= timedelta(0) for time in loss.phases.values())


NUMBERS = st.floats(0, 1e5)


@given(
    st.dictionaries(st.sampled_from(TIMED), st.timedeltas(timedelta(0), 1000 * HOUR)),
    NUMBERS,
    st.integers(1, 9999),
)
def test_gpu_hours_are_all_in_some_phase(phases: dict[Phase, timedelta], hours: float, gpus: int) -> None:
    loss = loss_of(recovery(job(), AT), UNTIL)
    loss = loss.model_copy(update={"phases": phases, "gpu_hours": hours, "gpus": gpus})
    assert sum(loss.gpu_hours_by_phase.values()) == pytest.approx(hours, abs=1e-5)
    assert all(part >= 0 for part in loss.gpu_hours_by_phase.values())


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [(one, one not in (Outcome.REFUTED, Outcome.REJECTED)) for one in Outcome],
)
def test_what_was_no_fault_costs_nothing(outcome: Outcome, fault: bool) -> None:
    assert loss_of(recovery(job(), AT, outcome=outcome), UNTIL).fault is fault


def test_an_open_recovery_lasts_until_now() -> None:
    audit = recovery(job(), AT).model_copy(update={"outcome": None, "ended": None})
    loss = loss_of(audit, UNTIL)
    assert (loss.open, loss.fault, loss.until) == (True, True, UNTIL)
    assert (loss.cause, loss.symptom) == (Cause.GPU_MEMORY_ECC, Symptom.CRASH)
    ended = loss_of(audit.model_copy(update={"ended": AT + HOUR}), UNTIL)
    assert (ended.open, ended.until) == (False, AT + HOUR), "terminated, say"


def test_gpus_of_an_old_archive_follow_from_what_was_counted() -> None:
    assert loss_of(recovery(job(nodes=3), AT, gpus=None), UNTIL).gpus == 24
    assert loss_of(recovery(job(), AT, gpus=None, outcome=Outcome.HELD), UNTIL).gpus is None


def test_waiting_for_a_person_is_from_the_question_to_the_answer() -> None:
    audit = without(recovery(job(), AT, asked=AT + HOUR), approved=AT + 3 * HOUR)
    assert loss_of(audit, UNTIL).waited == 2 * HOUR
    assert loss_of(recovery(job(), AT), UNTIL).waited is None


def test_history_tells_how_many_gpus_the_job_has() -> None:
    history = recorded("crash.0.recovery")
    before = recovery_audit("crash.0.recovery", history.events)
    assert before.gpus is None, "this scheduler did not say"
    for event in history.events:
        for payload in event.activity_task_completed_event_attributes.result.payloads:
            result = json.loads(payload.data)
            if isinstance(result, dict) and "observations" in result:
                info = JobInfo(job_id="1", state=JobState.FAILED, submit_time=AT, gpus=32)
                payload.data = json.dumps(result | {"job_info": info.model_dump(mode="json")}).encode()
    audit = recovery_audit("crash.0.recovery", history.events)
    assert audit == before.model_copy(update={"gpus": 32})
    assert loss_of(audit, UNTIL).gpus == 32


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (EndReason.COMPLETED, ChainEnd.WELL),
        (EndReason.STOPPED, ChainEnd.BADLY),
        (EndReason.CANCELLED, ChainEnd.BY_OTHERS),
        (EndReason.TIME_LIMIT, ChainEnd.BY_OTHERS),
        (EndReason.UNWATCHED, ChainEnd.UNWATCHED),
        (EndReason.GONE, ChainEnd.UNKNOWN),
        (None, ChainEnd.UNKNOWN),
    ],
)
def test_how_a_chain_ended(end: EndReason | None, expected: ChainEnd) -> None:
    [chain] = chains([watch(job(), ended=AT, end=end)], [], UNTIL)
    assert (chain.end, chain.until) == (expected, AT)


def test_a_chain_has_all_attempts_of_its_run() -> None:
    mine = job(7)
    audits = [
        recovery(mine, AT + HOUR, outcome=Outcome.REFUTED),
        recovery(mine, AT),
        recovery(mine, AT + 2 * HOUR),
        recovery(job(8), AT, outcome=Outcome.HELD),
        recovery(job(9), AT),
    ]
    found = chains([watch(mine), watch(job(6))], [loss_of(audit, UNTIL) for audit in audits], UNTIL)
    assert [(c.job_id, c.attempts, len(c.losses), c.end) for c in found] == [
        ("7", 3, 3, ChainEnd.OPEN),
        ("8", 1, 1, ChainEnd.BADLY),  # only the archive knows it: held is an end
        ("9", 2, 1, ChainEnd.UNKNOWN),
        ("6", 1, 0, ChainEnd.OPEN),
    ]
    assert [loss.occurred for loss in found[0].losses] == [AT, AT + HOUR, AT + 2 * HOUR]
    assert found[1].began is None
