"""What a job would load by itself, for every layout."""

from pathlib import Path

import pytest

from relight.checkpoints import inspect
from relight.checkpoints.own_choice import NOTHING, in_the_way, own_choice, usable
from relight.contracts.outcome import CheckpointRef
from relight.policy.steering import POINTER_FILES
from tests.relight.checkpoints.builders import LAYOUT_OF, WRITERS, age, files_of, link, write_files, write_run
from tests.relight.checkpoints.test_layouts import NOT_SEEN, variants


def own(root: Path, diverged_from: CheckpointRef | None = None) -> tuple[str, str, str] | None:
    """What should be loaded, what the job would load instead, and why it must not; None if they agree."""
    report = inspect(root, enough=1, before=diverged_from)
    best = usable(report, diverged_from)
    assert best is not None
    choice = own_choice(report, best, diverged_from)
    return None if choice is None else (best.name, choice.name, choice.problem)


def damage(root: Path, name: str) -> None:
    for path in files_of(root, name):
        if path.stat().st_size > 100:
            path.write_bytes(path.read_bytes()[:-50])
    age(root)


@variants
def test_a_whole_run_loads_the_newest(variant: str, tmp_path: Path) -> None:
    write_run(tmp_path, variant)
    assert own(tmp_path) is None


@pytest.mark.parametrize("variant", [v for v in WRITERS if (v, "truncated") not in NOT_SEEN])
def test_a_broken_newest_one_would_be_loaded(variant: str, tmp_path: Path) -> None:
    names = write_run(tmp_path, variant)
    damage(tmp_path, names[-1])
    (tmp_path / "checkpoint_last.pt").unlink(missing_ok=True)  # fairseq's whole copy of it
    found = own(tmp_path)
    assert found is not None
    assert found[:2] == (names[-2], names[-1])
    assert "corrupt" in found[2]


@variants
def test_one_that_training_diverged_from_would_be_loaded(variant: str, tmp_path: Path) -> None:
    names = write_run(tmp_path, variant)
    found = own(tmp_path, CheckpointRef(name=names[-1], step=1100))
    assert found is not None
    assert found[0] == names[-2]
    assert "diverged" in found[2]
    assert [c.step for c in inspect(tmp_path, enough=1, before=CheckpointRef(step=1000)).checkpoints][
        -1
    ] == 900
    assert own(tmp_path, CheckpointRef(step=1000))[0] == names[0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("variant", "file", "agrees"),
    [
        ("marker", "COMPLETE", True),  # passed over by its own framework
        ("torchtitan", ".metadata", True),
        ("levanter", "metadata.json", True),
        ("orbax", "_CHECKPOINT_METADATA", True),
        ("hf-trainer", "trainer_state.json", False),  # the Trainer takes the highest number
        ("dcp", ".metadata", False),
    ],
)
def test_a_save_that_did_not_end(variant: str, file: str, agrees: bool, tmp_path: Path) -> None:
    names = write_run(tmp_path, variant)
    (tmp_path / names[-1] / file).unlink()
    age(tmp_path)
    found = own(tmp_path)
    assert (found is None) is agrees
    if found is not None:
        assert found[:2] == (names[-2], names[-1])


@pytest.mark.parametrize("variant", [v for v in WRITERS if LAYOUT_OF.get(v, v) in POINTER_FILES])
def test_pointers(variant: str, tmp_path: Path) -> None:
    names = write_run(tmp_path, variant)
    pointer = tmp_path / POINTER_FILES[LAYOUT_OF.get(variant, variant)]
    pointer.write_text(pointer.read_text().replace("1100", "1000"))
    assert own(tmp_path) == (names[-1], names[-2], "")  # usable, but older
    pointer.write_text(pointer.read_text().replace("1000", "1200"))
    found = own(tmp_path)
    assert found is not None
    assert "no such checkpoint" in found[2]
    pointer.unlink()
    found = own(tmp_path)
    assert found is not None
    assert found[1] == NOTHING
    assert "from scratch" in found[2]


def test_a_link_that_names_the_same_step_agrees(tmp_path: Path) -> None:
    names = write_run(tmp_path, "fairseq")
    assert own(tmp_path) is None
    (tmp_path / "checkpoint_last.pt").write_bytes(b"broken")
    age(tmp_path)
    found = own(tmp_path)
    assert found is not None
    assert found[:2] == (names[-1], "checkpoint_last.pt")


def test_files_of_several_ranks_are_all_in_the_way(tmp_path: Path) -> None:
    write_run(tmp_path, "composer", steps=(900,))
    for step in (1000, 1100):
        for rank in range(2):
            write_files(
                tmp_path, {f"ep0-ba{step}-rank{rank}.pt": files_of(tmp_path, "rank0.pt")[0].read_bytes()}
            )
    link(tmp_path, "latest-rank0.pt", "ep0-ba1100-rank0.pt")
    (tmp_path / "ep0-ba1100-rank1.pt").write_bytes(b"")
    age(tmp_path)
    report = inspect(tmp_path)
    best = usable(report)
    assert best is not None
    assert best.step == 1000
    (bad,) = in_the_way(report, best)
    assert sorted(bad.entries) == ["ep0-ba1100-rank0.pt", "ep0-ba1100-rank1.pt"]
