"""Small files under the state directory that outlive a worker: for their owner only, written whole or not."""

import os
import tempfile
import time
from pathlib import Path

KEEP_SECONDS = 30 * 24 * 3600.0


def write(path: Path, text: str) -> None:
    """Writes a file in one piece, mode 0600, in a directory that only its owner can enter.

    Raises:
        OSError: the state directory cannot be written.
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


def prune(directory: Path, older_than: float = KEEP_SECONDS) -> None:
    """Removes files that were last written more than `older_than` seconds ago."""
    limit = time.time() - older_than
    for path in directory.iterdir():
        if path.is_file() and path.stat().st_mtime < limit:
            path.unlink(missing_ok=True)
