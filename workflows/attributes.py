"""Search attributes: what people filter workflows by. Only changes are written, each being an event."""

from typing import Any

from temporalio import workflow
from temporalio.common import (
    SearchAttributeKey,
    SearchAttributePair,
    SearchAttributeUpdate,
    TypedSearchAttributes,
)

Pair = SearchAttributePair[Any]


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
