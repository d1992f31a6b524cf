"""`relight audit verify`: an honest history comes out the same; a changed one does not."""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.relight.audit.making import HISTORIES
from tests.relight.cli.conftest import Relight


@pytest.mark.parametrize(
    "name",
    ["rejected.1", "late_evidence.1", "crash_loop.2", "held.0", "expired.0", "steered.0", "diverged.1"],
)
def test_what_was_recorded_comes_out_again(alone: Relight, name: str) -> None:
    done = alone("audit", "verify", "it", "--history", HISTORIES / f"{name}.recovery.json", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["same"] is True
    assert {check["what"] for check in found["checks"]} >= {"replay", "step 1"}


Change = Callable[[dict[str, Any]], None]


def _tamper(name: str, tmp_path: Path, kind: str, change: Change, number: int = 0) -> Path:
    """Changes the payload of one event of this kind."""
    told = json.loads((HISTORIES / f"{name}.recovery.json").read_text())
    event = [e for e in told["events"] if kind in e][number][kind]
    payload = (event.get("result") or event.get("input") or event.get("acceptedRequest"))["payloads"][0]
    value = json.loads(b64decode(payload["data"]))
    change(value)
    payload["data"] = b64encode(json.dumps(value).encode()).decode()
    file = tmp_path / "changed.json"
    file.write_text(json.dumps(told))
    return file


@pytest.mark.parametrize(
    ("name", "kind", "number", "change", "differs"),
    [
        pytest.param(
            "rejected.1", "workflowExecutionStartedEventAttributes", 0,
            lambda v: v["diagnosis"].update(cause="storage"), {"diagnosis", "plan", "outcome"},
            id="another diagnosis than its evidence gives",
        ),
        pytest.param(
            "rejected.1", "activityTaskCompletedEventAttributes", 0,
            lambda v: v.update(verdict="inconclusive"), {"plan"},
            id="another confirmation than the plan was made from",
        ),
        pytest.param(
            "held.0", "workflowExecutionCompletedEventAttributes", 0,
            lambda v: v.update(outcome="resumed"), {"outcome"},
            id="another outcome",
        ),
        pytest.param(
            "steered.0", "activityTaskScheduledEventAttributes", 2,
            lambda v: v.update(reason="relight: somebody wanted it"), {"step 3"},
            id="another reason for the drain",
        ),
        pytest.param(
            "rejected.1", "workflowExecutionSignaledEventAttributes", -1,
            lambda v: v.update(reason="it is fine"), {"outcome"},
            id="another word of the person",
        ),
    ],
)  # fmt: skip
def test_a_changed_history_comes_out_differently(
    alone: Relight, tmp_path: Path, name: str, kind: str, number: int, change: Change, differs: set[str]
) -> None:
    file = _tamper(name, tmp_path, kind, change, number)
    done = alone("audit", "verify", "it", "--history", file, "--json")
    assert done.exit_code == 1, done.output
    found = {check["what"] for check in json.loads(done.stdout)["checks"] if not check["same"]}
    assert differs <= found
    told = alone("audit", "verify", "it", "--history", file)
    assert told.exit_code == 1
    assert "NOT verified" in told.stdout


def test_a_file_that_is_no_history_is_refused(alone: Relight, tmp_path: Path) -> None:
    file = tmp_path / "nothing.json"
    file.write_text("{")
    done = alone("audit", "verify", "it", "--history", file)
    assert done.exit_code == 2
    assert "holds no history" in done.stderr
    done = alone("audit", "verify", "it", "--history", HISTORIES / "crash.0.monitor.json")
    assert done.exit_code == 2
    assert "no recovery" in done.stderr
