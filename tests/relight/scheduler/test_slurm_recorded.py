"""What several versions of Slurm really printed, read back."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.contracts import JobState
from relight.scheduler import slurm_text
from relight.scheduler.port import InvalidRequest, NoSuchJob, SchedulerError, SchedulerUnreachable
from relight.scheduler.slurm_errors import meaning

RECORDED = Path(__file__).parents[2] / "data" / "slurm"
SEPARATOR = "@0123456789abcdef@"


def _listings() -> tuple[str, str]:
    folder = RECORDED / "22.05"
    return (folder / "squeue-format.txt").read_text(), (folder / "squeue-exclusions.txt").read_text()


@pytest.mark.parametrize("version", ["22.05", "25.11"])
@pytest.mark.parametrize(
    ("recording", "kind"),
    [
        ("no-such-job", NoSuchJob),
        ("slurmctld-down", SchedulerUnreachable),
        ("bad-update", InvalidRequest),
    ],
)
def test_refusals_are_understood(version: str, recording: str, kind: type[SchedulerError]) -> None:
    text = (RECORDED / version / f"{recording}.txt").read_text()
    asked, refused = text.removeprefix("# ").split("\n# refused: ")
    error = meaning(asked, refused)
    assert type(error) is kind
    assert asked in str(error)


def test_a_listing_gives_jobs_in_every_state() -> None:
    jobs = slurm_text.job_infos(*_listings(), SEPARATOR)
    running, failed, held = (jobs[job_id] for job_id in ("1", "2", "3"))
    assert (running.state, running.nodes, running.tasks_per_node) == (
        JobState.RUNNING,
        ("node01", "node02"),
        2,
    )
    assert running.comment == '{"relight": {"policy": "default"}}'
    assert running.std_out.endswith("/out-train-1.txt")
    assert (running.gpus, failed.gpus, held.gpus) == (16, None, None)
    assert (failed.state, failed.exit_code, failed.reason) == (JobState.FAILED, 3, "NonZeroExitCode")
    assert (held.state, held.held, held.excluded_nodes) == (JobState.PENDING, True, ("node01",))
    assert held.name == "waits with | and JobState=COMPLETED"


@pytest.mark.parametrize(
    ("allocated", "per_node", "nodes", "gpus"),
    [
        ("cpu=4,node=2,billing=4,gres/gpu=16", "gres:gpu:8", 2, 16),
        ("cpu=4,gres/gpu=8,gres/gpu:a100=8", "N/A", 2, 8),
        ("cpu=4,node=2", "gres:gpu:8", 2, 16),  # GPUs are not accounted
        ("cpu=4,node=2", "gres/gpu:a100:4", 3, 12),
        ("", "gres:gpu:a100:2,gres:gpu:v100:1,gres:nic:3", 2, 6),
        ("", "gres:gpu", 2, None),
        ("cpu=4,node=2", "N/A", 2, None),
        ("", "gres:gpu:8", 0, None),
    ],
)
def test_gpus_of_a_job(allocated: str, per_node: str, nodes: int, gpus: int | None) -> None:
    assert slurm_text._gpus(allocated, per_node, nodes) == gpus


@given(st.data())
def test_a_damaged_listing_is_an_error_of_ours_or_jobs(data: st.DataObject) -> None:
    main, exclusions = _listings()
    cut = data.draw(st.integers(0, len(main)))
    junk = data.draw(st.text(max_size=20))
    try:
        jobs = slurm_text.job_infos(main[:cut] + junk, exclusions, SEPARATOR)
    except SchedulerError:
        return
    assert set(jobs) <= {"1", "2", "3"}
