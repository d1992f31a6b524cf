"""Three jobs that fail by the same file system: their recoveries wait for it together."""

from datetime import timedelta

from relight.contracts import Cause, Outcome
from relight.contracts.guard import BreakerReset
from relight.contracts.messages import RecoveryStatus
from relight.policy.guard import INCIDENT
from tests.workflows import samples
from tests.workflows.conftest import Lab


async def test_recoveries_wait_while_many_jobs_fail_alike(lab: Lab) -> None:
    ever = timedelta(days=3650)  # the fault of the samples is an old one
    guard = await lab.guard(breaker_window=ever, breaker_cool_down=ever)
    for job in ("701", "702"):
        fault = {"job": job, "cause": "storage", "at": samples.diagnosis().occurred_at.isoformat()}
        await guard.signal("report_fault", fault)
    diagnosis = samples.diagnosis().model_copy(update={"cause": Cause.STORAGE})
    recovery = await lab.recover(diagnosis=diagnosis, guard_id=lab.guard_id)
    status = await lab.until(
        lambda: recovery.query("status", result_type=RecoveryStatus), lambda s: s.permit_gate == INCIDENT
    )
    assert (status.state, status.permit) == ("awaiting-permit", "waiting")
    assert lab.world.mutations == []
    shown = await lab.until_guard(guard, lambda s: bool(s.incidents))
    assert len(shown.incidents[0].jobs) == 3
    await guard.signal("reset_breaker", BreakerReset(by="ada", reason="the file system is back"))
    outcome = await recovery.result()
    assert outcome.outcome is Outcome.RESUMED
    await guard.terminate("the test is over")
