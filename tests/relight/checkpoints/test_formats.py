"""File formats: pickles read as data, zip archives, safetensors, CRC-32C."""

import io
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relight.checkpoints.access import BadContentError
from relight.checkpoints.formats import pickles, safetensors, torch_legacy, zips
from relight.checkpoints.formats.crc32c import crc32c
from tests.relight.checkpoints import builders

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner) | st.tuples(inner)
    ),
    max_leaves=20,
)


def as_python(value: object, protocol: int) -> object:
    """What a pickle read as data says, for plain values."""
    if isinstance(value, pickles.Pairs):
        return {key: as_python(item, protocol) for key, item in pickles.items(value)}
    if isinstance(value, list):
        return [as_python(item, protocol) for item in value]
    if isinstance(value, tuple):
        return tuple(as_python(item, protocol) for item in value)
    if isinstance(value, pickles.Call):  # bytes, before protocol 3
        assert isinstance(value.callee, pickles.Name)
        if value.callee.name == "encode":
            assert isinstance(value.args, tuple)
            return str(value.args[0]).encode("latin-1")
        return b""
    return value


@given(value=plain, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_values_come_out_as_they_went_in(value: object, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    found, end = pickles.read(b"front" + data + b"behind", start=5)
    assert end == 5 + len(data)
    assert as_python(found, protocol) == value


def test_every_opcode_of_python_is_known() -> None:
    known = {ord(op.code) for op in pickletools.opcodes}
    assert {c for c in range(256) if pickles._TABLE[c] is not pickles._unknown} | {ord(".")} == known


def test_objects_become_calls_and_ordered_dictionaries_keep_their_items() -> None:
    value, _ = pickles.read(pickle.dumps(OrderedDict(a=1, b=[2])))
    assert isinstance(value, pickles.Call)
    assert value.is_a("OrderedDict")
    assert (pickles.get(value, "a"), pickles.get(value, "b"), pickles.get(value, "c")) == (1, [2], None)


class Evil:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (__import__("os").system, ("touch /tmp/relight-was-here",))


def test_nothing_is_called() -> None:
    value, _ = pickles.read(pickle.dumps({"step": 3, "x": Evil()}))
    assert pickles.get(value, "step") == 3
    assert isinstance(pickles.get(value, "x"), pickles.Call)


@given(st.binary(max_size=200))
def test_noise_is_bad_content_and_nothing_else(noise: bytes) -> None:
    try:
        pickles.read(noise)
    except BadContentError:
        return


@given(st.data())
def test_every_cut_of_a_pickle_is_noticed(data: st.DataObject) -> None:
    whole = pickle.dumps({"a": [1.5, "x" * 300, (2, 3)], "b": OrderedDict(c=b"y" * 300)}, 4)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(BadContentError):
        pickles.read(whole[:cut])


@pytest.mark.parametrize(
    "bomb",
    [
        b"(" * 1_000_000,
        b"]" + b"2" * 1_000_000 + b".",
        b")" + b"\x85" * 1_000_000 + b".",
        b"}" + b"\x94" * 1_000_000 + b".",
        b"K\x01r\xff\xff\xff\xff.",
        b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x8b\xff\xff\xff\x7f1",
        b"I" + b"9" * 100_000 + b"\n.",
        b"".join([b"]", *([b"\x94h\x00h\x00a"] * 1000), b"."]),
    ],
    ids=["marks", "copies", "nesting", "memo", "far-memo", "long-bytes", "long-int", "digits", "self"],
)
def test_bombs_take_neither_long_nor_much(bomb: bytes) -> None:
    try:
        pickles.read(bomb)
    except BadContentError:
        return


def test_too_long_is_not_bad() -> None:
    with pytest.raises(pickles.TooLongError):
        pickles.read(b"N0" * pickles.MAX_OPCODES)


def reader(data: bytes) -> Any:
    """Reads from bytes as from a file."""
    return lambda offset, length: data[offset : offset + length]


@given(size=st.integers(0, 100_000), deflated=st.booleans())
def test_zip_archives_of_python_are_whole(size: int, deflated: bool) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as archive:
        archive.writestr("a/data.pkl", b"x" * size)
        archive.writestr("a/data/0", bytes(i % 256 for i in range(size)))
    data = out.getvalue()
    members = zips.check(reader(data), 0, len(data))
    assert [m.name for m in members] == ["a/data.pkl", "a/data/0"]
    zips.check_deep(reader(data), 0, members)


@given(st.data())
def test_every_cut_of_an_archive_is_noticed(data: st.DataObject) -> None:
    whole = builders.torch_zip(size=data.draw(st.sampled_from([10, 50_000])))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(BadContentError):
        zips.check(reader(whole[:cut]), 0, cut)


@given(st.data())
def test_every_flipped_bit_in_an_archive_is_noticed_when_every_byte_is_read(data: st.DataObject) -> None:
    whole = bytearray(builders.torch_zip(size=200))
    members = zips.check(reader(bytes(whole)), 0, len(whole))
    member = data.draw(st.sampled_from(members))
    start = member.offset + 30 + len(member.name)
    at = data.draw(st.integers(start, start + member.stored_size - 1)) if member.stored_size else start
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BadContentError):
        zips.check_deep(reader(bytes(whole)), 0, zips.check(reader(bytes(whole)), 0, len(whole)))


def test_an_archive_that_inflates_without_end_is_read_in_pieces() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("bomb", "w") as member:
        for _ in range(50):
            member.write(b"\0" * (1 << 20))
    data = out.getvalue()
    assert len(data) < 100_000
    zips.check_deep(reader(data), 0, zips.check(reader(data), 0, len(data)))


@given(st.data())
def test_every_cut_and_every_addition_to_safetensors_is_noticed(data: st.DataObject) -> None:
    whole = builders.safetensors(data.draw(st.integers(8, 200)))
    safetensors.check(reader(whole), len(whole))
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(BadContentError):
        safetensors.check(reader(whole[:cut]), cut)
    with pytest.raises(BadContentError):
        safetensors.check(reader(whole + b"x"), len(whole) + 1)


@given(st.binary(max_size=300))
def test_noise_after_a_plausible_length_is_bad_content(noise: bytes) -> None:
    data = (len(noise)).to_bytes(8, "little") + noise
    try:
        safetensors.check(reader(data), len(data))
    except BadContentError:
        return
    assert noise.strip() in {b"{}", b'{"__metadata__":{}}'}


def test_the_published_check_values_of_crc32c() -> None:
    """RFC 3720, appendix B.4."""
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"123456789") == 0xE3069283


