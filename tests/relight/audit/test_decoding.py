"""Encrypted histories are read as if they had never been encrypted."""

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure

from relight.audit.decoding import _all, decode
from relight.audit.recovery import recovery_audit
from relight.encryption import Codec, EncryptionError
from tests.relight.audit.making import recorded

KEYS = {"first": b"k" * 32}


@pytest.mark.parametrize("name", ["approved_by_update.0.recovery", "unreachable.0.recovery"])
async def test_what_was_encrypted_is_read_again(name: str) -> None:
    plain, events = recorded(name).events, recorded(name).events
    codec = Codec(KEYS)
    for event in events:
        for failure in _all(event, Failure):  # as Temporal's converter with encoded attributes does
            failure.encoded_attributes.data = b'{"message": "%s"}' % failure.message.encode()
            failure.message = "Encoded failure"
        for payload in list(_all(event, Payload)):
            [secret] = await codec.encode([payload])
            payload.CopyFrom(secret)
    assert b"user_code" not in b"".join(event.SerializeToString() for event in events)
    with pytest.raises(EncryptionError, match="key_file"):
        await decode(list(events)[:1], Codec({}))
    await decode(events, codec)
    assert recovery_audit(name, events) == recovery_audit(name, plain)
