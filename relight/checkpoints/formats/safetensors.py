"""Safetensors: an 8-byte length, a JSON header, then the tensors without gaps.

Format: https://huggingface.co/docs/safetensors, "Format"; the header may have 100 MB.
"""

import json
import re
from math import prod

from relight.checkpoints.access import BadContentError, ReadAt

MAX_HEADER = 100_000_000
_MAX_PARSED = 8 << 20
"""A longer header is searched for offsets only: parsed, it would take ten times its size in memory."""
_OFFSETS = re.compile(rb'"data_offsets"\s*:\s*\[\s*(\d{1,18})\s*,\s*(\d{1,18})\s*\]')
_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


def check(read: ReadAt, size: int) -> None:
    """Compares the header with the length of the file.

    Raises:
        BadContentError: the header is damaged, or the file has another length than it says.
        UnreadableError, OverBudgetError: as `Access.read`.
    """
    head = read(0, 8)
    if len(head) < 8:
        raise BadContentError(f"{size} bytes are too few for a safetensors file")
    length = int.from_bytes(head, "little")
    if not 2 <= length <= MAX_HEADER:
        raise BadContentError("it does not start as a safetensors file")
    if 8 + length > size:
        raise BadContentError("its header is cut off")
    header = read(8, length)
    spans = _parsed(header) if length <= _MAX_PARSED else _searched(header)
    end = 0
    for first, last in sorted(spans):
        if first != end or last < first:
            raise BadContentError("the offsets in its header leave gaps or overlap")
        end = last
    if 8 + length + end != size:
        raise BadContentError(f"it has {size} bytes, and its header demands {8 + length + end}")


def _searched(header: bytes) -> list[tuple[int, int]]:
    return [(int(m[1]), int(m[2])) for m in _OFFSETS.finditer(header)]


def _parsed(header: bytes) -> list[tuple[int, int]]:
    try:
        data = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise BadContentError("its header is damaged") from error
    if not isinstance(data, dict):
        raise BadContentError("its header is damaged")
    return [_span(name, entry) for name, entry in data.items() if name != "__metadata__"]


def _span(name: str, entry: object) -> tuple[int, int]:
    damaged = BadContentError(f"its header is damaged at tensor {name}")
    if not isinstance(entry, dict):
        raise damaged
    offsets, shape = _naturals(entry.get("data_offsets")), _naturals(entry.get("shape"))
    if offsets is None or shape is None or len(offsets) != 2:
        raise damaged
    bits = _BITS.get(str(entry.get("dtype")))
    if bits is not None and prod(shape) * bits != (offsets[1] - offsets[0]) * 8:
        raise damaged
    return offsets[0], offsets[1]


def _naturals(value: object) -> list[int] | None:
    if not isinstance(value, list) or not all(type(n) is int and 0 <= n < 1 << 60 for n in value):
        return None
    return value
