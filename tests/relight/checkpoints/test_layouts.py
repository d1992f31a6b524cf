"""Every layout: recognised from the directory alone, whole when whole, and damage is seen."""

import json
import shutil
from pathlib import Path

import pytest

from relight.checkpoints import State, inspect
from relight.checkpoints.layouts import LAYOUTS
from tests.relight.checkpoints.builders import (
    LAYOUT_OF,
    WRITERS,
    age,
    files_of,
    link,
    safetensors,
    torch_zip,
    write_dcp,
    write_files,
    write_run,
)

variants = pytest.mark.parametrize("variant", WRITERS)


def test_every_layout_has_a_writer() -> None:
    assert {layout.name for layout in LAYOUTS} == {LAYOUT_OF.get(v, v) for v in WRITERS}


@variants
def test_a_whole_run_is_recognised_and_its_highest_step_chosen(variant: str, tmp_path: Path) -> None:
    names = write_run(tmp_path, variant)
    report = inspect(tmp_path, deep=True)
    assert report.layout == LAYOUT_OF.get(variant, variant)
    assert (report.newest_usable, report.step) == (names[-1], 1100), report.summary
    assert not report.pointer_disagrees
    assert not report.empty
    assert {c.state for c in report.checkpoints} == {State.USABLE}
    assert [c.step for c in report.checkpoints if c.name in names] == [1100, 1000, 900]


@variants
def test_numeric_not_alphabetic_order(variant: str, tmp_path: Path) -> None:
    names = write_run(tmp_path, variant, steps=(999, 1000))
    assert inspect(tmp_path).newest_usable == names[1]


NOT_SEEN = {("orbax", "flipped"), ("orbax", "truncated")} | {
    ("levanter", damage) for damage in ("truncated", "empty", "flipped", "gone")
}
"""A chunk of a plain zarr array has no header and no length of its own, and Levanter may leave chunks out."""


