"""What people read: bounded, and untrusted text stays text."""

import re
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.contracts import Cause, Evidence, Mode, Outcome, Source
from relight.contracts.guard import GuardLimits, GuardState, NodeReport, PermitRequest
from relight.contracts.messages import Decision, EndReason, MonitorState, MonitorStatus, Note
from relight.contracts.node_drain import DrainEnd, NodeDrainInput, NodeDrainStatus
from relight.contracts.policy import OnExpiry, Policy
from relight.contracts.steps import ConfirmResult, LocateResult, Observation
from relight.policy.guard import Guard
from relight.policy.plan import make_plan
from tests.workflows import samples
from workflows.details import MAX_DETAILS, clip, code, fence, happened, page, recovery_details
from workflows.drain_details import drain_details
from workflows.guard_details import guard_details
from workflows.memory import Memory
from workflows.monitor_details import monitor_details

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


def details(text: str, evidence: int = 1, **fields: Any) -> str:
    quoted = Evidence(source=Source.JOB_LOG, observed_at=samples.T0, text=text, where=text, node="n3")
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
    usual: dict[str, Any] = {
        "workflow_id": "recover:lab:1:0:a1",
        "job_id": "1",
        "state": "awaiting-approval",
        "mode": Mode.OBSERVE,
        "paused": False,
        "diagnosis": what,
        "confirmation": confirmation,
        "plan": make_plan(job, what, confirmation, (), Mode.OBSERVE, checkpoint),
        "deadline": samples.T0,
        "log": (text,),
        "ending": "",
    }
    return recovery_details(**(usual | fields))


