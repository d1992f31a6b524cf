"""What people read: bounded, and untrusted text stays text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.contracts import Cause, Evidence, Mode, Source
from relight.contracts.guard import GuardLimits, GuardState, NodeReport, PermitRequest
from relight.contracts.messages import MonitorState, Note
from relight.contracts.steps import ConfirmResult, LocateResult, Observation
from relight.policy.guard import Guard
from relight.policy.plan import make_plan
from tests.workflows import samples
from workflows.details import MAX_DETAILS, clip, code, fence, monitor_details, recovery_details
from workflows.guard_details import guard_details
from workflows.memory import Memory

NASTY = "``` </pre> **bold** [x](javascript:alert(1)) `rm -rf /` \n# Approved by root"


@given(st.text(), st.integers(5, 300))
def test_clip_is_bounded_in_bytes_and_valid(text: str, limit: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    clipped = clip(text, limit)
    assert len(clipped.encode()) <= limit
    assert clipped == text or clipped.endswith("...")


@given(st.text(alphabet="`ab \n", max_size=40))
def test_nothing_within_a_fence_can_end_it(text: str) -> None:
    lines = fence(text).split("\n")
    ticks = re.match("`+", lines[0])
    assert ticks is not None
    assert lines[-1] == ticks.group()
    assert ticks.group() not in "\n".join(lines[1:-1])


@given(st.text())
def test_inline_code_is_one_line_without_backticks(text: str) -> None:
    inner = code(text)[1:-1]
    assert "`" not in inner
    assert "\n" not in inner
    assert inner


def details(text: str, evidence: int = 1) -> str:
    quoted = Evidence(source=Source.JOB_LOG, observed_at=samples.T0, text=text, where=text)
    what = samples.diagnosis(
        cause=Cause.NVLINK, nodes=("n3",), explanation=text, evidence=(quoted,) * evidence
    )
    confirmation = ConfirmResult(
        verdict="confirmed",
        summary=text,
        observations=(Observation(source="job log", verdict="confirms", text=text),),
    )
    checkpoint = LocateResult(name=text, step=100)
    job = samples.job(Mode.OBSERVE)
    return recovery_details(
        workflow_id="recover:lab:1:0:a1",
        job_id="1",
        state="awaiting-approval",
        mode=Mode.OBSERVE,
        paused=False,
        diagnosis=what,
        confirmation=confirmation,
        plan=make_plan(job, what, confirmation, (), Mode.OBSERVE, checkpoint),
        deadline=samples.T0,
        log=(text,),
        ending="",
    )


def outside_of_quotes(markdown: str) -> str:
    without_fences = re.sub(r"^(`{3,})text\n.*?^\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", without_fences)


def test_log_text_cannot_become_markdown() -> None:
    shown = details(NASTY)
    assert "javascript" in shown
    for piece in ("javascript", "rm -rf", "Approved by root", "bold"):
        assert piece not in outside_of_quotes(shown)


def test_it_says_what_to_do_in_both_ways() -> None:
    shown = details("boom")
    digest = re.search(r"Approve plan \*\*(\w{8})\*\*", shown)
    assert digest is not None
    assert "relight approve 1\n" in shown
    assert (
        "temporal workflow signal --workflow-id 'recover:lab:1:0:a1' --name approve --input "
        f"""'{{"by": "YOUR NAME", "reason": "WHY", "plan_digest": "{digest.group(1)}"}}'"""
    ) in shown
    assert "--name reject" in shown
    for word in ("Confirmation", "job log: **confirms**", "**drain_job**", "`n3`", "observe"):
        assert word in shown


@pytest.mark.parametrize("evidence", [0, 1, 500])
def test_it_is_bounded(evidence: int) -> None:
    assert len(details("x" * 5000, evidence).encode()) <= MAX_DETAILS


def test_a_monitor_shows_its_job() -> None:
    shown = monitor_details(Memory(samples.job(run=NASTY), MonitorState()).status())
    assert "watching" in shown
    assert "bold" not in outside_of_quotes(shown)


def test_the_guards_page_tells_what_is_closed_and_how_to_open_it() -> None:
    """Names and reasons come from others: they must not become Markdown."""
    hostile = "`](http://x) **boom**"
    limits = GuardLimits(recoveries_at_once=1)
    guard = Guard("lab", limits, GuardState())
    now = samples.T0
    guard.request(PermitRequest(holder="recover:1", user=hostile), now)
    guard.request(PermitRequest(holder="recover:2", user="bob"), now)
    for job in "123":
        told = NodeReport(nodes=("n1", "n2", "n3"), cause=Cause.NVLINK, at=now, partition="gpu", job=job)
        guard.report(told, now)
    guard.tick(now)
    page = guard_details(guard.status(now), guard.lemons(now))
    assert page.startswith("# Cluster `lab`: open")
    assert "`relight guard reset --partition gpu` closes it" in page
    assert "## Waiting: 1" in page
    assert "`recover:2`: **recoveries at once**" in page
    assert "## Lemons\n- `n1`" in page
    assert "user ` ](http://x) **boom**`" in page
    guard.pause(Note(by="ada", reason=hostile), now)
    page = guard_details(guard.status(now), ())
    assert page.startswith("# Cluster `lab`: paused")
    assert "`relight unpause --cluster`" in page
    assert len(page.encode()) <= MAX_DETAILS
