"""What Prometheus answered, by node and GPU."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Value:
    """One series at one moment."""

    node: str
    gpu: str
    """As the exporter counts it, or its UUID; empty for what is about the whole node."""
    value: float
    query: str = ""


@dataclass
class Reading:
    """The answers by the name of their query. What is missing was not answered: nothing is known of it."""

    answers: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    problem: str = ""
    """Why it is incomplete; empty when all was answered."""
    texts: dict[str, str] = field(default_factory=dict)
    """The queries as they were asked."""

    def add(self, other: "Reading") -> None:
        """Takes over what other queries answered."""
        self.answers |= other.answers
        self.texts |= other.texts
        self.problem = self.problem or other.problem

    def of(self, name: str, nodes: Iterable[str]) -> dict[tuple[str, str], float]:
        """The numbers of these nodes, by node and GPU; none where the query was not answered."""
        wanted = set(nodes)
        return {(v.node, v.gpu): v.value for v in self.answers.get(name, ()) if v.node in wanted}


def read_vector(
    answer: Sequence[Any], labels: Sequence[str], nodes: Mapping[str, str] | None
) -> tuple[Value, ...]:
    """An instant vector as values; what cannot be read, or is of another node, is left out.

    Args:
        answer: as Prometheus sends it (`result` of `/api/v1/query`, HTTP API, "Instant vectors").
        labels: the labels that may name the node, in the order in which they are tried.
        nodes: names as they may be printed, to the scheduler's names; None: all nodes, by their short names.
    """
    values = []
    for series in answer:
        try:
            metric, number = series["metric"], float(series["value"][1])
        except (TypeError, KeyError, IndexError, ValueError):
            continue
        if not isinstance(metric, Mapping):
            continue
        node = next((host(metric[label]) for label in labels if metric.get(label)), "")
        node = node if nodes is None else nodes.get(node, "")
        if node and math.isfinite(number):
            gpu = metric.get("gpu") or metric.get("UUID") or ""
            values.append(Value(node=node, gpu=str(gpu), value=number))
    return tuple(values)


def host(text: str) -> str:
    """`node01` of `node01.example.org:9400`."""
    return str(text).partition(":")[0].partition(".")[0]
