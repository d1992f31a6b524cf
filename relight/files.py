"""Small files that are there whole or not at all, and for their owner only."""

import os
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Writes a file in one piece, mode 0600; makes its directory, which then only its owner can enter.

    Raises:
        OSError: it cannot be written; what was there before stays.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp creates it 0600
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise
