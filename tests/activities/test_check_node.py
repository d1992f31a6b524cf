"""The site's own commands for a drained node: real processes."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from activities.check_node import check_node
from activities.common import Context
from relight.config import DrainSettings, Settings
from relight.contracts import Cause
from relight.contracts.node_drain import NodeStep
from tests.activities.conftest import RECOVERY, Runner
from tests.activities.double import Double

GIVEN = NodeStep(node="n1", recovery_id=RECOVERY, cause=Cause.NVLINK, because="$(touch /tmp/x); {node}")


def runner(tmp_path: Path, **drain: Any) -> Runner:
    run = Runner(Double(), tmp_path)
    run.context = Context(Double(), Settings(state_dir=tmp_path, drain=DrainSettings(**drain)))
    return run


async def test_without_a_command_a_person_decides(tmp_path: Path) -> None:
    check = await runner(tmp_path)(check_node, GIVEN)
    assert (check.configured, check.passed) == (False, False)
    assert "drain.check" in check.summary


async def test_repair_and_check_get_the_names_as_arguments(tmp_path: Path) -> None:
    out = tmp_path / "said"
    write = (
        sys.executable,
        "-c",
        "import sys; open(sys.argv[1], 'a').write(repr(sys.argv[2:]) + '\\n')",
        str(out),
    )
    check = await runner(
        tmp_path,
        repair=(*write, "mend", "{node}"),
        check=(*write, "check", "{node}/{cause}", "{recovery}", "; rm -rf x"),
        release=True,
        tries=3,
    )(check_node, GIVEN)
    assert (check.configured, check.passed, check.may_release, check.most) == (True, True, True, 3)
    assert out.read_text() == f"['mend', 'n1']\n['check', 'n1/nvlink', '{RECOVERY}', '; rm -rf x']\n"


async def test_a_failed_repair_spares_the_check_and_output_is_kept(tmp_path: Path) -> None:
    check = await runner(
        tmp_path, repair=("sh", "-c", "echo no spare; exit 4"), check=("touch", str(tmp_path / "checked"))
    )(check_node, GIVEN)
    assert (check.configured, check.passed) == (True, False)
    assert "repair ended with 4: no spare" in check.summary
    assert not (tmp_path / "checked").exists()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("/no/such/program",), "cannot be started: No such file"),
        (("sh", "-c", "sleep 600 & sleep 600"), "ran out of time"),
        (("sh", "-c", "head -c 10000000 /dev/zero | tr '\\0' x; exit 1"), "check ended with 1: xxx"),
        (("sh", "-c", "printf '\\033[31mred\\n'; kill -9 $$"), "check ended with -9: red"),
    ],
)
async def test_commands_that_go_wrong(tmp_path: Path, command: tuple[str, ...], says: str) -> None:
    began = time.monotonic()
    check = await runner(tmp_path, check=command, timeout="1s")(check_node, GIVEN)
    assert not check.passed
    assert says in check.summary
    assert len(check.summary) < 600
    assert time.monotonic() - began < 10


async def test_a_dry_run_runs_nothing(tmp_path: Path) -> None:
    made = tmp_path / "made"
    check = await runner(tmp_path, repair=("touch", str(made)), check=("true",), dry_run=True)(
        check_node, GIVEN
    )
    assert not check.passed
    assert "would run ['touch'" in check.summary
    assert not made.exists()
