"""A hang that the GPUs confirm or refute: real Slurm, real Temporal, real Prometheus, exporters of ours."""

import asyncio
from collections.abc import Iterator

import pytest

from relight.contracts import Outcome
from relight.contracts.steps import ConfirmResult
from tests.integration.lab import Lab, Training
from tests.prometheus.exporter import Exporters
from tests.prometheus.server import Prometheus
from tests.slurm.cluster import SlurmCluster

pytestmark = [pytest.mark.slurm, pytest.mark.temporal, pytest.mark.timeout(240)]

SETTINGS = """
[prometheus]
url = "{url}"
long_enough = "3s"
stale_after = "10s"
poll = "1s"
fault_window = "10s"
"""


class Site:
    """The lab, its Prometheus, and what its machines show."""

    def __init__(self, lab: Lab, exporters: Exporters, prometheus: Prometheus) -> None:
        self.lab, self.exporters, self.prometheus = lab, exporters, prometheus

    async def confirmation(self, training: Training) -> ConfirmResult:
        """What `confirm_fault` said in the first recovery of the job."""
        handle = await self.lab.recovery(training)
        history = await handle.fetch_history()
        names = {}
        for event in history.events:
            if event.HasField("activity_task_scheduled_event_attributes"):
                attributes = event.activity_task_scheduled_event_attributes
                names[event.event_id] = attributes.activity_type.name
            elif event.HasField("activity_task_completed_event_attributes"):
                done = event.activity_task_completed_event_attributes
                if names[done.scheduled_event_id] == "confirm_fault":
                    return ConfirmResult.model_validate_json(done.result.payloads[0].data)
        raise AssertionError("confirm_fault gave no result")


@pytest.fixture(scope="module")
def site(slurm_cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("machines")
    with (
        Exporters(slurm_cluster.nodes) as exporters,
        Prometheus(root / "prometheus", exporters) as prometheus,
    ):
        more = SETTINGS.format(url=prometheus.url)
        with Lab(root, slurm_cluster, name="machines", more=more) as lab:
            yield Site(lab, exporters, prometheus)


@pytest.fixture(autouse=True)
def _healthy_again(site: Site) -> Iterator[None]:
    yield
    site.exporters.set("DCGM_FI_DEV_POWER_USAGE", 600)


async def test_a_long_save_is_no_hang_and_teaches_patience(site: Site) -> None:
    lab = site.lab
    training = lab.train(mode="act", wait_step=100)  # the sensor, just started, has to learn the pace
    changed = len(lab.slurm.mutations())
    node = lab.slurm.nodes_of(training.job_id)[0]
    saving = asyncio.create_task(_write(site, node))
    training.fault("pause:40")
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.REFUTED, outcome
    assert f"{node} writes" in outcome.reason
    before = training.last_step()
    await lab.until_async("training goes on", lambda: training.last_step() > before + 5)
    saving.cancel()
    assert lab.slurm.mutations()[changed:] == []
    assert training.restarts() == 0
    status = await lab.status(training)
    # A silence that has doubled is suspected, and refuted, again: how often depends on the machine's speed.
    assert status.refuted >= 1
    assert status.job.patience == pytest.approx(min(8.0, 1.5**status.refuted))
    assert any("was none" in note for note in status.noticed)


async def _write(site: Site, node: str) -> None:
    while True:
        site.exporters.write(node, 50e6)
        await asyncio.sleep(0.2)


async def test_gpus_that_wait_confirm_a_hang_as_a_second_sign(site: Site) -> None:
    lab = site.lab
    training = lab.train(mode="act", wait_step=25, policy="sure")
    nodes = lab.slurm.nodes_of(training.job_id)
    await asyncio.sleep(5)  # the GPUs' usual power has been seen
    site.exporters.set("DCGM_FI_DEV_GPU_UTIL", 100, nodes)
    site.exporters.set("DCGM_FI_DEV_POWER_USAGE", 250, nodes)
    training.fault("hang")
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED, outcome
    assert outcome.approved_by == ""
    said = {o.source: o for o in (await site.confirmation(training)).observations}
    assert said["prometheus"].verdict == "confirms", said
    assert "full utilisation" in said["prometheus"].text
    assert said["job_log"].verdict == "confirms"
    assert (said["kernel"].verdict, said["nvml"].verdict) == ("not available", "not available")


async def test_exporters_are_a_sign_against_a_node(site: Site) -> None:
    """Found by the sensor's own question, and alone no reason to drain the node."""
    lab = site.lab
    training = lab.train(mode="act", wait_step=25)
    node = lab.slurm.nodes_of(training.job_id)[-1]
    site.exporters.set("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 3, [node], gpu=2)
    await lab.until_async("the sensor tells", lambda: "uncorrected memory errors" in lab.sensor.text(), 30)
    training.fault("exception")
    outcome = await lab.outcome(training)
    if outcome.outcome is Outcome.REFUTED:  # training went on until the exception: the next recovery is ours
        outcome = await lab.outcome(training, number=1)
    assert outcome.outcome is Outcome.RESUMED, outcome
    assert outcome.excluded_nodes == (node,)
    assert outcome.drained_nodes == ()


async def test_without_prometheus_its_word_is_missing_and_nothing_else(site: Site) -> None:
    lab = site.lab
    site.prometheus.stop()
    training = lab.train(mode="act", wait_step=25)
    training.fault("hang")
    outcome = await lab.outcome(training)
    assert outcome.outcome is Outcome.RESUMED, outcome
    said = {o.source: o for o in (await site.confirmation(training)).observations}
    assert said["prometheus"].verdict == "not available"
    await lab.until_async("the sensor says so", lambda: "Prometheus does not tell" in lab.sensor.text(), 20)
