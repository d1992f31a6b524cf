"""Every command in README.md and in the documentation is run, or is in the table of those that cannot be."""

from collections.abc import Iterator

import pytest

from tests.docs.console import Command, commands, files, pages
from tests.docs.not_run import NOT_RUN, rule_for
from tests.docs.world import World
from tests.slurm.cluster import SlurmCluster

COMMANDS = [command for page in pages() for command in commands(page)]


@pytest.fixture(scope="module")
def world(slurm_cluster: SlurmCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    shown = [file for page in pages() for file in files(page)]
    with World(tmp_path_factory.mktemp("docs"), slurm_cluster, shown) as started:
        yield started


@pytest.mark.slurm
@pytest.mark.temporal
@pytest.mark.parametrize("command", [c for c in COMMANDS if rule_for(c) is None], ids=str)
def test_it_does_what_the_page_says(command: Command, world: World) -> None:
    world.run(command)


@pytest.mark.parametrize("command", [c for c in COMMANDS if rule_for(c) is not None], ids=str)
def test_what_cannot_be_run_is_there_at_least(command: Command) -> None:
    rule = rule_for(command)
    assert rule is not None
    rule.check(command)


@pytest.mark.parametrize("rule", NOT_RUN, ids=lambda rule: rule.pattern)
def test_no_rule_without_a_command(rule: object) -> None:
    assert any(rule_for(command) is rule for command in COMMANDS)
