"""OCDBT databases of TensorStore: which byte ranges of which data files does the newest version need?

Format: https://google.github.io/tensorstore/kvstore/ocdbt/index.html, "Storage format". A manifest leads to
B+tree nodes, and their leaves to values in data files. Manifest and nodes end with a CRC-32C and are usually
compressed with zstd; where Python has no zstd (before 3.14, without `backports.zstd`), only the manifest's
ends and its checksum are checked.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from relight.checkpoints.access import BadContentError, ReadAt
from relight.checkpoints.formats.crc32c import crc32c

MANIFEST = "manifest.ocdbt"
_MANIFEST_MAGIC = b"\x0c\xdb\x3a\x2a"
_NODE_MAGIC = b"\x0c\xdb\x20\xde"
_MAX_BLOCK = 32 << 20
_MAX_NODES = 100_000
_NOWHERE = 1 << 63
"""Offsets from here on mean that there is nothing."""
_MAX_CHECKSUM = 1 << 20
"""Larger blocks are decoded, which notices most damage, but their checksum is not computed."""

Open = Callable[[str], tuple[ReadAt, int]]
"""Gives the reader and the size of a file of the database."""


@dataclass
class Needed:
    """What the newest version of a database needs."""

    ends: dict[str, int] = field(default_factory=dict)
    """Path of a data file to the number of bytes that it must have at least."""
    checked: str = ""


def _find_zstd() -> Any:
    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


_zstd = _find_zstd()


def has_zstd() -> bool:
    """Compressed nodes can be read here."""
    return _zstd is not None


def needed_ranges(open_file: Open) -> Needed:
    """Follows a database from its manifest.

    Raises:
        BadContentError: manifest or a node is damaged.
        UnreadableError, OverBudgetError: as `Access.read`.
    """
    read, size = open_file(MANIFEST)
    manifest = _block(MANIFEST, read, 0, size, _MANIFEST_MAGIC)
    needed = Needed()
    if manifest is None:
        needed.checked = "checksum of the OCDBT manifest (no zstd to read it)"
        return needed
    if manifest.uuid_and_kind():
        needed.checked = "OCDBT manifest (numbered manifests are not followed)"
        return needed
    queue = _roots(manifest)
    seen: set[tuple[str, int, int]] = set()
    while queue:
        path, base, offset, length = queue.pop()
        if (path, offset, length) in seen:
            continue
        seen.add((path, offset, length))
        if len(seen) > _MAX_NODES:
            needed.checked = f"the first {_MAX_NODES} nodes of the OCDBT database"
            return needed
        needed.ends[path] = max(needed.ends.get(path, 0), offset + length)
        read, size = open_file(path)
        if offset + length > size:
            raise BadContentError(f"{path} has {size} of the {offset + length} bytes needed")
        node = _block(path, read, offset, length, _NODE_MAGIC)
        if node is None:
            needed.checked = "root of the OCDBT database (no zstd to read on)"
            return needed
        queue += _entries(node, base, needed)
    needed.checked = f"places of all values in {len(needed.ends)} OCDBT data files"
    return needed


class _Cursor:
    """Reads a decoded block from front to back."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        self.at = 0

    def damaged(self) -> BadContentError:
        return BadContentError(f"{self.path} is damaged")

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise self.damaged()
        self.at += 1
        return self.data[self.at - 1]

    def uuid_and_kind(self) -> int:
        """Skips the id of the database; its kind is 0 where this manifest is the only one."""
        self.skip(16)
        return self.byte()

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise self.damaged()

    def varints(self, count: int) -> list[int]:
        return [self.varint() for _ in range(count)]

    def count(self) -> int:
        """A number of entries: each takes at least one byte."""
        value = self.varint()
        if value > len(self.data):
            raise self.damaged()
        return value

    def skip(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self.data):
            raise self.damaged()
        piece = self.data[self.at : end]
        self.at = end
        return piece


