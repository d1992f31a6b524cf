"""Recorded histories still replay: a change that would break running workflows fails here.

Record them anew, on purpose only, with `pytest tests/workflows --save-histories`.
"""

import json
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from tests.workflows.conftest import HISTORIES
from workflows import WORKFLOWS

RECORDED = sorted(HISTORIES.glob("*.json"))


def test_histories_of_all_workflows_were_recorded() -> None:
    kinds = {path.name.split(".")[2] for path in RECORDED}
    assert kinds == {"monitor", "recovery", "guard", "drain"}
    assert len(RECORDED) >= 15


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
async def test_replay(path: Path) -> None:
    text = path.read_text()
    started = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    history = WorkflowHistory.from_json(started["workflowId"], text)  # ids of children are made from it
    replayer = Replayer(workflows=list(WORKFLOWS), data_converter=pydantic_data_converter)
    await replayer.replay_workflow(history)