def outside_of_quotes(markdown: str) -> str:
    without_fences = re.sub(r"^(`{3,})text\n.*?^\1$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "", without_fences)


def test_log_text_cannot_become_markdown() -> None:
    shown = details(NASTY)
    assert "javascript" in shown
    for piece in ("javascript", "rm -rf", "Approved by root", "bold"):
        assert piece not in outside_of_quotes(shown)


def test_it_says_what_to_do_in_a_terminal_and_on_the_page() -> None:
    shown = details("boom")
    found = re.search(r"^## Plan (\w{8}): ", shown, flags=re.MULTILINE)
    assert found is not None
    digest = found.group(1)
    assert f"relight approve 1 --plan {digest} --reason WHY\n" in shown
    assert f"relight reject 1 --plan {digest} --reason WHY\n" in shown
    assert "signal **approve** or **reject**" in shown
    for word in (
        "Confirmation",
        "job log: **confirms**",
        "**drain_job** (changes something)",
        "`n3`",
        "observe",
    ):
        assert word in shown


def test_what_the_page_says_to_send_is_a_decision_on_this_plan() -> None:
    shown = details("boom")
    found = re.search(r"^(\{.*?\})$", shown, flags=re.DOTALL | re.MULTILINE)
    assert found is not None
    decision = Decision.model_validate_json(found.group(1))
    assert decision.approved
    assert f"## Plan {decision.plan_digest}: " in shown


def test_nothing_on_a_page_is_wider_than_the_pane() -> None:
    """The web UI wraps text and inline code, and cuts what is fenced."""
    shown = details("x" * 5000)
    fenced = re.findall(r"^```text\n(.*?)^```$", shown, flags=re.DOTALL | re.MULTILINE)
    assert len(fenced) == 2
    for line in "".join(fenced).splitlines():
        assert len(line) <= 60


@pytest.mark.parametrize(
    ("policy", "mode", "approvals", "expected"),
    [
        (Policy(), Mode.OBSERVE, (), ["May decide: anybody", "nothing is changed"]),
        (Policy(approvers=("anna", "ben`")), Mode.OBSERVE, (), ["May decide: `anna`, `ben `."]),
        (Policy(approvals=2), Mode.OBSERVE, (), ["Approved by **0 of 2** different people."]),
        (Policy(approvals=2), Mode.ACT, ("anna",), ["Approved by **1 of 2** different people, by `anna`."]),
        (Policy(on_expiry=OnExpiry.PROCEED), Mode.ACT, (), ["goes on by itself"]),
        (Policy(on_expiry=OnExpiry.PROCEED), Mode.OBSERVE, (), ["the recovery ends then"]),
    ],
)
def test_it_says_who_may_decide_and_what_happens_otherwise(
    policy: Policy, mode: Mode, approvals: tuple[str, ...], expected: list[str]
) -> None:
    shown = details("boom", policy=policy, mode=mode, approvals=approvals)
    for text in expected:
        assert text in shown


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_ended_recovery_says_what_is_left_to_do(outcome: Outcome) -> None:
    shown = details("boom", deadline=None, ending=f"{outcome.value}, {NASTY}", outcome=outcome)
    assert shown.startswith(f"# Job `1`: `{outcome.value}, ")
    assert "relight pause" not in shown
    left = "needs a person" in shown or "for a person" in shown
    assert left is (outcome in {Outcome.HELD, Outcome.STOPPED, Outcome.REJECTED, Outcome.EXPIRED})


@pytest.mark.parametrize(("paused", "command"), [(False, "relight pause 1"), (True, "relight unpause 1")])
def test_a_recovery_under_way_says_how_to_stop_it_and_go_on(paused: bool, command: str) -> None:
    shown = details("boom", deadline=None, state="draining", paused=paused)
    assert command in shown
    assert "relight approve" not in shown


def encoded(text: str) -> int:
    """Its size in the address by which the web UI has it rendered."""
    return len(quote(text, safe="!'()*-._~"))


@pytest.mark.parametrize("evidence", [0, 1, 500])
@pytest.mark.parametrize("text", ["x" * 5000, "ж" * 5000, NASTY * 500])
def test_it_fits_into_an_address_and_its_quotes_stay_whole(evidence: int, text: str) -> None:
    shown = details(text, evidence, log=(text,) * 100, policy=Policy(approvers=tuple("abcdefghijk")))
    assert encoded(shown) <= MAX_DETAILS
    assert "`" not in outside_of_quotes(shown)


def test_the_latest_of_a_long_log_is_shown() -> None:
    shown = details("boom", log=[f"line {n} {'x' * 80}" for n in range(100)])
    assert "`line 99 " in shown
    assert "`line 0 " not in shown
    found = re.search(r"\((\d+) earlier lines: ", shown)
    assert found is not None
    assert shown.count("`line ") + int(found.group(1)) == 100


@given(st.lists(st.text(max_size=400), max_size=40), st.lists(st.text(max_size=400), max_size=40))
def test_a_page_is_bounded_and_keeps_its_beginning(lines: list[str], log: list[str]) -> None:
    quoted = [code(line.encode("utf-8", "replace").decode()) for line in lines]
    shown = page([["# head"], quoted], [line.encode("utf-8", "replace").decode() for line in log])
    assert encoded(shown) <= MAX_DETAILS
    assert shown.startswith("# head")


def test_a_monitor_shows_its_job() -> None:
    shown = monitor_details(Memory(samples.job(run=NASTY), MonitorState()).status())
    assert "watching" in shown
    assert "bold" not in outside_of_quotes(shown)


def test_a_monitor_links_to_the_recovery_that_waits() -> None:
    status = MonitorStatus(
        job=samples.job(), state="awaiting-approval", open_recoveries=("recover:lab:1:0:a1",), recoveries=1
    )
    shown = monitor_details(status, "team/a")
    assert "[`recover:lab:1:0:a1`](namespaces/team%2Fa/workflows/recover%3Alab%3A1%3A0%3Aa1)" in shown
    assert f"relight approve {status.job.attempt.job_id} --reason WHY" in shown
    assert "1 recovery, 0 signals" in shown


@pytest.mark.parametrize(
    ("fields", "mode", "expected"),
    [
        ({}, Mode.OBSERVE, "relight mode {} act"),
        ({}, Mode.ACT, "relight mode {} observe"),
        ({"paused": True}, Mode.ACT, "relight unpause {}"),
        (
            {"end": EndReason.CANCELLED, "end_detail": "by **root**"},
            Mode.ACT,
            "Ended: **cancelled** `by **root**`",
        ),
    ],
)
def test_a_monitor_says_what_a_person_can_do(fields: dict[str, Any], mode: Mode, expected: str) -> None:
    job = samples.job(mode)
    shown = monitor_details(MonitorStatus(job=job, state="watching", **fields))
    assert expected.format(job.attempt.job_id) in shown


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"gate": "breaker", "reason": NASTY, "state": "awaiting-permit"}, "It is not drained yet."),
        ({"drained_at": samples.T0, "state": "drained"}, "give it back"),
        ({"end": DrainEnd.REFUSED, "state": "ended"}, "drain it by hand"),
    ],
)
def test_a_drain_says_why_how_it_stands_and_what_to_do(fields: dict[str, Any], expected: str) -> None:
    quoted = Evidence(source=Source.KERNEL, observed_at=samples.T0, text=NASTY, node="n3")
    start = NodeDrainInput(
        cluster="lab", node="n3", cause=Cause.NVLINK, recovery_id="recover:lab:1:0:a1", job="1.0",
        because=NASTY, evidence=(quoted,), evidence_at=samples.T0, guard_id="guard:lab",
    )  # fmt: skip
    status = NodeDrainStatus(drain_id="drain:lab:n3:1", node="n3", cause=Cause.NVLINK, log=(NASTY,), **fields)
    shown = drain_details(start, status, "default")
    assert expected in shown
    assert ("relight nodes release n3 --reason WHY" in shown) is (status.end is None)
    assert "(namespaces/default/workflows/recover%3Alab%3A1%3A0%3Aa1)" in shown
    for piece in ("javascript", "rm -rf", "Approved by root", "bold"):
        assert piece not in outside_of_quotes(shown)


