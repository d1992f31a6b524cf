"""Zip archives, as `torch.save` and `numpy.savez` write them (PKWARE APPNOTE.TXT, 4.3 and 4.4)."""

import struct
import zlib
from dataclasses import dataclass

from relight.checkpoints.access import BadContentError, ReadAt

LOCAL = b"PK\x03\x04"
_CENTRAL = b"PK\x01\x02"
_END = struct.Struct("<4sHHHHIIH")
_END_SIGNATURE = b"PK\x05\x06"
_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_TAIL = _END64.size + _LOCATOR.size + _END.size
_WHOLE = 32 << 10
"""Archives up to this size are read at once: one read is cheaper than three."""
MAX_DIRECTORY = 16 << 20
"""A larger central directory is not read through; its place and size are still checked."""
_CHUNK = 4 << 20
_STORED, _DEFLATED = 0, 8
_CUT_OFF = "the end of the zip archive is missing: it was cut off or is still being written"


@dataclass(frozen=True, slots=True)
class Member:
    """A file in an archive."""

    name: str
    method: int
    crc: int
    stored_size: int
    size: int
    offset: int
    """Of its local header, from the start of the archive."""


def check(read: ReadAt, start: int, length: int, *, members: bool = True) -> list[Member]:
    """Checks both ends of an archive, and that its central directory spans what lies between.

    Args:
        read: reads the file.
        start: where the archive starts in the file.
        length: its length; nothing may follow it.
        members: also read the central directory and check that each member lies in front of the next.

    Returns:
        The members; none if they were not read.

    Raises:
        BadContentError: the archive is cut off, or not an archive.
        UnreadableError, OverBudgetError: as `Access.read`.
    """
    if length < _END.size:
        raise BadContentError(f"{length} bytes are too few for a zip archive")
    if length <= _WHOLE:
        whole = read(start, length)
        head, tail = whole[:4], whole[-_TAIL:]
    else:
        whole = b""
        head, tail = read(start, 4), read(start + length - _TAIL, _TAIL)
    if len(tail) < min(length, _TAIL):
        raise BadContentError("it ends early")
    position, size, count = _central_directory(tail, length)
    if head != LOCAL and count:
        raise BadContentError("it does not start as a zip archive")
    if not members or size > MAX_DIRECTORY:
        return []
    directory = whole[position : position + size] if whole else read(start + position, size)
    return _members(directory, position, size, count)


def check_end(read: ReadAt, size: int) -> None:
    """Checks only that a file ends as an archive does.

    Raises:
        BadContentError: it does not.
        UnreadableError, OverBudgetError: as `Access.read`.
    """
    tail = read(max(0, size - _END.size), _END.size)
    if not tail.startswith(_END_SIGNATURE) or len(tail) < _END.size:
        raise BadContentError(_CUT_OFF)


def _central_directory(tail: bytes, length: int) -> tuple[int, int, int]:
    """Position, size and number of members of the central directory."""
    signature, *_, count, size, position, comment = _END.unpack(tail[-_END.size :])
    if signature != _END_SIGNATURE or comment:
        raise BadContentError(_CUT_OFF)
    end = length - _END.size
    before = tail[: -_END.size]
    if len(before) >= _LOCATOR.size + _END64.size and before[-_LOCATOR.size :].startswith(b"PK\x06\x07"):
        end64 = _END64.unpack(before[-_LOCATOR.size - _END64.size : -_LOCATOR.size])
        if end64[0] != b"PK\x06\x06":
            raise BadContentError("its zip64 end record is damaged")
        count, size, position = end64[7:10]
        end -= _LOCATOR.size + _END64.size
    if position + size != end:
        raise BadContentError(
            f"its zip directory should end at byte {position + size}, but the archive has it end at {end}"
        )
    return position, size, count


