"""Commands of the documentation that the tests do not run, each with the reason and a weaker check.

A command that neither is here nor can be run (see `world.py`) fails the test.
"""

import re
import shlex
import tomllib
from collections.abc import Callable
from dataclasses import dataclass

from scripts.reference.commands import leaves, parameters_of
from tests.docs.console import ROOT, Command

Check = Callable[[Command], None]


@dataclass(frozen=True)
class NotRun:
    """One kind of command."""

    pattern: str
    """A regular expression that the whole command matches."""
    why: str
    check: Check


def make_target(command: Command) -> None:
    """The Makefile has the target."""
    target = next(word for word in command.words[1:] if "=" not in word)
    assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.M), target


def options(command: Command) -> None:
    """The command of relight exists and has these options."""
    words = command.words
    at = words.index("relight")
    name, known = "relight", dict(leaves())
    rest = words[at + 1 :]
    while rest and f"{name} {rest[0]}" in known:
        name, rest = f"{name} {rest[0]}", rest[1:]
    assert name != "relight" or not rest, f"there is no {shlex.join(words)}"
    have = {part for p in parameters_of(known[name].callback) for part in re.split(r"[,/ ]+", p.name)}
    for word in rest:
        assert not word.startswith("-") or word.split("=")[0] in {*have, "--help", "-h"}, word


def extra(command: Command) -> None:
    """What is installed is relight, with extras that it has, or a dependency that it names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [word for word in command.words if re.match(r"(relight|pyslurm)\b", word)]
    assert wanted, command.text
    for word in wanted:
        for name in re.findall(r"\[([^]]+)\]", word):
            assert set(name.split(",")) <= set(extras), word
        if word.startswith("pyslurm"):
            assert any(need.startswith("pyslurm") for need in extras["pyslurm"])


def unit_file(command: Command) -> None:
    """There is a unit file of that name, where it is one of relight's."""
    units = [word for word in command.words if word.startswith("relight")]
    assert units, command.text
    for unit in units:
        names = [unit] if "." in unit else [f"{unit}.service", f"{unit}.timer"]
        assert any((ROOT / "deploy" / "systemd" / name).exists() for name in names), unit


def default_environment(command: Command) -> None:
    """It is where `make` puts it."""
    assert "VENV ?= .venv\n" in (ROOT / "Makefile").read_text()
    assert command.text == ". .venv/bin/activate"


NOT_RUN = (
    NotRun(r"make \S.*", "installs packages, or is what runs the tests", make_target),
    NotRun(
        r"relight (up|worker|sensor|sensor node)( .*)?", "runs on; `relight up` serves the tests", options
    ),
    NotRun(r"relight simulate .*", "takes minutes; tests/integration/test_simulate.py runs it", options),
    NotRun(r"(SLURM_\w+=\S+ )*(\S*/)?pip install .*", "needs a package index", extra),
    NotRun(r"systemctl (enable|start|stop|restart|status|disable) .*", "needs systemd", unit_file),
    NotRun(r"\. \.venv/bin/activate", "the tests run in their environment already", default_environment),
)


def rule_for(command: Command) -> NotRun | None:
    """Why a command is not run; None: it is."""
    return next((rule for rule in NOT_RUN if re.fullmatch(rule.pattern, command.text, re.S)), None)
