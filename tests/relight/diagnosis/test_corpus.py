"""The labelled cases, whole and as growing files read in pieces."""

import itertools
import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from relight.diagnosis.cases import NOW, judge, predict, read_rows
from relight.diagnosis.offline import LogInput, LogKind, investigate
from tests.relight.diagnosis.making import CATALOGUE, CORPUS

ROWS = list(read_rows((CORPUS / "cases.jsonl").read_text(encoding="utf-8").splitlines()))
JOINT = ("cause", "blame_nodes", "action")


def views(row: dict[str, Any]) -> list[dict[str, Any]]:
    expect = row["expect"]
    return [expect, *({**expect, **other} for other in expect.get("accept", []))]


def same(field: str, a: Any, b: Any) -> bool:
    return sorted(a) == sorted(b) if field == "blame_nodes" else a == b


def right(row: dict[str, Any], found: dict[str, Any], *fields: str) -> bool:
    return any(all(same(f, found[f], view[f]) for f in fields) for view in views(row))


PREDICTIONS = {row["id"]: predict(row, CATALOGUE) for row in ROWS}


def test_the_joint_score() -> None:
    wrong = [row["id"] for row in ROWS if not right(row, PREDICTIONS[row["id"]], *JOINT)]
    assert len(wrong) <= 0.05 * len(ROWS), wrong


def test_healthy_rows_are_left_alone() -> None:
    healthy = [row for row in ROWS if row["expect"]["cause"] == "healthy"]
    assert len(healthy) > 20
    assert [r["id"] for r in healthy if not right(r, PREDICTIONS[r["id"]], "action")] == []


@pytest.mark.parametrize(
    ("field", "share"), [("symptom", 0.95), ("cause", 0.95), ("action", 0.95), ("blame_nodes", 0.97)]
)
def test_single_fields(field: str, share: float) -> None:
    good = sum(right(row, PREDICTIONS[row["id"]], field) for row in ROWS)
    assert good >= share * len(ROWS)


def test_no_innocent_node_is_blamed() -> None:
    for row in ROWS:
        allowed = {n for view in views(row) for n in view["blame_nodes"]}
        assert set(PREDICTIONS[row["id"]]["blame_nodes"]) <= allowed, row["id"]


def test_last_steps() -> None:
    for row in ROWS:
        if "progress" in row["expect"]:
            accepted = {view["progress"]["last_step"] for view in views(row)}
            assert PREDICTIONS[row["id"]]["last_step"] in accepted, row["id"]


def test_first_errors() -> None:
    rows = [r for r in ROWS if r["expect"]["first_error_line"] is not None]
    good = 0
    for row in rows:
        accepted = [[v["first_error_input"], v["first_error_line"]] for v in views(row)]
        good += PREDICTIONS[row["id"]]["first_error"] in accepted
    assert good >= 0.9 * len(rows)


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r["id"])
def test_a_file_that_grows_gives_the_same_diagnosis(row: dict[str, Any]) -> None:
    rng = random.Random(row["id"])
    inputs = []
    for n, part in enumerate(row["inputs"]):
        data = ("\n".join(part["lines"]) + "\n").encode()
        edges = sorted({0, len(data), *(rng.randrange(len(data) + 1) for _ in range(12))})
        pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
        inputs.append(LogInput(LogKind(part["kind"]), str(n), pieces, part["node"]))
    silent = row.get("silent_for_s")
    grown = investigate(
        inputs,
        CATALOGUE,
        now=NOW,
        still_running=silent is not None,
        silent_for=timedelta(seconds=silent) if silent is not None else None,
    )
    assert grown == judge(row, CATALOGUE)


def test_the_rows_cover_the_causes() -> None:
    causes = Counter(row["expect"]["cause"] for row in ROWS)
    assert len(causes) >= 18


def test_a_bad_file_of_cases_is_named() -> None:
    with pytest.raises(ValueError, match="line 2"):
        list(read_rows(['{"id": "a"}', "{"]))
    with pytest.raises(ValueError, match="no row"):
        list(read_rows(["[]"]))