def _members(directory: bytes, position: int, size: int, count: int) -> list[Member]:
    found: list[Member] = []
    at = 0
    while at < len(directory):
        entry = directory[at : at + _ENTRY.size]
        if len(entry) < _ENTRY.size or not entry.startswith(_CENTRAL):
            raise BadContentError("its zip directory is damaged")
        (_, _, _, _, method, _, _, crc, stored, plain, name_len, extra_len, note_len, _, _, _, offset) = (
            _ENTRY.unpack(entry)
        )
        at += _ENTRY.size
        name = directory[at : at + name_len].decode("utf-8", "replace")
        extra = directory[at + name_len : at + name_len + extra_len]
        plain, stored, offset = _zip64(extra, plain, stored, offset)
        at += name_len + extra_len + note_len
        found.append(Member(name, method, crc, stored, plain, offset))
    if at != size or len(found) != count:
        raise BadContentError(f"its zip directory names {len(found)} of {count} members")
    by_offset = sorted(found, key=lambda m: m.offset)
    ends = [m.offset for m in by_offset[1:]] + [position]
    for member, end in zip(by_offset, ends, strict=True):
        if member.offset + _LOCAL_HEADER.size + member.stored_size > end:
            raise BadContentError(f"its member {member.name} does not fit where the zip directory puts it")
    return found


def _zip64(extra: bytes, plain: int, stored: int, offset: int) -> tuple[int, int, int]:
    """The sizes and offset, taken from the zip64 extra field where the entry itself has no room for them."""
    full = 0xFFFFFFFF
    if full not in (plain, stored, offset):
        return plain, stored, offset
    while len(extra) >= 4:
        kind, length = struct.unpack_from("<HH", extra)
        if kind == 1:
            values = [v for (v,) in struct.iter_unpack("<Q", extra[4 : 4 + length // 8 * 8])]
            fields = []
            for field in (plain, stored, offset):
                if field == full:
                    if not values:
                        raise BadContentError("its zip directory is damaged")
                    field = values.pop(0)
                fields.append(field)
            return fields[0], fields[1], fields[2]
        extra = extra[4 + length :]
    raise BadContentError("its zip directory is damaged")


def check_deep(read: ReadAt, start: int, members: list[Member]) -> None:
    """Reads every member and compares its checksum.

    Raises:
        BadContentError: a member is damaged.
        UnreadableError, OverBudgetError: as `Access.read`.
    """
    unsigned = all(member.crc == 0 for member in members)  # torch can be told to write no checksums
    for member in members:
        where = start + member.offset
        header = read(where, _LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or not header.startswith(LOCAL):
            raise BadContentError(f"its member {member.name} is damaged")
        *_, name_len, extra_len = _LOCAL_HEADER.unpack(header)
        at = where + _LOCAL_HEADER.size + name_len + extra_len
        if _checksum(read, at, member) != member.crc and not unsigned:
            raise BadContentError(f"the checksum of its member {member.name} is wrong")


def _checksum(read: ReadAt, at: int, member: Member) -> int:
    if member.method not in (_STORED, _DEFLATED):
        raise BadContentError(f"its member {member.name} is compressed in an unknown way")
    inflate = zlib.decompressobj(-15) if member.method == _DEFLATED else None
    crc, left = 0, member.stored_size
    while left:
        chunk = read(at, min(left, _CHUNK))
        if not chunk:
            raise BadContentError(f"its member {member.name} is cut off")
        at, left = at + len(chunk), left - len(chunk)
        try:
            # Bounded: a few bytes can inflate to gigabytes.
            while inflate and chunk:
                crc = zlib.crc32(inflate.decompress(chunk, _CHUNK), crc)
                chunk = inflate.unconsumed_tail
        except zlib.error as error:
            raise BadContentError(f"its member {member.name} is damaged") from error
        if not inflate:
            crc = zlib.crc32(chunk, crc)
    return crc


def read_member(read: ReadAt, start: int, member: Member, limit: int) -> bytes:
    """The bytes of a stored (not compressed) member, at most `limit` of them.

    Raises:
        BadContentError: its local header is damaged, or it is compressed.
        UnreadableError, OverBudgetError: as `Access.read`.
    """
    header = read(start + member.offset, _LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size or not header.startswith(LOCAL):
        raise BadContentError(f"its member {member.name} is damaged")
    if member.method != _STORED:
        raise BadContentError(f"its member {member.name} is compressed")
    *_, name_len, extra_len = _LOCAL_HEADER.unpack(header)
    at = start + member.offset + _LOCAL_HEADER.size + name_len + extra_len
    return read(at, min(limit, member.stored_size))
