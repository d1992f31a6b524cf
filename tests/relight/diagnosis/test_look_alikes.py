"""A log that names something like a node does not name the node."""

import pytest

from relight.diagnosis.names import Names

NODES = ("n1", "n2", "gpu-01")


@pytest.mark.parametrize(
    "written",
    [
        "n２",  # a fullwidth digit
        "ո2",  # an Armenian letter
        "N2",
        "n02",
        "n-2",
        "n2x",
        "n 2",
        "gpu–01",  # a dash that is no hyphen
        "gpu_01",
        "GPU-01",
        "n2;n1",
        "n[1-2]",
        "../n2",
        "n2\u200b",
    ],
)
def test_a_look_alike_is_not_the_node(written: str) -> None:
    assert Names((), NODES).node(written) not in NODES


@pytest.mark.parametrize(
    ("written", "node"), [("n2", "n2"), ("n2.cluster.local", "n2"), ("gpu-01", "gpu-01"), ("10.0.0.7", None)]
)
def test_a_node_is_known_by_its_name_and_its_full_name(written: str, node: str | None) -> None:
    assert Names((), NODES).node(written) == node
