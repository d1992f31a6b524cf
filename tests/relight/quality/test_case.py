"""What really happened, from the audit of a recovery."""

from datetime import timedelta
from typing import Any

import pytest

from relight.audit.record import RecoveryAudit
from relight.contracts import Attempt, Cause, JobState, Mode, Outcome, Progress, RecoveryOutcome, Symptom
from relight.contracts.messages import AttemptEvent, AttemptReport
from relight.contracts.outcome import Timeline
from relight.quality.case import Case, Truth, case_of
from tests.relight.audit.making import T0, an_audit

MINUTE = timedelta(minutes=1)
ASKED = T0 + MINUTE
FAILED = Attempt(cluster="lab", job_id="1", submit_time=T0, restart_count=0)
NEXT = Attempt(cluster="lab", job_id="1", submit_time=T0 + 9 * MINUTE, restart_count=1)


def ended(
    outcome: Outcome, *reports: AttemptReport, symptom: Symptom = Symptom.HANG, **fields: Any
) -> RecoveryAudit:
    """A recovery in observe mode that showed a plan a minute after it began."""
    result = RecoveryOutcome(
        recovery_id="r", outcome=outcome, reason="why", symptom=symptom, cause=Cause.NETWORK_FABRIC,
        attempt=FAILED, **fields,
    )  # fmt: skip
    whole = an_audit(asked=ASKED, outcome=result, reports=reports, detectors=("no_progress",))
    diagnosis = whole.diagnosis.model_copy(update={"progress": Progress(step=100, at=T0)})
    return whole.model_copy(update={"diagnosis": diagnosis})


def told(event: AttemptEvent, attempt: Attempt = FAILED, **fields: Any) -> AttemptReport:
    return AttemptReport(attempt=attempt, event=event, at=T0 + 10 * MINUTE, **fields)


def progress(step: int) -> AttemptReport:
    return told(AttemptEvent.PROGRESS, progress=Progress(step=step, at=T0 + 10 * MINUTE))


ACTED = Timeline(approved=T0 + 5 * MINUTE, acted=T0 + 6 * MINUTE)
CONFIRMED = Timeline(confirmed=T0)


@pytest.mark.parametrize(
    ("audit", "truth", "happened"),
    [
        pytest.param(
            ended(Outcome.RESUMED, approved_by="ada", times=ACTED), Truth.RIGHT, T0 + 6 * MINUTE, id="yes"
        ),
        pytest.param(
            ended(Outcome.FAILED_AGAIN, approved_by="ada", times=ACTED), Truth.RIGHT, T0 + 6 * MINUTE,
            id="approved, and it failed again: the fault was real",
        ),
        pytest.param(ended(Outcome.REJECTED), Truth.WRONG, None, id="rejected"),
        pytest.param(ended(Outcome.REFUTED), Truth.WRONG, None, id="refuted"),
        pytest.param(ended(Outcome.EXPIRED), Truth.OPEN, None, id="nobody said anything, nothing is known"),
        pytest.param(
            ended(Outcome.EXPIRED, symptom=Symptom.CRASH, times=CONFIRMED), Truth.RIGHT, None,
            id="a crash that the scheduler confirmed",
        ),
        pytest.param(ended(Outcome.EXPIRED, symptom=Symptom.CRASH), Truth.OPEN, None, id="not confirmed"),
        pytest.param(ended(Outcome.EXPIRED, progress(101)), Truth.WRONG, None, id="it went on"),
        pytest.param(ended(Outcome.EXPIRED, progress(100)), Truth.OPEN, None, id="no step gained"),
        pytest.param(
            ended(Outcome.ABANDONED, told(AttemptEvent.ENDED, state=JobState.FAILED)),
            Truth.RIGHT, T0 + 10 * MINUTE, id="the job died",
        ),
        pytest.param(
            ended(Outcome.ABANDONED, told(AttemptEvent.ENDED, state=JobState.CANCELLED)),
            Truth.RIGHT, T0 + 10 * MINUTE, id="somebody ended the hanging job",
        ),
        pytest.param(
            ended(Outcome.ABANDONED, told(AttemptEvent.ENDED, state=JobState.COMPLETED)),
            Truth.WRONG, None, id="it completed",
        ),
        pytest.param(
            ended(Outcome.ABANDONED, told(AttemptEvent.STARTED, NEXT)),
            Truth.RIGHT, T0 + 10 * MINUTE, id="somebody started it again",
        ),
        pytest.param(
            ended(Outcome.ABANDONED, told(AttemptEvent.STARTED)), Truth.OPEN, None, id="its own start"
        ),
        pytest.param(
            ended(Outcome.RESUMED, approved_by="nobody within 0:05:00: the policy goes on then", times=ACTED),
            Truth.OPEN, None, id="silence is no yes",
        ),
        pytest.param(
            ended(Outcome.RESUMED, told(AttemptEvent.STARTED, NEXT), times=ACTED), Truth.OPEN, None,
            id="relight's own restart says nothing",
        ),
        pytest.param(
            ended(Outcome.RESUMED, times=ACTED), Truth.OPEN, None, id="act mode was given meanwhile"
        ),
    ],
)  # fmt: skip
def test_truth(audit: RecoveryAudit, truth: Truth, happened: Any) -> None:
    case = case_of(audit)
    assert case is not None
    assert (case.truth, case.happened_at) == (truth, happened)
    assert case.would_act
    assert case.would_act_at == ASKED
    assert case.because


def test_what_is_open_or_in_act_mode_is_no_case() -> None:
    assert case_of(an_audit(outcome=None)) is None
    assert case_of(an_audit(mode=Mode.ACT)) is None


def test_a_fault_that_only_the_monitor_saw_was_missed() -> None:
    def detected(*detectors: str) -> Case:
        case = case_of(ended(Outcome.REJECTED).model_copy(update={"detectors": detectors}))
        assert case is not None
        return case

    assert (detected("poll").missed, detected("poll").detector) == (True, "poll")
    assert (detected("poll", "job_end").missed, detected("poll", "job_end").detector) == (False, "job_end")
    assert (detected().missed, detected().detector) == (False, "unknown")


def test_a_detection_that_relight_withdrew_itself_would_not_have_acted() -> None:
    case = case_of(ended(Outcome.REFUTED).model_copy(update={"asked": None}))
    assert case is not None
    assert (case.would_act, case.truth) == (False, Truth.WRONG)


@pytest.mark.parametrize(
    ("state", "because"),
    [
        (JobState.PENDING, "it was requeued, and not by relight"),
        (JobState.CANCELLED, "it was cancelled"),
        (JobState.FAILED, "the job died (FAILED)"),
        (JobState.NODE_FAIL, "the job died (NODE_FAIL)"),
    ],
)
def test_how_it_ended_in_words(state: JobState, because: str) -> None:
    case = case_of(ended(Outcome.ABANDONED, told(AttemptEvent.ENDED, state=state)))
    assert case is not None
    assert (case.truth, case.because) == (Truth.RIGHT, because)
