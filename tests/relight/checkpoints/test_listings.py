"""Directories as people found them, and listings in general."""

import json
from pathlib import Path

import pytest

from relight.checkpoints import CheckpointError, State
from relight.checkpoints.gate import inspect_store
from relight.checkpoints.stores import ListingStore
from tests.relight.checkpoints.builders import WRITERS, write_run

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data/checkpoints/listings.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']}-{case['framework']}")
def test_public_cases(case: dict[str, object]) -> None:
    expect = case["expect"]
    assert isinstance(expect, dict)
    report = inspect_store(ListingStore.parse(json.dumps(case)))
    assert (report.newest_usable, report.step) == (expect["newest_usable"], expect["step"]), report.summary
    states = {found.name: found.state for found in report.checkpoints}
    assert all(states[name] is not State.USABLE for name in expect["incomplete"])
    assert all(found.reason for found in report.checkpoints if found.state is not State.USABLE)


@pytest.mark.parametrize("variant", WRITERS)
def test_a_listing_without_contents_is_judged_by_names_and_sizes(variant: str, tmp_path: Path) -> None:
    names = write_run(tmp_path, variant)
    files = [
        {"path": str(p.relative_to(tmp_path)), "size": p.stat().st_size, "mtime": p.stat().st_mtime}
        for p in tmp_path.rglob("*")
        if p.is_file() and not p.is_symlink()
    ]
    report = inspect_store(ListingStore.parse(json.dumps({"root": "/x", "files": files})))
    assert report.newest_usable == names[-1], report.summary
    assert "headers and footers of 0" in report.checkpoints[0].checked


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", '{"files": 3}', '{"files": [{"path": "a", "size": -1}]}', "[" * 100_000, "\xff"],
)
def test_what_is_no_listing(text: str) -> None:
    with pytest.raises(CheckpointError, match="not a listing"):
        ListingStore.parse(text)


def test_hostile_paths_in_a_listing_are_only_names() -> None:
    files = [{"path": p, "size": 1} for p in ("../../etc/passwd", "/etc/passwd", "a//b", "", "x" * 5000)]
    report = inspect_store(ListingStore.parse(json.dumps({"files": files})))
    assert report.newest_usable is None
