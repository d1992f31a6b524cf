"""Encrypts what relight tells Temporal: with a key, its server and its database see no job's data.

Workflow inputs, results, signals, memos, summaries and failure messages are encrypted with AES-256-GCM.
Workflow ids and search attributes are not: Temporal has to find workflows by them.

A key file has one key per line, `NAME BASE64` (32 bytes). The first one encrypts; all of them decrypt, so a
key is replaced by putting a new one before it, and taken out once no workflow with the old one is kept.
"""

import base64
import binascii
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import (
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    PayloadCodec,
)

from relight.permissions import problem

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

ENCODING = b"binary/encrypted"
"""Metadata `encoding` of an encrypted payload, as in Temporal's own samples."""
KEY_ID = "encryption-key-id"
KEY_BYTES = 32
NONCE_BYTES = 12
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class EncryptionError(Exception):
    """A key file cannot be used, or a payload cannot be read. The message says what to do, and no key."""


class Codec(PayloadCodec):
    """Encrypts payloads with the first key, and decrypts with whichever key a payload names.

    Without a key payloads stay plain, and an encrypted one is refused: the message says what is missing.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._ciphers = {name: _cipher(key) for name, key in keys.items()}
        self._first = next(iter(keys), "")

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Encrypts."""
        return [self._encrypt(payload) for payload in payloads] if self._first else list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Decrypts; what is not encrypted, from before there was a key, passes.

        Raises:
            EncryptionError: the key is not here, or the payload was tampered with.
        """
        return [self._decrypt(payload) for payload in payloads]

    def _encrypt(self, payload: Payload) -> Payload:
        nonce, name = os.urandom(NONCE_BYTES), self._first.encode()
        data = nonce + self._ciphers[self._first].encrypt(nonce, payload.SerializeToString(), name)
        return Payload(metadata={"encoding": ENCODING, KEY_ID: name}, data=data)

    def _decrypt(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        name = payload.metadata.get(KEY_ID, b"").decode(errors="replace")
        cipher = self._ciphers.get(name)
        if cipher is None:
            here = ", ".join(self._ciphers) or "none"
            raise EncryptionError(
                f"a payload is encrypted with key {name!r}, and this process has {here}: set "
                "RELIGHT_ENCRYPTION__KEY_FILE (setting encryption.key_file) to the cluster's key file"
            )
        from cryptography.exceptions import InvalidTag

        nonce, data = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
        try:
            plain = cipher.decrypt(nonce, data, name.encode())
        except (InvalidTag, ValueError) as e:
            raise EncryptionError(
                f"a payload that names key {name!r} was encrypted with another key, or was changed"
            ) from e
        return Payload.FromString(plain)


def data_converter(key_file: Path | None) -> DataConverter:
    """What clients and workers use: pydantic models, encrypted if there is a key file.

    Raises:
        EncryptionError: the file cannot be used, or others can read it.
    """
    keys = read_keys(key_file) if key_file is not None else {}
    converter = dataclasses.replace(pydantic_data_converter, payload_codec=Codec(keys))
    if keys:  # failure messages quote what went wrong with the job
        return dataclasses.replace(
            converter, failure_converter_class=DefaultFailureConverterWithEncodedAttributes
        )
    return converter


def read_keys(file: Path) -> dict[str, bytes]:
    """The keys of a key file, by name, in its order.

    Raises:
        EncryptionError: it is missing, empty, malformed, or others can read it.
    """
    try:
        unsafe = problem(file, secret=True)
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        why = e.strerror if isinstance(e, OSError) else "it is not text"
        raise EncryptionError(f"the key file {file} cannot be read: {why}") from None
    if unsafe:
        raise EncryptionError(unsafe)
    keys: dict[str, bytes] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, _, text = line.strip().partition(" ")
        key = _key(text.strip())
        if key is None or not _NAME.fullmatch(name) or name in keys:
            raise EncryptionError(
                f"line {number} of the key file {file} is not `NAME BASE64` with a new name and {KEY_BYTES} "
                f'bytes: make one with  echo "$(date +%Y-%m) $(head -c {KEY_BYTES} /dev/urandom | base64)"'
            )
        keys[name] = key
    if not keys:
        raise EncryptionError(f"the key file {file} has no key")
    return keys


def _key(text: str) -> bytes | None:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if len(key) == KEY_BYTES else None


def _cipher(key: bytes) -> "AESGCM":
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise EncryptionError(
            "encryption needs the package `cryptography`: pip install 'relight[encryption]'"
        ) from None
    return AESGCM(key)
