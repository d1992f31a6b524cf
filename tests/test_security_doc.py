"""docs/security.md names the tests that hold the line: they must exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOC = (ROOT / "docs" / "security.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", DOC)))


def test_each_kind_of_attacker_has_tests() -> None:
    sections = re.split(r"\n#{2,3} ", DOC)
    for actor in ("The user of a watched job", "Another user", "A compromised", "An operator", "A Temporal"):
        (section,) = [text for text in sections if text.startswith(actor)]
        assert "::test_" in section, actor


def test_nothing_else_looks_like_a_test() -> None:
    assert DOC.count("::") == len(re.findall(r"`tests/[\w/]+\.py::test_\w+`", DOC))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_what_it_names_is_a_test(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    tests = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in tests
