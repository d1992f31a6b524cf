"""Untrusted text and times at the door."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from relight.contracts import Anomaly, Attempt, Evidence, Plan, Progress, Source, clean_text
from relight.contracts.base import MAX_TEXT


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\nb\rc\x00d", "a b c d"),
        ("\x1b]0;title\x07text", "text"),
        ("ab\u202ecd", "ab cd"),
        ("tab\tstays", "tab\tstays"),
        ("lone \ud800 surrogate", "lone ? surrogate"),
    ],
)
def test_clean_text(raw: str, clean: str) -> None:
    assert clean_text(raw) == clean


@given(st.text(max_size=2000))
def test_clean_text_is_bounded_one_line_and_idempotent(raw: str) -> None:
    once = clean_text(raw)
    assert len(once) <= MAX_TEXT
    assert "\n" not in once
    assert "\x1b" not in once
    assert clean_text(once) == once


def test_both_ends_of_a_long_line_stay() -> None:
    text = clean_text("begin" + "x" * 10_000_000 + "end", 100)
    assert text.startswith("begin")
    assert len(text) == 100


def test_a_time_needs_a_zone() -> None:
    with pytest.raises(ValidationError, match="time zone"):
        Progress(step=1, at=datetime(2026, 1, 1))


def test_times_become_utc() -> None:
    east = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert Progress(step=1, at=east).at == datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert Progress(step=1, at=east).at.tzinfo is UTC


def test_only_the_job_log_is_not_trusted() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    trusted = {s for s in Source if Evidence(source=s, observed_at=now, text="x").trust}
    assert trusted == set(Source) - {Source.JOB_LOG}


def test_anomaly_ids_are_stable_and_apart() -> None:
    attempt = Attempt(cluster="c", job_id="1", submit_time=datetime(2026, 1, 1, tzinfo=UTC), restart_count=0)
    again = Attempt.model_validate_json(attempt.model_dump_json())
    later = attempt.model_copy(update={"restart_count": 1})
    ids = [
        Anomaly.make_id(attempt, "hang", 7),
        Anomaly.make_id(attempt, "hang", 8),
        Anomaly.make_id(attempt, "crash", 7),
        Anomaly.make_id(later, "hang", 7),
        Anomaly.make_id(attempt, "hang", "a", "b"),
        Anomaly.make_id(attempt, "hang", "ab"),
    ]
    assert len(set(ids)) == len(ids)
    assert Anomaly.make_id(again, "hang", 7) == ids[0]


def test_a_plan_digest_names_exactly_that_plan() -> None:
    plan = Plan(action="restart", because="a crash")
    assert plan.digest == Plan.model_validate_json(plan.model_dump_json()).digest
    assert plan.digest != plan.model_copy(update={"excluded_nodes": ("node01",)}).digest