def _block(path: str, read: ReadAt, offset: int, length: int, magic: bytes) -> _Cursor | None:
    """Reads, checks and decodes a manifest or node; None if it is compressed and there is no zstd."""
    if not 18 <= length <= _MAX_BLOCK:
        raise BadContentError(f"{path} has a block of impossible length {length}")
    data = read(offset, length)
    if len(data) < length:
        raise BadContentError(f"{path} is cut off")
    if data[:4] != magic or int.from_bytes(data[4:12], "little") != length:
        raise BadContentError(f"{path} does not start as it must")
    if length <= _MAX_CHECKSUM and crc32c(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise BadContentError(f"the checksum of {path} is wrong")
    cursor = _Cursor(path, data[:-4])
    cursor.at = 12
    version, compression = cursor.varint(), cursor.varint()
    if version or compression > 1:
        raise BadContentError(f"{path} has an unknown version or compression")
    body = cursor.data[cursor.at :]
    if not compression:
        return _Cursor(path, body)
    if _zstd is None:
        return None
    try:
        decoder = _zstd.ZstdDecompressor()
        plain = decoder.decompress(body, max_length=_MAX_BLOCK)
    except _zstd.ZstdError as error:
        raise BadContentError(f"{path} is damaged") from error
    if not decoder.eof:
        raise BadContentError(f"{path} is damaged")
    return _Cursor(path, plain)


def _files(cursor: _Cursor, base: str) -> list[tuple[str, str]]:
    """A table of data files: for each its path, and the base path for what lies beneath it."""
    count = cursor.count()
    prefixes = [0, *cursor.varints(count - 1)] if count else []
    suffixes, bases = cursor.varints(count), cursor.varints(count)
    files: list[tuple[str, str]] = []
    path = b""
    for prefix, suffix, base_length in zip(prefixes, suffixes, bases, strict=True):
        if prefix > len(path):
            raise cursor.damaged()
        path = path[:prefix] + cursor.skip(suffix)
        if base_length > len(path) or len(path) > 65535:
            raise cursor.damaged()
        text = path.decode("utf-8", "replace")
        files.append((base + text, base + path[:base_length].decode("utf-8", "replace")))
    return files


_Place = tuple[str, str, int, int]
"""Path, base path, offset and length of a node."""


def _roots(cursor: _Cursor) -> list[_Place]:
    """The root of the newest version; none if the database is empty."""
    cursor.varints(2)  # bytes of inline values, of nodes
    cursor.byte()
    if cursor.varint():
        cursor.skip(4)  # level of compression
    files = _files(cursor, "")
    count = cursor.count()
    cursor.varints(count)  # generations
    cursor.skip(count)  # heights
    ids, offsets, lengths = (cursor.varints(count) for _ in range(3))
    if not count or offsets[-1] >= _NOWHERE:  # an empty database
        return []
    if ids[-1] >= len(files):
        raise cursor.damaged()
    return [(*files[ids[-1]], offsets[-1], lengths[-1])]


def _entries(cursor: _Cursor, base: str, needed: Needed) -> list[_Place]:
    """Notes what a leaf's values need; gives the children of an inner node."""
    height = cursor.byte()
    files = _files(cursor, base)
    count = cursor.count()
    if not count:
        return []
    cursor.varints(count - 1)
    suffixes = cursor.varints(count)
    if height:
        cursor.varints(count)
    cursor.skip(sum(suffixes))
    if height:
        ids, offsets, lengths = (cursor.varints(count) for _ in range(3))
    else:
        sizes, kinds = cursor.varints(count), cursor.varints(count)
        lengths = [size for size, kind in zip(sizes, kinds, strict=True) if kind]
        ids, offsets = cursor.varints(len(lengths)), cursor.varints(len(lengths))
    if any(i >= len(files) for i in ids):
        raise cursor.damaged()
    places = [(*files[i], o, n) for i, o, n in zip(ids, offsets, lengths, strict=True)]
    if height:
        return places
    for path, _, offset, length in places:
        needed.ends[path] = max(needed.ends.get(path, 0), offset + length)
    return []
