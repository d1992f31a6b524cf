"""Small files under the state directory that outlive a worker: they go when they are old."""

import time
from pathlib import Path

KEEP_SECONDS = 30 * 24 * 3600.0


def prune(directory: Path, older_than: float = KEEP_SECONDS) -> None:
    """Removes files that were last written more than `older_than` seconds ago."""
    limit = time.time() - older_than
    for path in directory.iterdir():
        if path.is_file() and path.stat().st_mtime < limit:
            path.unlink(missing_ok=True)