@pytest.mark.parametrize(
    ("variant", "damage"),
    [
        (variant, damage)
        for variant in WRITERS
        for damage in ("truncated", "empty", "flipped", "gone")
        if (variant, damage) not in NOT_SEEN
    ],
)
def test_damage_to_the_largest_file_of_the_newest_is_seen(variant: str, damage: str, tmp_path: Path) -> None:
    names = write_run(tmp_path, variant)
    victim = max(files_of(tmp_path, names[-1]), key=lambda p: (p.stat().st_size, str(p)))
    content = victim.read_bytes()
    match damage:
        case "truncated":
            victim.write_bytes(content[: len(content) // 2])
        case "empty":
            victim.write_bytes(b"")
        case "flipped":
            victim.write_bytes(bytes(b ^ 0xFF for b in content[:8]) + content[8:])
        case "gone":
            victim.unlink()
    age(tmp_path)
    report = inspect(tmp_path)
    assert report.newest_usable not in {names[-1], None}, report.summary
    for found in report.checkpoints:
        if found.name == names[-1]:
            assert found.state in {State.CORRUPT, State.INCOMPLETE}
            assert found.reason


LAST_FILES = {
    "marker": "COMPLETE",
    "hf-trainer": "trainer_state.json",
    "torchtitan": ".metadata",
    "dcp": ".metadata",
    "levanter": "metadata.json",
    "orbax": "_CHECKPOINT_METADATA",
    "megatron-dist": "metadata.json",
    "composer-sharded": ".metadata",
    "nemo-2": "weights/.metadata",
}


@pytest.mark.parametrize(("variant", "last"), LAST_FILES.items())
def test_without_the_file_that_is_written_last_it_is_incomplete_or_in_progress(
    variant: str, last: str, tmp_path: Path
) -> None:
    names = write_run(tmp_path, variant)
    (tmp_path / names[-1] / last).unlink()
    (tmp_path / "latest_checkpointed_iteration.txt").unlink(missing_ok=True)
    first = inspect(tmp_path).checkpoints[0]
    assert (first.name, first.state) == (names[-1], State.INCOMPLETE)
    assert last.rpartition("/")[2] in first.reason
    next(p for p in files_of(tmp_path, names[-1])).touch()
    assert inspect(tmp_path).checkpoints[0].state is State.IN_PROGRESS


UNFINISHED = {
    "olmo": "step1100-tmp",
    "orbax": "1100.orbax-checkpoint-tmp-0",
    "hf-trainer": "tmp-checkpoint-1100",
    "marker": ".step_00001100.tmp",
}


@pytest.mark.parametrize(("variant", "name"), UNFINISHED.items())
def test_names_of_saves_under_way_are_never_used(variant: str, name: str, tmp_path: Path) -> None:
    names = write_run(tmp_path, variant)
    (tmp_path / names[-1]).rename(tmp_path / name)
    report = inspect(tmp_path)
    assert (report.newest_usable, report.step) == (names[-2], 1000)
    assert (report.checkpoints[0].name, report.checkpoints[0].state) == (name, State.INCOMPLETE)


def test_nemo_marker_of_an_unfinished_save(tmp_path: Path) -> None:
    names = write_run(tmp_path, "nemo")
    (tmp_path / (names[-1].removesuffix(".ckpt") + "-unfinished")).touch()
    report = inspect(tmp_path)
    assert report.newest_usable == names[-2]
    assert "-unfinished" in report.checkpoints[0].reason


@pytest.mark.parametrize(
    ("variant", "victim", "says"),
    [
        ("megatron", "mp_rank_01_001", "mp_rank_01_001"),
        ("deepspeed", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt", "bf16_zero_pp_rank_1_mp_rank_00"),
        ("gpt-neox", "layer_03-model_01-model_states.pt", "layer_03-model_01"),
        ("hf-trainer", "rng_state_0.pth", "rng_state_0.pth"),
        ("hf-trainer", "model-00002-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        ("accelerate", "random_states_0.pkl", "random_states_0.pkl"),
        ("torchtitan", "__1_0.distcp", "1 of 3 shards missing: __1_0.distcp"),
        ("olmo", "train/rank0.pt", "train/rank0.pt"),
        ("olmo", "model/__2_0.distcp", "model/__2_0.distcp"),
        ("orbax", "default/w/1.0", "default/w has 1 of 2 chunks"),
    ],
)
def test_a_missing_file_of_a_rank_is_named(variant: str, victim: str, says: str, tmp_path: Path) -> None:
    """Also when no other checkpoint tells what should be there."""
    (name,) = write_run(tmp_path, variant, steps=[1000])
    path = tmp_path / name / victim
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    report = inspect(tmp_path)
    assert report.newest_usable is None
    assert report.checkpoints[0].state is State.INCOMPLETE
    assert says in report.checkpoints[0].reason


def test_a_lost_last_rank_is_seen_by_comparison(tmp_path: Path) -> None:
    names = write_run(tmp_path, "hf-trainer")
    (tmp_path / names[-1] / "rng_state_1.pth").unlink()
    assert inspect(tmp_path).newest_usable == names[-2]


def test_another_number_of_ranks_is_no_loss(tmp_path: Path) -> None:
    for step, ranks in ((100, 8), (200, 8), (300, 4)):
        directory = f"step_{step}"
        write_files(tmp_path, {f"{directory}/shard_{r}.pt": torch_zip() for r in range(ranks)})
        write_files(tmp_path, {f"{directory}/COMPLETE": b""})
    age(tmp_path)
    assert inspect(tmp_path).step == 300


def test_a_rank_whose_number_is_the_step_is_no_loss(tmp_path: Path) -> None:
    for step in (1, 2):
        for rank in range(4):
            name = f"global_step{step}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
            write_files(tmp_path, {name: torch_zip()})
        write_files(tmp_path, {f"global_step{step}/mp_rank_00_model_states.pt": torch_zip()})
    age(tmp_path)
    assert [c.state for c in inspect(tmp_path).checkpoints] == [State.USABLE, State.USABLE]


def test_the_step_in_names_within_a_checkpoint_does_not_make_them_others(tmp_path: Path) -> None:
    for step in (100, 200):
        WRITERS["deepspeed"](tmp_path / f"checkpoint-{step}", step)
        write_files(tmp_path, {f"checkpoint-{step}/trainer_state.json": b'{"global_step": %d}' % step})
    age(tmp_path)
    assert inspect(tmp_path).step == 200
    (tmp_path / "checkpoint-200/global_step200/mp_rank_01_model_states.pt").unlink()
    assert inspect(tmp_path).step == 100


def test_shards_that_the_index_does_not_name_do_not_matter(tmp_path: Path) -> None:
    write_dcp(tmp_path / "step-10", shards=2)
    (tmp_path / "step-10" / "__7_0.distcp").write_bytes(b"left over by an attempt on more ranks")
    age(tmp_path)
    assert inspect(tmp_path).step == 10


def test_a_root_that_is_one_distributed_checkpoint(tmp_path: Path) -> None:
    write_dcp(tmp_path)
    age(tmp_path)
    assert (inspect(tmp_path).newest_usable, inspect(tmp_path).step) == (".", None)
    (tmp_path / "__0_0.distcp").write_bytes(b"")
    assert inspect(tmp_path).newest_usable is None


def test_checkpoints_one_directory_further_down(tmp_path: Path) -> None:
    names = write_run(tmp_path / "checkpoints", "accelerate")
    report = inspect(tmp_path)
    assert report.newest_usable == f"checkpoints/{names[-1]}"


@pytest.mark.parametrize("inside", [True, False])
def test_nested_deepspeed_in_a_trainer_checkpoint(inside: bool, tmp_path: Path) -> None:
    WRITERS["deepspeed"](tmp_path / "checkpoint-100", 100)
    write_files(tmp_path, {"checkpoint-100/trainer_state.json": b'{"global_step": 100}'})
    if not inside:
        (tmp_path / "checkpoint-100/global_step100/mp_rank_00_model_states.pt").unlink()
    age(tmp_path)
    report = inspect(tmp_path)
    assert report.layout == "hf-trainer"
    assert (report.step == 100) is inside


def test_the_state_must_tell_the_step_of_the_name(tmp_path: Path) -> None:
    names = write_run(tmp_path, "hf-trainer")
    (tmp_path / names[-1] / "trainer_state.json").write_text(json.dumps({"global_step": 7}))
    report = inspect(tmp_path)
    assert report.newest_usable == names[-2]
    assert "says step 7" in report.checkpoints[0].reason


def test_last_ckpt_is_ranked_by_the_step_in_its_contents(tmp_path: Path) -> None:
    write_run(tmp_path, "lightning", steps=(3000, 4000))
    write_files(tmp_path, {"last.ckpt": torch_zip({"epoch": 1, "global_step": 4400, "state_dict": {}})})
    age(tmp_path)
    report = inspect(tmp_path)
    assert (report.newest_usable, report.step, report.pointer) == ("last.ckpt", 4400, "last.ckpt")
    content = (tmp_path / "last.ckpt").read_bytes()
    (tmp_path / "last.ckpt").write_bytes(content[: len(content) // 3])
    age(tmp_path)
    report = inspect(tmp_path)
    assert (report.newest_usable, report.step) == ("epoch=4-step=4000.ckpt", 4000)
    assert report.pointer_disagrees
    assert "last.ckpt is corrupt" in report.summary


def test_a_file_without_a_number_tells_its_step_itself(tmp_path: Path) -> None:
    write_files(tmp_path, {"ckpt.pt": torch_zip({"model": {}, "iter_num": 250})})
    age(tmp_path)
    assert (inspect(tmp_path).newest_usable, inspect(tmp_path).step) == ("ckpt.pt", 250)


def test_weights_exported_at_the_end_count_as_a_checkpoint_of_torchtitan(tmp_path: Path) -> None:
    write_run(tmp_path, "torchtitan", steps=[100])
    write_files(tmp_path, {"step-200/model-00001-of-00001.safetensors": safetensors()})
    age(tmp_path)
    assert inspect(tmp_path).step == 200


POINTERS = {
    "megatron": ("latest_checkpointed_iteration.txt", "900", "iter_0000900"),
    "deepspeed": ("latest", "global_step900", "global_step900"),
    "gpt-neox": ("latest", "global_step900", "global_step900"),
}


@pytest.mark.parametrize(("variant", "pointer"), POINTERS.items())
def test_a_stale_pointer_does_not_decide(variant: str, pointer: tuple[str, str, str], tmp_path: Path) -> None:
    names = write_run(tmp_path, variant)
    file, text, named = pointer
    (tmp_path / file).write_text(text)
    report = inspect(tmp_path)
    assert report.newest_usable == names[-1]
    assert (report.pointer, report.pointer_disagrees) == (named, True)


@pytest.mark.parametrize(
    ("variant", "name"), [("olmo", "latest"), ("composer", "latest-rank0.pt"), ("lightning", "last.ckpt")]
)
def test_a_dangling_link_does_not_decide(variant: str, name: str, tmp_path: Path) -> None:
    names = write_run(tmp_path, variant)
    link(tmp_path, name, "gone-long-ago")
    report = inspect(tmp_path)
    assert report.newest_usable == names[-1]
    assert (report.pointer, report.pointer_disagrees) == ("gone-long-ago", True)
