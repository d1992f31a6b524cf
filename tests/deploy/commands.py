"""Whether a command line is one that `relight` has, without running it."""

import shlex
from collections.abc import Sequence

from typer.testing import CliRunner

from relight.cli.main import app


def problem(argv: Sequence[str]) -> str:
    """What is wrong with the command, its options or their number; empty: nothing.

    With `--help` behind it nothing is done, and yet everything before it is read.
    """
    result = CliRunner().invoke(app, [*argv, "--help"])
    return "" if result.exit_code == 0 else result.output


def relight_words(line: str) -> list[str]:
    """What follows the program in a line such as `/opt/relight/bin/relight sensor node`."""
    program, *rest = shlex.split(line)
    assert program.rpartition("/")[2] == "relight", line
    return rest
