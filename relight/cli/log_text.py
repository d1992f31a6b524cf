"""Whether a file that is given as a log can be one. Pure."""

SAMPLE = 1 << 16
"""Bytes at the beginning of a file that are judged."""
_FEW = 0.3
"""The share of bytes that may be no text: codes of terminals, another encoding, a line that was cut."""
_IN_TEXTS = frozenset(b"\t\n\r\f\b\x1b")
_CONTROL = bytes(byte for byte in (*range(0x20), 0x7F) if byte not in _IN_TEXTS)
_PACKED = {b"\x1f\x8b": "gzip", b"(\xb5/\xfd": "zstd", b"\xfd7zXZ": "xz", b"BZh": "bzip2"}


def why_no_log(beginning: bytes) -> str:
    """What speaks against a file with this beginning, to be put behind its name; empty: nothing does."""
    sample = beginning[:SAMPLE]
    if not sample:
        return "is empty: it tells nothing of the run"
    for magic, name in _PACKED.items():
        if sample.startswith(magic):
            return f"is packed by {name} and was not read as text: unpack it first"
    strange = (
        len(sample) - len(sample.translate(None, _CONTROL)) + sample.decode(errors="replace").count("\ufffd")
    )
    if strange > _FEW * len(sample):
        return "does not look like text: what it may tell of the run was not understood"
    return ""
