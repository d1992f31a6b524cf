"""Decrypts a history whose payloads were encrypted by a codec; events without one are left as they are."""

import json
from collections.abc import Iterable, Iterator
from typing import TypeVar

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import PayloadCodec

M = TypeVar("M", bound=Message)


async def fetch_history(client: Client, workflow_id: str, run_id: str | None = None) -> WorkflowHistory:
    """A workflow's history, with payloads that can be read.

    Raises:
        RPCError: Temporal answers with an error; NOT_FOUND: it has no such workflow (any more).
        EncryptionError: the payloads are encrypted with a key that is not here.
    """
    history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
    codec = client.data_converter.payload_codec
    if codec is not None:
        await decode(history.events, codec)
    return history


async def decode(events: Iterable[HistoryEvent], codec: PayloadCodec) -> None:
    """Decrypts these events in place, the messages of failures included."""
    for event in events:
        for payload in list(_all(event, Payload)):
            [plain] = await codec.decode([payload])
            payload.CopyFrom(plain)
        for failure in list(_all(event, Failure)):
            if failure.HasField("encoded_attributes"):
                failure.message = json.loads(failure.encoded_attributes.data)["message"]


def _all(message: Message, kind: type[M]) -> Iterator[M]:
    """All messages of a kind in a message, however deep."""
    if isinstance(message, kind):
        yield message
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            inner = [one for one in value.values() if isinstance(one, Message)]
        else:
            inner = [value] if isinstance(value, Message) else list(value)
        for one in inner:
            yield from _all(one, kind)
