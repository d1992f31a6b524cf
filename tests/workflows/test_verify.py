"""`relight audit verify`: an honest history comes out the same; a changed one does not."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHandle, WorkflowHistory
from typer.testing import CliRunner

from relight.audit.events import UnreadableHistory
from relight.cli.audit_replay import differences, verify_history
from relight.cli.main import app
from relight.contracts import Cause, Mode, Outcome
from relight.contracts.messages import Decision, RecoveryStatus
from relight.contracts.steps import DrainResult, LocateResult
from relight.diagnosis.verdict import diagnose
from tests.workflows import samples
from tests.workflows.conftest import Lab
from tests.workflows.world import error


def _start(**fields: Any) -> dict[str, Any]:
    """A recovery with the diagnosis that its anomalies give."""
    job = samples.job(**fields)
    anomalies = (samples.anomaly("a1"),)
    return {"job": job, "anomalies": anomalies, "diagnosis": diagnose(anomalies, job)}


async def _asked(lab: Lab, recovery: WorkflowHandle[Any, Any], times: int = 1) -> RecoveryStatus:
    """The recovery's status, once history names so many plans that a person was asked about."""
    status = await lab.plan(recovery)
    await lab.until(
        recovery.fetch_history,
        lambda history: history.to_json().count("EVENT_TYPE_TIMER_STARTED") >= times,
    )
    return status


async def _rejected(lab: Lab) -> WorkflowHandle[Any, Any]:
    """Late evidence changes the plan while a person is asked; the person rejects the second one."""
    recovery = await lab.recover(**_start(mode=Mode.OBSERVE))
    await _asked(lab, recovery)
    await recovery.signal("report_anomaly", samples.anomaly("a2", cause=Cause.STORAGE, weight=9))
    await _asked(lab, recovery, 2)
    await recovery.signal("reject", Decision(by="ada", reason="a known bug"))
    assert (await recovery.result()).outcome is Outcome.REJECTED
    return recovery


async def _resumed(lab: Lab) -> WorkflowHandle[Any, Any]:
    """Approved by update; the first try of the drain fails."""
    lab.world.will("drain_job", error("SchedulerUnreachable", final=False), _drained())
    recovery = await lab.recover(**_start(mode=Mode.OBSERVE))
    plan = await _asked(lab, recovery)
    decision = Decision(by="ada", reason="go", plan_digest=plan.plan_digest)
    await recovery.execute_update("decide", decision)
    assert (await recovery.result()).outcome is Outcome.RESUMED
    return recovery


def _drained() -> DrainResult:
    return DrainResult(how="requeue-held", attempt=samples.attempt(1), accepted_at=samples.T0)


async def _held(lab: Lab) -> WorkflowHandle[Any, Any]:
    """In act mode, with no checkpoint that can be used."""
    lab.world.will("locate_checkpoint", LocateResult(name=None, summary="none is whole"))
    recovery = await lab.recover(**_start())
    assert (await recovery.result()).outcome is Outcome.HELD
    return recovery


Scenario = Callable[[Lab], Any]


@pytest.mark.parametrize("scenario", [_rejected, _resumed, _held])
async def test_what_was_recorded_comes_out_again(lab: Lab, scenario: Scenario) -> None:
    recovery = await scenario(lab)
    view = await verify_history(await recovery.fetch_history())
    assert view.same, [check for check in view.checks if not check.same]
    assert view.recovery_id == recovery.id
    words = [check.what for check in view.checks]
    assert words[0] == "diagnosis"
    assert words[-2:] == ["outcome", "replay"]
    assert words.count("plan") == {_rejected: 2, _resumed: 1, _held: 0}[scenario]
    assert "step 2" in words


async def test_an_open_recovery_can_be_verified_so_far(lab: Lab) -> None:
    recovery = await lab.recover(**_start(mode=Mode.OBSERVE))
    await _asked(lab, recovery)
    view = await verify_history(await recovery.fetch_history())
    assert view.same
    assert "outcome" not in [check.what for check in view.checks]


