"""Pickle files, and what `torch.save` wrote before it wrote zip archives: pickles, then raw storages.

torch/serialization.py (`_legacy_save`): pickles of a magic number, a protocol, system information, the object
and the list of its storages; then for each storage its number of elements (8 bytes) and its elements.
"""

import re

from relight.checkpoints.access import BadContentError, ReadAt
from relight.checkpoints.formats import pickles

START = re.compile(rb"\x80[\x00-\x05]")
"""How a pickle of protocol 2 or later starts; older ones start in any way."""
MAX_PICKLE = 16 << 20
"""Of a larger pickle only the last byte is checked."""
_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_BYTES = {
    "Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1,
    "Bool": 1, "Untyped": 1, "ComplexDouble": 16, "ComplexFloat": 8,
}  # fmt: skip


def check(read: ReadAt, size: int) -> bool:
    """Follows the pickles of a file to its end.

    Returns:
        The length of the file is what its contents demand; false where they are too large to tell.

    Raises:
        BadContentError: it is damaged or cut off.
        UnreadableError, OverBudgetError: as `Access.read`.
    """
    data = read(0, min(size, MAX_PICKLE))
    try:
        demanded = _torch_length(data) if data.startswith(_MAGIC) else _pickles_length(data)
    except pickles.TooLongError:
        demanded = None
    except BadContentError:
        if len(data) == size:
            raise
        demanded = None  # it goes on behind what was read
    if demanded is None:
        if not data.startswith(_MAGIC) and read(size - 1, 1) != b".":
            raise BadContentError("it does not end as a pickle")
        return False
    if demanded != size:
        raise BadContentError(f"it has {size} bytes, and its contents demand {demanded}")
    return True


def _pickles_length(data: bytes) -> int:
    end = 0
    while end < len(data):
        _, end = pickles.read(data, end)
    return end


def _torch_length(data: bytes) -> int | None:
    """The length of a file; None if it has storages of an unknown kind."""
    lengths: dict[str, int | None] = {}

    def note(made: pickles.Call | pickles.Persistent) -> None:
        if isinstance(made, pickles.Persistent):
            kind, key, length = _storage(made.id)
            if kind == "storage":
                lengths[key] = length

    end = 0
    for _ in range(4):
        _, end = pickles.read(data, end, built=note)
    keys, end = pickles.read(data, end)
    for key in keys if isinstance(keys, list) else ():
        length = lengths.get(str(key))
        if length is None:
            return None
        end += 8 + length
    return end


def _storage(id_: object) -> tuple[str, str, int | None]:
    """Kind, key and bytes of a persistent id: `("storage", FloatStorage, key, device, n)`."""
    if not isinstance(id_, tuple) or len(id_) < 5 or not isinstance(id_[0], str):
        return "", "", None
    kind, key, count = id_[1], id_[2], id_[4]
    name = kind.name if isinstance(kind, pickles.Name) else None
    width = _BYTES.get(name.removesuffix("Storage")) if isinstance(name, str) else None
    length = width * count if width is not None and isinstance(count, int) else None
    return id_[0], str(key) if isinstance(key, str | int) else "", length
