"""docs/troubleshooting.md quotes relight: what it quotes is said, and its stages are the doctor's."""

import re

import pytest

from relight.cli import doctor
from tests.docs.console import ROOT

DOC = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in DOC.splitlines() if line.startswith("| ")]
QUOTED = sorted({text for row in ROWS for text in re.findall(r'(?<![{:] )"([a-zA-Z][^"]{7,})"', row[0])})
_STAGES = {stage.name for name, stages in vars(doctor).items() if name.isupper() for stage in stages}


def _said() -> str:
    """All texts of the code, strings that go over several lines joined."""
    folders = ("relight", "sensor", "workflows", "activities", "worker", "tests/slurm")
    code = "\n".join(file.read_text("utf-8") for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return re.sub(r"\"\s*\n\s*f?\"", "", code)


SAID = _said()


@pytest.mark.parametrize("text", QUOTED)
def test_what_it_quotes_is_said(text: str) -> None:
    # Three dots stand for what differs from case to case.
    assert all(part in SAID for part in re.split(r"(?: ?RELIGHT_)?\.\.\.", text))


def test_it_quotes_something() -> None:
    assert len(QUOTED) > 10


def test_stages_are_the_doctors() -> None:
    table = DOC.split("| what you see | stage |", 1)[1].split("\n\n", 1)[0]
    named = set(re.findall(r"^\|.*?\| `([^`]+)` \|", table, re.M))
    assert named
    assert named <= _STAGES
