"""The right cause and the right action, on real Slurm: what failed is told, and not only that it failed."""

from pathlib import Path

import pytest

from relight.contracts import Action, Cause, Outcome, RecoveryOutcome
from relight.contracts.messages import EndReason
from tests.integration.lab import Lab, Training
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(240)]


async def ended_recoveries(lab: Lab, training: Training) -> list[RecoveryOutcome]:
    """The outcomes of all recoveries of a job, oldest first."""
    client = await lab.client()
    return [
        await client.get_workflow_handle(found, result_type=RecoveryOutcome).result()
        for found in await lab.recoveries(training)
    ]


@pytest.mark.parametrize(
    ("fault", "cause", "ends"),
    [
        ("exception", Cause.USER_CODE, Outcome.RESUMED),
        # A restart would fail in the same way: somebody has to change or to clean up something first.
        ("oom", Cause.GPU_OOM, Outcome.STOPPED),
        ("disk-full", Cause.STORAGE, Outcome.STOPPED),
    ],
)
async def test_a_fault_of_the_job_is_named_and_blames_no_node(
    lab: Lab, fault: str, cause: Cause, ends: Outcome
) -> None:
    training = lab.train(mode="act", wait_step=15)
    training.fault(fault)
    outcome = await lab.outcome(training)
    assert (outcome.outcome, outcome.cause, outcome.excluded_nodes) == (ends, cause, ())
    assert training.restarts() == (ends is Outcome.RESUMED)


async def test_a_gpu_error_keeps_the_job_off_that_node(lab: Lab) -> None:
    training = lab.train(mode="act", wait_step=15)
    _, second = lab.slurm.nodes_of(training.job_id)
    training.fault("cuda", rank=3)
    outcome = await lab.outcome(training)
    assert (outcome.outcome, outcome.cause) == (Outcome.RESUMED, Cause.GPU_MEMORY_ECC)
    assert (outcome.action, outcome.excluded_nodes) == (Action.RESTART_EXCLUDE_NODE, (second,))
    assert second not in lab.slurm.nodes_of(training.job_id)


async def test_a_bad_data_sample_is_met_twice_and_then_left_to_its_owner(lab: Lab) -> None:
    """44 identical restarts are on public record: here it is one."""
    training = lab.train(mode="act", wait_step=15)
    training.fault("exception", times=9)
    handle = await lab.monitor(training)
    result = await handle.result()
    assert result.end is EndReason.STOPPED
    assert "no step gained" in result.detail
    await lab.recovery(training, number=1)  # Temporal's list lags behind
    outcomes = await ended_recoveries(lab, training)
    assert [o.outcome for o in outcomes] == [Outcome.FAILED_AGAIN, Outcome.STOPPED]
    assert {o.cause for o in outcomes} == {Cause.USER_CODE}
    first, again = (o.lost_from_step or 0 for o in outcomes)
    assert first - 2 <= again <= first  # the order is read with the next step
    assert training.restarts() == 1
    await lab.until_async("it has left its nodes", lambda: training.info()["JobState"] == "FAILED", 30)


async def test_a_node_that_kills_every_job_is_excluded_after_one_lost_attempt(
    lab: Lab, tmp_path: Path
) -> None:
    """Its processes die without a word: only that it happens there twice says that it is the node."""
    bad = tmp_path / "bad"
    wrap = tmp_path / "wrap.sh"
    wrap.write_text(
        '#!/bin/bash\n[ "$SLURMD_NODENAME" = "$(cat ' + str(bad) + ' 2>/dev/null)" ] '
        '&& (sleep 2; kill -9 $$) &\nexec "$@"\n'
    )
    wrap.chmod(0o755)
    training = lab.train(mode="act", wait_step=15, wrap=str(wrap))
    victim = lab.slurm.nodes_of(training.job_id)[1]
    bad.write_text(victim)
    training.fault("sigkill", rank=3)  # from now on whatever starts there is killed

    def elsewhere() -> bool:
        nodes = lab.slurm.nodes_of(training.job_id)
        return training.restarts() == 2 and bool(nodes) and victim not in nodes

    await lab.until_async("it runs elsewhere", elsewhere, 120)
    before = training.last_step()
    await lab.until_async("training goes on", lambda: training.last_step() > before + 10)
    outcomes = await ended_recoveries(lab, training)
    assert outcomes[-1].excluded_nodes == (victim,)
    assert training.restarts() == 2  # the fault, and one attempt that was lost on the same node
    assert outcomes[-1].outcome is Outcome.RESUMED


async def test_a_job_over_its_memory_limit_is_told_apart_from_a_cancel(tmp_path: Path) -> None:
    """Slurm ends the other tasks by a CANCELLED step; nobody cancelled anything."""
    wrap = tmp_path / "wrap.sh"
    eat = "import time; x = bytearray(900_000_000); time.sleep(60)"
    wrap.write_text(
        "#!/bin/bash\n"
        f'if [ "$SLURM_PROCID" = 3 ]; then (while [ ! -e {tmp_path}/now ]; do sleep 0.2; done; '
        f"[ $SLURM_RESTART_COUNT ] || python3 -c '{eat}') & fi\n"
        'exec "$@"\n'
    )
    wrap.chmod(0o755)
    conf = "JobAcctGatherFrequency=1\nJobAcctGatherParams=OverMemoryKill"
    with SlurmCluster(nodes=2, gather="linux", extra_conf=conf) as slurm, Lab(tmp_path, slurm) as lab:
        training = lab.train(mode="act", wait_step=15, sbatch=("--mem=600M",), wrap=str(wrap))
        (tmp_path / "now").touch()
        outcome = await lab.outcome(training)
        assert (outcome.outcome, outcome.cause) == (Outcome.RESUMED, Cause.HOST_OOM), training.log.read_text()
        assert outcome.excluded_nodes == ()