@pytest.mark.parametrize("end", list(DrainEnd))
def test_every_end_of_a_drain_is_told(end: DrainEnd) -> None:
    start = NodeDrainInput(
        cluster="lab", node="n3", cause=Cause.NVLINK, recovery_id="r", evidence_at=samples.T0, guard_id="g"
    )
    status = NodeDrainStatus(drain_id="d", node="n3", cause=Cause.NVLINK, state="ended", end=end)
    assert f"# Node `n3`: {end.value}\n" in drain_details(start, status, "default")


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
    shown = guard_details(guard.status(now), guard.lemons(now))
    assert shown.startswith("# Cluster `lab`: open")
    assert "`relight guard reset --partition gpu` closes it" in shown
    assert "## Waiting: 1" in shown
    assert "`recover:2`: **recoveries at once**" in shown
    assert "## Lemons\n- `n1`" in shown
    assert "user ` ](http://x) **boom**`" in shown
    guard.pause(Note(by="ada", reason=hostile), now)
    shown = guard_details(guard.status(now), ())
    assert shown.startswith("# Cluster `lab`: paused")
    assert "`relight unpause --cluster`" in shown
    assert encoded(shown) <= MAX_DETAILS


def test_evidence_on_a_page_is_a_line_of_a_file_and_alike_lines_stand_once() -> None:
    evidence = tuple(
        Evidence(
            source=Source.JOB_LOG, observed_at=samples.T0, text=f"[rank{n}]: RuntimeError: boom", rank=n,
            where=f"/logs/a.log:{n * 100}", line=n + 1, signature="python.exception",
        )
        for n in range(8)
    )  # fmt: skip
    what = happened(samples.diagnosis(cause=Cause.UNKNOWN, evidence=evidence))
    assert "cause **unknown** after step" in what
    assert "% sure" not in what
    assert "`[rank0]: RuntimeError: boom`, in `/logs/a.log:1` (`and 7 alike on ranks 1-7`)" in what
    assert what.count("boom") == 1
