"""What the web UI asks a workflow for: its current details, and which signals there are."""

import re

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import WorkflowHandle

from relight.contracts import Mode
from tests.workflows import samples
from tests.workflows.conftest import Lab

AS_OF = re.compile(r"^As of (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC); `R` on the keyboard", re.MULTILINE)


async def metadata(workflow: WorkflowHandle) -> WorkflowMetadata:
    return await workflow.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)


async def details(workflow: WorkflowHandle) -> str:
    return (await metadata(workflow)).current_details


async def signals(workflow: WorkflowHandle) -> dict[str, str]:
    return {s.name: s.description for s in (await metadata(workflow)).definition.signal_definitions}


def for_people(described: dict[str, str]) -> set[str]:
    return {name for name, text in described.items() if not text.startswith("internal, sent by ")}


@pytest.fixture
async def waiting(lab: Lab) -> WorkflowHandle:
    """A monitor whose recovery waits for a person."""
    monitor = await lab.watch(samples.job(Mode.OBSERVE))
    await monitor.signal("report_anomaly", samples.anomaly())
    await lab.until_status(monitor, lambda s: s.state == "awaiting-approval")
    return monitor


async def test_signals_that_relight_sends_to_itself_are_marked(lab: Lab, waiting: WorkflowHandle) -> None:
    of_monitor, of_recovery = await signals(waiting), await signals(lab.recovery())
    assert all(of_monitor.values())
    assert all(of_recovery.values())
    people = {"approve", "reject", "set_mode", "pause", "unpause"}
    assert for_people(of_monitor) == people | {"unwatch", ""}  # "" stands for any other name
    assert for_people(of_recovery) == people


async def test_a_page_says_when_it_last_changed(lab: Lab, waiting: WorkflowHandle) -> None:
    heading, as_of, _ = (await details(lab.recovery())).split("\n\n", 2)
    assert heading.startswith("# Job ")
    assert AS_OF.fullmatch(as_of.partition(" reads")[0])
    before = await details(waiting)
    same = samples.job(Mode.OBSERVE).mode
    await waiting.execute_update("set_mode", {"mode": same.value, "by": "ada"})
    assert await details(waiting) == before, "it looked again, and nothing had changed"
    await waiting.signal("pause", {"by": "ada"})
    await lab.until_status(waiting, lambda s: s.paused)
    assert await details(waiting) != before


async def test_a_misspelt_signal_is_noticed_and_changes_nothing(lab: Lab, waiting: WorkflowHandle) -> None:
    for _ in range(20):
        await waiting.signal("aprove", {"by": "ada"})
    await waiting.signal("`x`\x1b[31m\n# Approved" * 20)
    await waiting.signal("Aprove", args=[1, "two", {"three": b"4".hex()}])
    status = await lab.until_status(waiting, lambda s: "latest of 22" in "".join(s.noticed))
    (notice,) = status.noticed
    assert (
        'a signal "Aprove" came, which has no meaning (the latest of 22 such): did you mean approve?'
        in notice
    )
    assert "did you mean approve?" in await details(waiting)
    assert status.state == "awaiting-approval"
    assert lab.world.mutations == []