Change = Callable[[dict[str, Any]], None]


def _changed(history: WorkflowHistory, kind: str, change: Change, number: int = 0) -> WorkflowHistory:
    """The history with another payload in the event of this kind and number."""
    told = json.loads(history.to_json())
    event = [e for e in told["events"] if kind in e][number][kind]
    payload = (event.get("result") or event["input"])["payloads"][0]
    value = json.loads(b64decode(payload["data"]))
    change(value)
    payload["data"] = b64encode(json.dumps(value).encode()).decode()
    return WorkflowHistory.from_json(history.workflow_id, json.dumps(told))


@pytest.mark.parametrize(
    ("scenario", "kind", "number", "change", "differs"),
    [
        pytest.param(
            _rejected, "workflowExecutionStartedEventAttributes", 0,
            lambda v: v["diagnosis"].update(cause="nvlink"), {"diagnosis", "plan"},
            id="another diagnosis than its evidence gives",
        ),
        pytest.param(
            _rejected, "activityTaskCompletedEventAttributes", 0,
            lambda v: v.update(verdict="inconclusive"), {"plan"},
            id="another answer than the plan was made from",
        ),
        pytest.param(
            _rejected, "workflowExecutionSignaledEventAttributes", -1,
            lambda v: v.update(reason="it is fine"), {"outcome"},
            id="another word of the person",
        ),
        pytest.param(
            _held, "workflowExecutionCompletedEventAttributes", 0,
            lambda v: v.update(outcome="resumed"), {"outcome"},
            id="another outcome",
        ),
        pytest.param(
            _held, "activityTaskScheduledEventAttributes", 2,
            lambda v: v.update(reason="relight: somebody wanted it"), {"step 3"},
            id="another reason for a step",
        ),
    ],
)  # fmt: skip
async def test_a_changed_history_comes_out_differently(
    lab: Lab, scenario: Scenario, kind: str, number: int, change: Change, differs: set[str]
) -> None:
    recovery = await scenario(lab)
    history = _changed(await recovery.fetch_history(), kind, change, number)
    view = await verify_history(history)
    assert differs <= {check.what for check in view.checks if not check.same}
    assert not view.same


async def test_the_command_takes_a_saved_history(lab: Lab, tmp_path: Path) -> None:
    recovery = await _held(lab)
    history = await recovery.fetch_history()
    file = tmp_path / "history.json"
    file.write_text(history.to_json())

    def verify(*more: str) -> Any:
        return CliRunner().invoke(app, ["audit", "verify", recovery.id, "--history", str(file), *more])

    done = await asyncio.to_thread(verify)
    assert done.exit_code == 0, done.output
    assert f"{recovery.id}: verified" in done.stdout
    kind = "workflowExecutionCompletedEventAttributes"
    file.write_text(_changed(history, kind, lambda v: v.update(reason="no")).to_json())
    done = await asyncio.to_thread(verify, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["same"] is False
    told = await asyncio.to_thread(verify)
    assert "NOT verified" in told.stdout
    file.write_text("{")
    done = await asyncio.to_thread(verify)
    assert done.exit_code == 2
    assert "holds no history" in done.stderr


async def test_a_history_of_something_else_is_refused(lab: Lab) -> None:
    monitor = await lab.watch(samples.job())
    with pytest.raises(UnreadableHistory):
        await verify_history(await monitor.fetch_history())


@pytest.mark.parametrize(
    ("recorded", "now", "places"),
    [
        ({"a": 1}, {"a": 1, "later": 2}, []),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, ["a.b[1]"]),
        ({"a": [1]}, {"a": [1, 2]}, ["a"]),
        ({"a": 1, "b": 2}, {"b": 3}, ["a", "b"]),
        ("x", None, ["value"]),
    ],
)
def test_differences(recorded: Any, now: Any, places: list[str]) -> None:
    assert differences(recorded, now) == places
