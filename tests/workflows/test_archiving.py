"""A recovery is archived after its end was told, and its end does not depend on that."""

from pathlib import Path
from typing import Any

from temporalio.client import WorkflowHandle

from activities.archive_recovery import archive_recovery
from activities.common import Context
from relight.audit.archive import open_archive
from relight.audit.events import kind
from relight.audit.reading import read_recovery
from relight.config import Settings
from relight.contracts import Outcome
from tests.activities.double import Double, running
from tests.workflows import samples
from tests.workflows.conftest import Lab
from tests.workflows.world import error


async def _events(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """The activities that were called and the signals that were sent, in order."""
    found = []
    for event in (await handle.fetch_history()).events:
        match kind(event):
            case "ACTIVITY_TASK_SCHEDULED":
                found.append(event.activity_task_scheduled_event_attributes.activity_type.name)
            case "SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED":
                found.append(event.signal_external_workflow_execution_initiated_event_attributes.signal_name)
    return found


def _archives_in(lab: Lab, directory: Path) -> Settings:
    """The real activity does the archiving, into this directory."""
    settings = Settings(archive={"url": str(directory / "archive")}, state_dir=directory)
    context = Context(Double(running()), settings)
    lab.world.will("archive_recovery", lambda given: archive_recovery(context, given))
    return settings


async def test_the_record_is_what_history_tells(lab: Lab, tmp_path: Path) -> None:
    settings = _archives_in(lab, tmp_path)
    recovery = await lab.recover(archive=True, anomalies=(samples.anomaly("a1"),))
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.RESUMED
    archive = open_archive(settings.archive.url, tmp_path)
    [entry] = archive.entries()
    whole = await read_recovery(lab.client, recovery.id)
    assert whole is not None
    assert entry.audit.outcome == outcome == whole.outcome
    assert entry.audit.monitor_id == whole.monitor_id
    kept, told = entry.audit.records, whole.records
    assert kept[:-1] == tuple(r for r in told if r.step != "archive_recovery")[:-1]
    assert (kept[-1].what, kept[-1].text) == (told[-1].what, told[-1].text)
    [checked] = archive.check()
    assert checked.problem is None
    assert (await _events(recovery))[-2:] == ["recovery_ended", "archive_recovery"], "the monitor knows first"


async def test_a_repeated_try_adds_nothing(lab: Lab, tmp_path: Path) -> None:
    settings = _archives_in(lab, tmp_path)
    recovery = await lab.recover(archive=True)
    await recovery.result()
    [given] = lab.world.inputs("archive_recovery")
    recovery = await lab.recover(archive=True, suffix=":2")
    lab.world.will(
        "archive_recovery", lambda _: archive_recovery(Context(Double(running()), settings), given)
    )
    await recovery.result()
    assert len(list(open_archive(settings.archive.url, tmp_path).entries())) == 1


async def test_a_worker_without_an_archive_says_so(lab: Lab, tmp_path: Path) -> None:
    context = Context(Double(running()), Settings(state_dir=tmp_path))
    lab.world.will("archive_recovery", lambda given: archive_recovery(context, given))
    recovery = await lab.recover(archive=True)
    assert (await recovery.result()).outcome is Outcome.RESUMED
    whole = await read_recovery(lab.client, recovery.id)
    assert whole is not None
    assert any("no archive" in record.text for record in whole.records)


async def test_an_archive_that_cannot_be_written_is_no_failure(lab: Lab) -> None:
    lab.world.will("archive_recovery", error("ArchiveError", "the disk is full"))
    recovery = await lab.recover(archive=True)
    assert (await recovery.result()).outcome is Outcome.RESUMED


async def test_nothing_is_archived_unasked(lab: Lab) -> None:
    await (await lab.recover()).result()
    assert lab.world.called("archive_recovery") == []


async def test_a_monitor_tells_its_recoveries_to(lab: Lab) -> None:
    monitor = await lab.watch(samples.job(), archive=True)
    await monitor.signal("report_anomaly", samples.anomaly("a1"))
    await lab.until(lambda: lab.recovery().describe(), lambda found: found.close_time is not None)
    assert len(lab.world.called("archive_recovery")) == 1
