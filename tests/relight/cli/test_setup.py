"""`relight setup`, on a namespace that lacks all or one, or has one of another type."""

import json
import subprocess
from collections.abc import Callable

import pytest

from relight.cli.devserver import DevServer, find_temporal
from relight.contracts.ids import SEARCH_ATTRIBUTES
from tests.relight.cli.conftest import Relight

pytestmark = pytest.mark.temporal
NAMES = sorted(key.name for key in SEARCH_ATTRIBUTES)


@pytest.fixture
def namespace(server: DevServer, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Makes a namespace with these search attributes, by Temporal's own command."""

    def make(**attributes: str) -> str:
        name = request.node.name.replace("_", "-").replace("[", "-").replace("]", "")[:60]
        operate(server, "namespace", "create", "--namespace", name)
        for attribute, kind in attributes.items():
            operate(
                server, "search-attribute", "create", "--namespace", name, "--name", attribute, "--type", kind
            )
        return name

    return make


def operate(server: DevServer, *args: str) -> None:
    subprocess.run(
        [str(find_temporal()), "operator", *args], env=server.environment, check=True, capture_output=True
    )


def test_registers_once_and_says_what_it_did(relight: Relight, namespace: Callable[..., str]) -> None:
    name = namespace()
    looked = relight("setup", "--check", "--json", TEMPORAL_NAMESPACE=name)
    assert looked.exit_code == 7
    assert sorted(json.loads(looked.stdout)["missing"]) == NAMES
    first = relight("setup", TEMPORAL_NAMESPACE=name)
    assert first.exit_code == 0, first.output
    assert "registered RelightCluster" in first.stdout
    again = json.loads(relight("setup", "--json", TEMPORAL_NAMESPACE=name).stdout)
    assert (again["added"], sorted(again["present"])) == ([], NAMES)
    assert relight("setup", "--check", TEMPORAL_NAMESPACE=name).exit_code == 0
    assert relight("jobs", TEMPORAL_NAMESPACE=name).exit_code == 0


def test_adds_only_what_is_missing(relight: Relight, namespace: Callable[..., str]) -> None:
    name = namespace(RelightCluster="Keyword")
    done = json.loads(relight("setup", "--json", TEMPORAL_NAMESPACE=name).stdout)
    assert done["present"] == ["RelightCluster"]
    assert sorted(done["added"]) == sorted(set(NAMES) - {"RelightCluster"})


def test_another_type_is_refused_with_both_names(relight: Relight, namespace: Callable[..., str]) -> None:
    name = namespace(RelightNodes="Keyword")
    done = relight("setup", TEMPORAL_NAMESPACE=name)
    assert done.exit_code == 7
    assert "RelightNodes exists with type Keyword, but relight needs KeywordList" in done.stderr


def test_commands_point_to_setup(relight: Relight, namespace: Callable[..., str]) -> None:
    done = relight("--cluster", "here", "jobs", TEMPORAL_NAMESPACE=namespace())
    assert done.exit_code == 7
    assert "relight setup" in done.stderr


def test_a_namespace_that_is_not_there(relight: Relight) -> None:
    done = relight("jobs", TEMPORAL_NAMESPACE="nowhere")
    assert done.exit_code == 3
    assert "no namespace 'nowhere'" in done.stderr
