"""Search attributes: what people filter workflows by. Only changes are written, each being an event."""

from typing import Any

from temporalio import workflow
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    SearchAttributeUpdate,
    TypedSearchAttributes,
)

with workflow.unsafe.imports_passed_through():
    from relight.contracts import Cause, TrainingJob
    from relight.contracts.ids import CAUSE, CLUSTER, JOB_ID, MODE, NODES, STATE, USER

MAX_NODE_BYTES = 1500
"""Temporal allows 2 KiB for one value; beyond it the workflow would be stuck."""

Pair = SearchAttributePair[Any]


def job_pairs(job: TrainingJob, state: str, cause: Cause | None = None) -> list[Pair]:
    """The attributes of a workflow about this job. Empty ones are left out: Temporal refuses them."""
    pairs: list[Pair] = [
        SearchAttributePair(CLUSTER, job.cluster),
        SearchAttributePair(JOB_ID, job.attempt.job_id),
        SearchAttributePair(USER, job.user),
        SearchAttributePair(STATE, state),
        SearchAttributePair(MODE, job.mode.value),
        SearchAttributePair(CAUSE, cause.value if cause is not None else ""),
        SearchAttributePair(NODES, bounded(job.nodes)),
    ]
    return [pair for pair in pairs if pair.value]


def bounded(nodes: tuple[str, ...]) -> list[str]:
    """As many node names, from the first, as one attribute can hold."""
    room, kept = MAX_NODE_BYTES, []
    for node in nodes:
        room -= len(node.encode()) + 4  # quotes, comma and space in JSON
        if room < 0:
            break
        kept.append(node)
    return kept


def show(pairs: list[Pair]) -> None:
    """Writes those attributes of the running workflow that changed, in one event."""
    shown = workflow.info().typed_search_attributes
    changes: list[SearchAttributeUpdate[Any]] = [
        _set(pair.key, pair.value) for pair in pairs if shown.get(pair.key) != pair.value
    ]
    if changes:
        workflow.upsert_search_attributes(changes)


def at_start(pairs: list[Pair]) -> TypedSearchAttributes:
    """The same attributes, for a workflow that is about to be started."""
    return TypedSearchAttributes(pairs)


def _set(key: SearchAttributeKey[Any], value: Any) -> SearchAttributeUpdate[Any]:
    return key.value_set(value)
