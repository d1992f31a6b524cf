"""Reads Temporal's events: which kind, when, and what is in their payloads. Knows nothing of runbooks."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.contrib.pydantic import pydantic_data_converter

T = TypeVar("T")

PREFIX = "EVENT_TYPE_"
_CONVERTER = pydantic_data_converter.payload_converter


class UnreadableHistory(Exception):
    """A payload is not what relight writes. The message says which."""


def kind(event: HistoryEvent) -> str:
    """`ACTIVITY_TASK_COMPLETED` and the like; the number for an event of a newer server."""
    try:
        return str(EventType.Name(event.event_type)).removeprefix(PREFIX)
    except ValueError:
        return str(event.event_type)


def time_of(event: HistoryEvent) -> datetime:
    """When the server wrote it."""
    return event.event_time.ToDatetime(tzinfo=UTC)


def payload(payloads: Sequence[Payload], model: type[T], what: str) -> T:
    """The first payload, as this type.

    Raises:
        UnreadableHistory: there is none, or it is something else (an encrypted one, say).
    """
    if not payloads:
        raise UnreadableHistory(f"{what} has no payload")
    try:
        value: T = _CONVERTER.from_payload(payloads[0], model)
    except (ValidationError, ValueError, RuntimeError, KeyError) as error:
        raise UnreadableHistory(f"{what} is not a {model.__name__}") from error
    return value


def loose(payloads: Sequence[Payload], model: type[T], default: T | None = None) -> T | None:
    """The first payload as this type, or `default`: what people and programs send may be anything."""
    try:
        return payload(payloads, model, "")
    except UnreadableHistory:
        return default


def as_json(value: object) -> Any:
    """A value as it looks in a payload."""
    return json.loads(_CONVERTER.to_payload(value).data or b"null")


def summary(event: HistoryEvent) -> str:
    """The summary that the workflow gave an activity or a timer; empty where it gave none."""
    if not event.user_metadata.HasField("summary"):
        return ""
    return loose([event.user_metadata.summary], str) or ""


def innermost(failure: Failure) -> Failure:
    """The failure that says why: the activity's own, not the wrappers around it."""
    while failure.HasField("cause") and not (
        failure.HasField("application_failure_info") and failure.application_failure_info.type
    ):
        failure = failure.cause
    return failure


def details(failure: Failure) -> list[Any]:
    """What an activity's error carries, undecoded models as plain dictionaries."""
    found = innermost(failure).application_failure_info.details.payloads
    return [value for one in found if (value := loose([one], object)) is not None]