def storage(kind: str, key: str, count: int) -> bytes:
    """A pickle that refers to a storage of torch, as `torch.save` wrote it before zip archives."""
    return (
        b"\x80\x02(X\x07\x00\x00\x00storagectorch\n"
        + kind.encode()
        + b"\nX\x01\x00\x00\x00"
        + key.encode()
        + b"X\x03\x00\x00\x00cpuK"
        + bytes([count])
        + b"NtQ."
    )


def legacy(kind: str = "FloatStorage", count: int = 5) -> bytes:
    """A file of `torch.save` with one storage."""
    front = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({"a": 1}, 2)
    data = front + storage(kind, "7", count) + pickle.dumps(["7"], 2)
    return data + count.to_bytes(8, "little") + bytes(4 * count)


def test_a_file_of_old_torch_has_the_length_that_its_storages_demand() -> None:
    whole = legacy()
    assert torch_legacy.check(reader(whole), len(whole)) is True
    for cut in (1, 20, 28, 40, len(whole) - 20):
        with pytest.raises(BadContentError):
            torch_legacy.check(reader(whole[:-cut]), len(whole) - cut)
    unknown = legacy("QuantumStorage")
    assert torch_legacy.check(reader(unknown), len(unknown)) is False


def test_a_pickle_too_large_to_follow_must_still_end_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_legacy, "MAX_PICKLE", 50)
    whole = pickle.dumps([b"x" * 100])
    assert torch_legacy.check(reader(whole), len(whole)) is False
    with pytest.raises(BadContentError, match="does not end"):
        torch_legacy.check(reader(whole[:-3]), len(whole) - 3)
