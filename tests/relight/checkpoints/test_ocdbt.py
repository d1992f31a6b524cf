"""OCDBT databases, written here without compression, so that no zstd is needed."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.checkpoints.access import BadContentError, ReadAt
from relight.checkpoints.formats import ocdbt
from relight.checkpoints.formats.crc32c import crc32c
from relight.checkpoints.stores import UnreadableError


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def varints(*values: int) -> bytes:
    return b"".join(map(varint, values))


def block(magic: bytes, body: bytes) -> bytes:
    length = 4 + 8 + 2 + len(body) + 4
    data = magic + struct.pack("<Q", length) + varints(0, 0) + body
    return data + struct.pack("<I", crc32c(data))


def table(*paths: tuple[str, str]) -> bytes:
    """A table of data files: base path and the rest."""
    count = len(paths)
    whole = [(base + rest).encode() for base, rest in paths]
    return (
        varint(count)
        + varints(*[0] * (count - 1))
        + varints(*map(len, whole))
        + varints(*(len(base) for base, _ in paths))
        + b"".join(whole)
    )


def leaf(files: bytes, values: list[tuple[int, int, int]]) -> bytes:
    """A leaf with values (file, offset, length) outside, and one inside."""
    count = len(values) + 1
    body = b"\x00" + files + varint(count)
    body += varints(*[0] * (count - 1)) + varints(*[1] * count) + b"k" * count
    body += varints(*[v[2] for v in values], 3) + varints(*[1] * len(values), 0)
    body += varints(*[v[0] for v in values]) + varints(*[v[1] for v in values]) + b"abc"
    return block(b"\x0c\xdb\x20\xde", body)


def inner(files: bytes, children: list[tuple[int, int, int]]) -> bytes:
    count = len(children)
    body = b"\x01" + files + varint(count) + varints(*[0] * (count - 1)) + varints(*[1] * count)
    body += varints(*[0] * count) + b"k" * count
    for column in range(3):
        body += varints(*[child[column] for child in children])
    return block(b"\x0c\xdb\x20\xde", body + varints(*[0] * 3 * count))


def manifest(root: tuple[str, int, int] | None) -> bytes:
    body = bytes(16) + b"\x00" + varints(100, 8_000_000) + b"\x04" + varint(0)
    if root is None:
        nowhere = (1 << 64) - 1
        body += table() + varint(1) + varint(1) + b"\x00" + varints(0, nowhere, nowhere)
    else:
        body += table(("", root[0])) + varint(1) + varint(1) + b"\x01" + varints(0, *root[1:])
    return block(b"\x0c\xdb\x3a\x2a", body)


def database() -> dict[str, bytes]:
    """A root with two leaves, one of them in a database below, with values there."""
    one = leaf(table(("", "d/values")), [(0, 10, 90), (0, 100, 50)])
    two = leaf(table(("", "d/values")), [(0, 0, 70)])
    root = inner(table(("", "d/nodes"), ("below/", "d/nodes")), [(0, 5, len(one)), (1, 0, len(two))])
    return {
        "manifest.ocdbt": manifest(("d/root", 0, len(root))),
        "d/root": root,
        "d/nodes": b"front" + one,
        "d/values": bytes(150),
        "below/d/nodes": two,
        "below/d/values": bytes(70),
    }


def follow(files: dict[str, bytes]) -> ocdbt.Needed:
    def open_file(path: str) -> tuple[ReadAt, int]:
        if path not in files:
            raise UnreadableError(f"{path} is missing")
        content = files[path]
        return lambda offset, length: content[offset : offset + length], len(content)

    return ocdbt.needed_ranges(open_file)


def test_every_value_is_found_also_in_a_database_below() -> None:
    files = database()
    needed = follow(files)
    assert needed.ends == {path: len(content) for path, content in files.items() if path != "manifest.ocdbt"}
    assert needed.checked == "places of all values in 5 OCDBT data files"


def test_an_empty_database_needs_nothing() -> None:
    assert follow({"manifest.ocdbt": manifest(None)}).ends == {}


@given(st.data())
def test_every_cut_of_what_leads_to_the_values_is_noticed(data: st.DataObject) -> None:
    files = database()
    path = data.draw(st.sampled_from(["manifest.ocdbt", "d/root", "d/nodes", "below/d/nodes"]))
    files[path] = files[path][: data.draw(st.integers(0, len(files[path]) - 1))]
    with pytest.raises(BadContentError):
        follow(files)


@given(st.data())
def test_every_changed_byte_is_noticed(data: st.DataObject) -> None:
    files: dict[str, Any] = database()
    path = data.draw(st.sampled_from(["manifest.ocdbt", "d/root", "below/d/nodes"]))
    content = bytearray(files[path])
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadContentError):
        follow({**files, path: bytes(content)})


@given(st.binary(max_size=200))
def test_noise_with_a_right_checksum_is_bad_content_and_nothing_else(noise: bytes) -> None:
    try:
        follow({"manifest.ocdbt": block(b"\x0c\xdb\x3a\x2a", noise)})
    except (BadContentError, UnreadableError):
        return
